// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
)

// tunnelNeed says what to do about one tunnel's own address.
type tunnelNeed struct {
	handle, config string
	// keep is the address that the tunnel has; if release is set, the handle's other addresses are freed.
	keep    netip.Addr
	release bool
	// pools are where to allocate an address from; empty = don't.
	pools []netip.Prefix
	// write: write keep, or the allocated address, to the key config.
	write bool
}

// tunnelNeeds compares the wanted tunnels with what etcd holds.
func tunnelNeeds(host string, kinds []plan.Tunnel, n note) []tunnelNeed {
	var needs []tunnelNeed
	for _, kind := range kinds {
		need := tunnelNeed{handle: kind.Handle, config: kind.AddrConfig}
		need.release = slices.Contains(n.devices.Releases, kind.Handle)
		stored := n.stored[model.HostConfigKey{Host: host, Name: kind.AddrConfig}.Path()]
		at := slices.IndexFunc(n.devices.Tunnels, func(t plan.Tunnel) bool { return t.Handle == kind.Handle })
		if at >= 0 {
			t := n.devices.Tunnels[at]
			need.keep = t.Addr
			if !t.Addr.IsValid() {
				need.pools = t.Pools
			}
			text, _ := stored.Value.(model.Text)
			need.write = t.Addr.IsValid() && string(text) != t.Addr.String()
		}
		if need.release || len(need.pools) > 0 || need.write {
			needs = append(needs, need)
		}
	}
	return needs
}

// nowherePause is the pause before another allocation if no pool is for this host: labels of hosts may change.
const nowherePause = time.Minute

// tunnelEffort is the work on one tunnel's address.
type tunnelEffort struct {
	effort
	need tunnelNeed
	next time.Time // not before this, while the need is the same
}

// turnTunnels handles the tunnels' own addresses.
func (i *Host) turnTunnels(ctx context.Context, n note) (again time.Duration) {
	needs := tunnelNeeds(i.host, i.kinds, n)
	there := map[string]struct{}{}
	for _, need := range needs {
		there[need.handle] = struct{}{}
		e := i.tunnels[need.handle]
		if e == nil || !reflect.DeepEqual(e.need, need) {
			e = &tunnelEffort{effort: newEffort(), need: need}
			i.tunnels[need.handle] = e
		}
		if left := e.next.Sub(i.now()); left > 0 {
			again = sooner(again, left)
			continue
		}
		e.run(func() error { return i.address(ctx, need) })
		if ctx.Err() != nil {
			return 0
		}
		e.next = i.now().Add(e.again)
		i.problems.Tell(problems.Host, problemTunnel(need.handle), e.err)
		again = sooner(again, e.again)
	}
	for _, handle := range slices.Sorted(maps.Keys(i.tunnels)) {
		if _, ok := there[handle]; !ok {
			delete(i.tunnels, handle)
			i.problems.Tell(problems.Host, problemTunnel(handle), nil)
		}
	}
	return again
}

func problemTunnel(handle string) string { return "address of " + handle }

// address brings a tunnel's address in etcd in line, in one transaction. A handle finds the address that it has: after the host returns, or
// after a commit without an answer.
func (i *Host) address(ctx context.Context, need tunnelNeed) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	config := model.HostConfigKey{Host: i.host, Name: need.config}
	request := i.request(need)
	first := append([]model.Range{model.KeyRange(model.ReadyKey{}), model.KeyRange(config)}, ipam.FirstRead(request)...)
	var addr netip.Addr
	revision, err := i.store.Transact(ctx, first,
		func(v *model.View) (change model.Change, err error) {
			i.step("tunnel address read")
			if v.Get(model.ReadyKey{}).Value != model.Ready(true) {
				return change, errNotReady
			}
			if change, addr, err = decideTunnel(v, need, adopting(v, need, request), i.now()); err != nil && !errors.As(err, new(*model.NeedRangesError)) {
				change, addr, err = decideTunnel(v, need, request, i.now())
			}
			if err != nil {
				return change, err
			}
			change.Merge(configChange(config, v.Get(config), need, addr))
			return change, nil
		},
		store.BeforeCommit(func(*model.View) error { i.step("tunnel address before commit"); return nil }))
	if err != nil {
		return err
	}
	i.step("tunnel address committed")
	i.await(revision)
	if addr.IsValid() {
		i.log.Info("tunnel's own address", "handle", need.handle, "address", addr, "revision", revision)
	} else {
		i.log.Info("tunnel's own address is free again", "handle", need.handle, "revision", revision)
	}
	return nil
}

