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

// feed passes what etcd holds to the agent's parts.
type feed struct {
	reentry  *reentry.Pods
	readable readable
	unknown  *problems.Unknown
	guard    *etcdguard.Guard
	dhcp     *dhcpd.Servers
	status   *status.Reporter
	identity *identity.Host
	router   *router.Router
	leader   *leadership // nil, like podCIDRs, without Kubernetes
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

// Update passes on one update. It fails only with reentry.ErrReplaced, for an update of another etcd; if the context ends it returns nil,
// as the source ends by itself. The loop comes last: only sending to it may block.
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
