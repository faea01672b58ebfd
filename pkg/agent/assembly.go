// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/calico-go/calico/pkg/agent/availability"
	"github.com/calico-go/calico/pkg/agent/conflist"
	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/agent/etcdguard"
	"github.com/calico-go/calico/pkg/agent/leftovers"
	"github.com/calico-go/calico/pkg/agent/nodestatus"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/pods"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/nodecert"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// assembly is an agent with all its parts.
type assembly struct {
	cfg    Config
	env    run.Env
	loop   *loop
	feed   *feed
	router *router.Router
	left   *leftovers.Blocks
	pods   *pods.Cache // nil without Kubernetes
}

func assemble(cfg Config, env run.Env, start params.Params, client *store.Client, kubernetes *kube.Client) assembly {
	p := parts{
		metrics: newMetrics(env.Metrics, env.Problems.Count), wake: mailbox.NewSignal(), routed: true,
		report: status.New(status.Config{Node: cfg.Node, VarDir: cfg.VarDir, Place: cfg.place, Logger: env.Logger, Health: env.Health, Problems: env.Problems}, client),
	}
	p.handover, p.dhcp = router.NewHandover(p.wake), newDHCP(cfg, env, p.metrics)
	guard, entered := etcdguard.New(env.Logger, client), newReentry(cfg, env, client, p.report, p.metrics)
	p.source = etcdSource{client, guard, entered}
	a := assembly{cfg: cfg, env: env}
	a.feed = &feed{reentry: entered, unknown: problems.NewUnknown(cfg.Node, env.Problems), guard: guard, dhcp: p.dhcp, status: p.report}
	if kubernetes != nil {
		a.feed.podCIDRs = &podCIDRs{log: env.Logger, problems: env.Problems}
		a.feed.leader = &leadership{log: env.Logger, health: env.Health, problems: env.Problems, gauge: p.metrics.unled}
		a.pods = newPods(cfg, kubernetes, a.feed.podCIDRs.SetNode)
		p.warnPod = podEvents(kubernetes, a.pods)
	}
	a.router, a.feed.identity, a.left = newRouter(cfg, env, client, p, guard)
	a.loop = newLoop(cfg, env, start, p)
	a.feed.router, a.feed.updates = a.router, a.loop.updates
	env.Pages.AddPage("GET /debug/state", debugPage{a.loop, a.router})
	return a
}

// describeRoutes returns what is known in time of routes and BGP.
func (a assembly) describeRoutes(ctx context.Context) (debugstate.Router, plan.State) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	state := a.router.State(ctx)
	return state.Router, state.Plan
}

// runs are the agent's concurrent parts; each runs until its context ends.
func (a assembly) runs(client *store.Client, kubernetes *kube.Client, certificate *nodecert.Certificate) []func(context.Context) error {
	f, l, served, gates := a.feed, a.loop, make(chan struct{}), gatekeeper{loop: a.loop}
	runs := []func(context.Context) error{
		l.serving.Run, l.report.Run, f.dhcp.Run, f.reentry.Run, f.guard.Run, f.identity.Run, a.router.RunBGP, a.router.Run, a.left.Run, l.runToEnd,
		func(ctx context.Context) error { return f.watch(ctx, client) },
		func(ctx context.Context) error { return closeWhenServing(ctx, a.env.Health, served) },
	}
	if a.pods != nil {
		gates.pods = a.pods
		node := availability.New(availability.Config{
			Node: a.cfg.Node, API: availability.Kubernetes{Client: kubernetes}, What: "condition NetworkUnavailable",
			Served: served, Unready: a.env.Health.Unready, Problems: a.env.Problems, Logger: a.env.Logger,
		})
		answers := nodestatus.New(a.cfg.Node, nodestatus.Kubernetes{Client: kubernetes}, nodestatus.Node{
			Version: a.env.Version, Started: time.Now(), Unready: a.env.Health.Unready, Describe: a.describeRoutes,
		}, a.env.Problems)
		runs = append(runs, a.pods.Run, node.Run, answers.Run)
	}
	if certificate != nil {
		runs = append(runs, certificate.Run)
	}
	if a.cfg.CNI.Dir != "" {
		cni := a.cfg.conflist()
		cni.Served, cni.Health, cni.Problems, cni.Event, cni.Logger = served, a.env.Health, a.env.Problems, nodeEvents(a.cfg.Node, kubernetes), a.env.Logger
		runs = append(runs, conflist.New(cni).Run)
	}
	return append(runs, func(ctx context.Context) error {
		return gate.Serve(ctx, filepath.Join(a.cfg.RunDir, socketName), gates)
	})
}
