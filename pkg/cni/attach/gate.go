// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
)

// askAgain is how long the plugin waits before it asks an agent again that wasn't ready or wasn't running.
const askAgain = 20 * time.Millisecond

// AgentNeverRan reports whether no agent has ever run on this node and the configuration doesn't require one.
func AgentNeverRan(conf *netconf.Config) bool {
	_, err := os.Stat(conf.Nodename.File)
	return os.IsNotExist(err) && !conf.Nodename.FileRequired
}

// WaitAtGate returns once the agent has programmed the endpoint as of revision and has verified it by reading it back
// from the kernel.
func WaitAtGate(ctx context.Context, conf *netconf.Config, log *slog.Logger, key model.WorkloadEndpointKey, revision int64) error {
	timeout := conf.Agent.Timeout
	if timeout == 0 {
		return nil
	}
	answered, err := untilAnswered(ctx, conf, timeout, func(ctx context.Context) error {
		return gate.Wait(ctx, conf.Agent.Socket, gate.Request{Endpoint: key, Revision: revision})
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gate.ErrNoAgent) && answered:
		log.Warn("no agent: it never ran on this node, so nothing is programmed for this pod", "socket", conf.Agent.Socket)
		return nil
	case answered:
		return protocol.Failf(protocol.CodeRejected, "see the agent's log", "endpoint %s: %w", key.Path(), err)
	case ctx.Err() != nil:
		return protocol.Failf(protocol.CodeTryAgain, "the call was interrupted by a signal: try again",
			"wait for the agent to confirm that the pod's network is programmed: %w", ctx.Err())
	}
	return protocol.Failf(protocol.CodeTryAgain, "check that calico-node runs on this node, and its log; then try again",
		"the agent didn't confirm within %v that the pod's network is programmed: %w", timeout, err)
}

// podTimeout bounds the question for a pod if no agent timeout is configured.
const podTimeout = 10 * time.Second

// AskPod returns what the agent knows about a pod from the Kubernetes API. If no agent ever ran on this node it returns
// the zero Pod, which is good enough for trying the plugin by hand.
func AskPod(ctx context.Context, conf *netconf.Config, log *slog.Logger, r gate.PodRequest) (p gate.Pod, err error) {
	timeout := cmp.Or(conf.Agent.Timeout, podTimeout)
	answered, err := untilAnswered(ctx, conf, timeout, func(ctx context.Context) error {
		p, err = gate.AskPod(ctx, conf.Agent.Socket, r)
		return err
	})
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, gate.ErrNoAgent) && answered && !conf.IPAM.PodCIDR:
		log.Warn("no agent: it never ran on this node, so nothing is known of the pod's labels and annotations", "socket", conf.Agent.Socket)
		return gate.Pod{}, nil
	}
	return gate.Pod{}, explainPod(ctx, answered, timeout, err)
}

// TryPod is AskPod without retries and for the node alone: it checks whether a pod could be asked for now.
func TryPod(ctx context.Context, conf *netconf.Config) (gate.Pod, error) {
	p, err := gate.AskPod(ctx, conf.Agent.Socket, gate.PodRequest{})
	if err == nil || errors.Is(err, gate.ErrNoAgent) && AgentNeverRan(conf) && !conf.IPAM.PodCIDR {
		return p, nil
	}
	return p, explainPod(ctx, isAnswer(conf, err), 0, err)
}

func explainPod(ctx context.Context, answered bool, waited time.Duration, err error) error {
	const what = "what the Kubernetes API knows of the pod"
	switch {
	case errors.Is(err, gate.ErrNoAgent) && answered:
		return protocol.Failf(protocol.CodeConfig, "start calico-node in the cluster, or write the subnet into the network configuration",
			"ipam.subnet: usePodCidr is what calico-node reads from the Kubernetes API, and it never ran on this node: %w", err)
	case errors.Is(err, gate.ErrNoPod):
		return protocol.Failf(protocol.CodeTryAgain, "it was deleted, or made anew under its name: nothing is to be done", "ask the agent %s: %w", what, err)
	case answered:
		return protocol.Failf(protocol.CodeRejected, "run calico-node in the cluster, or with KUBECONFIG; or take policy.type and usePodCidr out of the network configuration",
			"ask the agent %s: %w", what, err)
	case ctx.Err() != nil:
		return protocol.Failf(protocol.CodeTryAgain, "the call was interrupted by a signal: try again", "ask the agent %s: %w", what, ctx.Err())
	}
	within := ""
	if waited != 0 {
		within = fmt.Sprintf(" within %v", waited)
	}
	return protocol.Failf(protocol.CodeTryAgain, "check that calico-node runs on this node and reaches the Kubernetes API, and its log; then try again",
		"the agent didn't say%s %s: %w", within, what, err)
}

// isAnswer reports whether err is final, so that asking again would give the same.
func isAnswer(conf *netconf.Config, err error) bool {
	rejected, refused := errors.AsType[*gate.RejectedError](err)
	return err == nil || refused && !rejected.Retry || errors.Is(err, gate.ErrNoPod) || errors.Is(err, gate.ErrNoAgent) && AgentNeverRan(conf)
}

// untilAnswered asks the agent repeatedly until it answers or the timeout expires. In the latter case err is the last
// error that wasn't merely the timeout.
func untilAnswered(ctx context.Context, conf *netconf.Config, timeout time.Duration, ask func(context.Context) error) (answered bool, err error) {
	answered = poll(ctx, timeout, func(ctx context.Context) bool {
		says := ask(ctx)
		done := isAnswer(conf, says)
		if done || err == nil || ctx.Err() == nil {
			err = says
		}
		return done
	})
	return answered, err
}

// UntilTold waits, for at most as long as a pod waits at the gate, until told succeeds: it checks for something that
// the agent writes for plugins when it starts. told returns an error with CodeTryAgain until it is there.
func UntilTold(ctx context.Context, conf *netconf.Config, log *slog.Logger, told func() error) (err error) {
	waits := false
	poll(ctx, conf.Agent.Timeout, func(context.Context) bool {
		err = told()
		waiting := err != nil && protocol.Explain(err).Code == protocol.CodeTryAgain
		if waiting && !waits {
			log.Info("waiting for calico-node", "error", err)
		}
		waits = waiting
		return !waiting
	})
	return err
}

// poll calls try repeatedly until it returns true. It reports false if the timeout expires first.
func poll(ctx context.Context, timeout time.Duration, try func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !try(ctx) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(askAgain):
		}
	}
	return true
}
