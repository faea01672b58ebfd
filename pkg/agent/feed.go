// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"

	"github.com/calico-go/calico/pkg/agent/dhcpd"
	"github.com/calico-go/calico/pkg/agent/etcdguard"
	"github.com/calico-go/calico/pkg/agent/identity"
	"github.com/calico-go/calico/pkg/agent/reentry"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// feed is where what etcd holds enters the agent.
type feed struct {
	reentry  *reentry.Pods
	readable readable
	unknown  *problems.Unknown
	guard    *etcdguard.Guard
	dhcp     *dhcpd.Servers
	status   *status.Reporter
	identity *identity.Host
	router   *router.Router
	leader   *leadership // nil, as podCIDRs: there is no Kubernetes
	podCIDRs *podCIDRs
	updates  chan<- model.Update
}

// watch feeds what etcd holds until the context ends.
func (f *feed) watch(ctx context.Context, client *store.Client) error {
	for {
		err := client.Watch(ctx, watched(), func(u model.Update) error { return f.Update(ctx, u) })
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, reentry.ErrReplaced) {
			return err
		}
	}
}

// Update hands on one update; nil even where the context ends, as the source does so by itself, but for one of another
// etcd: reentry.ErrReplaced. The loop comes last, as only that may have to be waited for.
func (f *feed) Update(ctx context.Context, u model.Update) error {
	if err := f.reentry.Update(ctx, u); err != nil {
		return err
	}
	f.readable.fill(u)
	f.unknown.Update(u)
	f.guard.Answered()
	f.status.Update(u)
	f.identity.Update(u)
	f.router.Update(u)
	f.dhcp.Update(u)
	if f.leader != nil {
		f.leader.Update(u)
		f.podCIDRs.Update(u)
	}
	u, ok := forLoop(u)
	if !ok {
		return nil
	}
	select {
	case f.updates <- u:
	case <-ctx.Done():
	}
	return nil
}
