// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// gone is a node that is gone for good, or one of its workloads, with what etcd still holds of it.
type gone struct {
	env      *session.Env
	name     string // of the node
	workload bool   // only a workload: the node's agent may live
	entries  []model.Entry
	users    *usage.Usage
	mine     map[netip.Addr]usage.Address // allocated to the node's workloads and tunnels
}

func newGone(ctx context.Context, env *session.Env, name string) (*gone, error) {
	snapshot, err := env.Read(ctx, usage.Ranges()...)
	if err != nil {
		return nil, err
	}
	entries := snapshot.Entries()
	g := &gone{env: env, name: name, entries: entries, users: usage.New(entries), mine: map[netip.Addr]usage.Address{}}
	for _, a := range g.users.All() {
		if a.Host() == name || a.Host() == "" && a.User != "" {
			g.mine[a.Addr] = a
		}
	}
	return g, nil
}

// isOrphan reports whether an endpoint belongs to a container that it doesn't name: no DEL removes it.
func isOrphan(s resource.Stored) bool {
	spec, ok := s.Spec.(*resource.WorkloadEndpoint)
	return ok && s.Entries[0].Err == nil && spec.ContainerID == "" && (spec.Orchestrator == "k8s" || spec.Orchestrator == "cni")
}

// takeOrphan deletes an endpoint and its addresses, unless it is up.
func takeOrphan(ctx context.Context, env *session.Env, s resource.Stored) error {
	e := s.Entries[0]
	k := e.Key.(model.WorkloadEndpointKey)
	g, err := newGone(ctx, env, k.Host)
	if err != nil {
		return err
	}
	g.workload = true
	return g.takeWorkload(ctx, k, e)
}

// takeAway deletes a node's workloads and their addresses, frees what its agent took, and ends the affinities of its blocks. Each
// step is a transaction that requires that the agent is gone. An interrupted takeAway goes on when it is run again.
func takeAway(ctx context.Context, env *session.Env, name string) error {
	g, err := newGone(ctx, env, name)
	if err != nil {
		return err
	}
	workloads, blocks := 0, 0
	for _, e := range g.entries {
		if k, ok := e.Key.(model.WorkloadEndpointKey); ok && k.Host == name {
			if err := g.takeWorkload(ctx, k, e); err != nil {
				return err
			}
			workloads++
			env.Progress("%s of node %s taken away", resource.Count(workloads, "workload"), name)
		}
	}
	own := model.HostConfigKey{Host: name}.Path()
	for addr, a := range g.mine {
		if strings.HasPrefix(a.User, own) || a.Host() == name && a.Leaked() {
			if err := g.transact(ctx, nil, func(v *model.View) (model.Change, error) { return g.release(v, addr) }); err != nil {
				return err
			}
		}
	}
	for _, e := range g.entries {
		if k, ok := e.Key.(model.AffinityKey); ok && k.Host == name {
			err := g.transact(ctx, ipam.FirstReadGiveBack(k.CIDR), func(v *model.View) (model.Change, error) {
				p := ipam.NewPlan(v)
				err := p.Abandon(name, k.CIDR)
				return p.Change(), err
			})
			if err != nil {
				return err
			}
			blocks++
		}
	}
	_, err = fmt.Fprintf(env.Stdout, "Node %s: %s with their addresses, and %s, taken away%s\n", name, resource.Count(workloads, "workload"), resource.Count(blocks, "block"), env.DryRunNote())
	return err
}

// takeWorkload deletes a workload's endpoint, if it is still as read, and its addresses.
func (g *gone) takeWorkload(ctx context.Context, k model.WorkloadEndpointKey, read model.Entry) error {
	report := model.WorkloadStatusKey(k)
	spec, _ := read.Value.(model.WorkloadEndpoint)
	var addrs []netip.Addr
	for _, a := range spec.Addrs() {
		if _, mine := g.mine[a]; mine && g.users.User(a) == read.Path {
			addrs = append(addrs, a)
		}
	}
	return g.transact(ctx, []model.Range{model.KeyRange(k), model.KeyRange(report)}, func(v *model.View) (model.Change, error) {
		if e := v.Get(k); e.Revision != read.Revision {
			return model.Change{}, fmt.Errorf("%s has changed meanwhile: try again", read.Path)
		}
		if g.workload && v.Get(report).Value == model.EndpointUp {
			return model.Change{}, fmt.Errorf("%s is up: end its workload first", read.Path)
		}
		change, err := g.release(v, addrs...)
		if err != nil {
			return change, fmt.Errorf("%s: %w", read.Path, err)
		}
		change.Compares = append(change.Compares, v.Compare(k))
		change.Deletes = append(change.Deletes, k)
		if v.Get(report).Exists() {
			change.Compares, change.Deletes = append(change.Compares, v.Compare(report)), append(change.Deletes, report)
		}
		return change, nil
	})
}

// release frees addresses, if their handles still have them.
func (g *gone) release(v *model.View, addrs ...netip.Addr) (model.Change, error) {
	p := ipam.NewPlan(v)
	for _, a := range addrs {
		handle, freed, err := p.ReleaseAddr(a, time.Now())
		switch {
		case err != nil:
			return model.Change{}, err
		case freed && handle != g.mine[a].Handle:
			return model.Change{}, fmt.Errorf("%s is allocated to handle %q now, and was to %q: try again", a, handle, g.mine[a].Handle)
		}
	}
	return p.Change(), nil
}

// transact runs a transaction; for a whole node, only if its agent doesn't report.
func (g *gone) transact(ctx context.Context, reads []model.Range, decide func(*model.View) (model.Change, error)) error {
	status := model.StatusKey{Host: g.name}
	return g.env.Transact(ctx, append(reads, model.KeyRange(status)), func(v *model.View) (model.Change, error) {
		if v.Get(status).Exists() && !g.workload {
			return model.Change{}, fmt.Errorf("the agent of node %s lives: stop it first", g.name)
		}
		change, err := decide(v)
		if !g.workload {
			change.Compares = append(change.Compares, v.Compare(status))
		}
		return change, err
	})
}