func (i *Host) request(need tunnelNeed) ipam.Request {
	r := ipam.Request{
		Host: i.host, Handle: need.handle, Now: i.now(), Picked: true, Tunnel: true,
		Attributes: map[string]string{"node": i.host, "type": "tunnel-address"},
	}
	for _, p := range need.pools {
		if p.Addr().Is4() {
			r.IPv4, r.Pools4 = true, append(r.Pools4, model.PoolRef{CIDR: p})
		} else {
			r.IPv6, r.Pools6 = true, append(r.Pools6, model.PoolRef{CIDR: p})
		}
	}
	return r
}

// adopting requests the address that the host's setting names: before version 3.6 Calico allocated it without a handle, so nothing else
// says whose it is. The request fails if that is not so, or if an endpoint has the address by now.
func adopting(v *model.View, need tunnelNeed, r ipam.Request) ipam.Request {
	text, _ := v.Get(model.HostConfigKey{Host: r.Host, Name: need.config}).Value.(model.Text)
	a, err := netip.ParseAddr(string(text))
	if err == nil && slices.ContainsFunc(need.pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
		r.Addrs = []netip.Addr{a}
	}
	return r
}

var errNotReady = errors.New("calico's data in etcd is not ready")

// decideTunnel frees the addresses that the tunnel must not have and allocates what it lacks.
func decideTunnel(view *model.View, need tunnelNeed, request ipam.Request, now time.Time) (model.Change, netip.Addr, error) {
	p := ipam.NewPlan(view)
	addr, freed := need.keep, false
	if need.release {
		held, err := p.Held(need.handle)
		if err != nil {
			return model.Change{}, addr, err
		}
		for _, a := range held {
			wanted := slices.ContainsFunc(need.pools, func(p netip.Prefix) bool { return p.Contains(a.Addr) })
			if a.Addr == need.keep || wanted {
				continue
			}
			if _, _, err := p.ReleaseAddr(a.Addr, now); err != nil {
				return model.Change{}, addr, err
			}
			freed = true
		}
	}
	if len(need.pools) > 0 {
		for _, a := range request.Addrs {
			if handle, allocated, err := p.Holder(a); err != nil {
				return model.Change{}, addr, err
			} else if !allocated || handle != "" {
				return model.Change{}, addr, &ipam.TakenError{Addr: a, Handle: handle}
			}
			if _, _, err := p.ReleaseAddr(a, now); err != nil {
				return model.Change{}, addr, err
			}
		}
		choice, err := p.Assign(request)
		if _, more := errors.AsType[*model.NeedRangesError](err); freed && err != nil && !more {
			return p.Change(), addr, nil // the next turn finds again that none is available
		}
		if err != nil {
			return model.Change{}, addr, err
		}
		addr = choice.Addrs[0].Addr
	}
	return p.Change(), addr, nil
}

// configChange writes the address to the host's setting.
func configChange(config model.HostConfigKey, stored model.Entry, need tunnelNeed, addr netip.Addr) model.Change {
	text, _ := stored.Value.(model.Text)
	c := model.Change{Compares: []model.Compare{{Key: config, Revision: stored.Revision}}}
	switch {
	case addr.IsValid() && string(text) != addr.String():
		c.Puts = []model.Put{{Key: config, Value: model.Text(addr.String())}}
	case !addr.IsValid() && need.release && stored.Exists():
		c.Deletes = []model.Key{config}
	}
	return c
}
