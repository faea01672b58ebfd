// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// desired is what the kernel should hold, and what it was last seen to hold of that. It follows the claims while these may be acted on.
type desired struct {
	targets    map[string]*Target  // by the endpoint's path
	interfaces map[string]*Target  // those that want something, by interface
	failing    map[string]struct{} // interfaces that the kernel refused
}

// Target is the state of one endpoint on its way into the kernel. Others may read it.
type Target struct {
	Key      model.WorkloadEndpointKey
	Path     string
	Revision int64
	Want     hostpath.Endpoint
	Refused  error // why nothing is wanted
	// Untranslated is why part of its 1:1 NAT is missing; nil = none is.
	Untranslated error
	Applied      bool  // read back as wanted
	was          bool  // was ever Applied
	Problem      error // why it isn't Applied, after a try
	since        time.Time
}

// work is what follows from a change of the desired state.
type work struct {
	changed, removed []hostpath.Endpoint
	// host: something drifted that concerns the host as a whole.
	host bool
	// fresh: the firewall alone decides whether what changed is connected. Interfaces that no endpoint had before are closed, and others
	// keep their access.
	fresh bool
	// lost are addresses that no longer lead where they led: connections with them are over.
	lost []netip.Addr
}

func (w work) empty() bool { return len(w.changed) == 0 && len(w.removed) == 0 && !w.host }

func newDesired() *desired {
	return &desired{targets: map[string]*Target{}, interfaces: map[string]*Target{}, failing: map[string]struct{}{}}
}

// reconcile updates the targets of some endpoints from the claims.
func (d *desired) reconcile(s *claims, paths map[string]struct{}, now time.Time) work {
	w := work{fresh: true}
	left := map[string]hostpath.Endpoint{} // the former endpoints of interfaces, by name
	entered := map[string]*Target{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		old, ep := d.targets[path], s.endpoints[path]
		next := &Target{Path: path, since: now}
		if ep != nil {
			next.Key, next.Revision = ep.key, ep.revision
			next.Want, next.Refused = s.verdict(ep)
			next.Untranslated = s.untranslated(ep)
		}
		if old != nil && old.Refused == nil {
			if ep != nil && next.Refused == nil && sameEndpoint(old.Want, next.Want) {
				if old.Revision != next.Revision {
					// The interface may be another one with the same name: readings before that revision prove nothing.
					old.Revision, old.Applied, old.since = next.Revision, false, now
					entered[old.Want.Interface] = old
				}
				old.Untranslated = next.Untranslated
				continue
			}
			left[old.Want.Interface] = old.Want
			w.lost = append(w.lost, s.notReserved(lostAddrs(old.Want, next.Want))...)
			if d.interfaces[old.Want.Interface] == old {
				delete(d.interfaces, old.Want.Interface)
				delete(d.failing, old.Want.Interface)
			}
		}
		if ep == nil {
			delete(d.targets, path)
			continue
		}
		d.targets[path] = next
		if next.Refused == nil {
			entered[next.Want.Interface] = next
		}
	}
	for name, t := range entered {
		_, had := left[name]
		w.fresh = w.fresh && !had && (d.interfaces[name] == nil || d.interfaces[name] == t)
		d.interfaces[name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(entered)) {
		w.changed = append(w.changed, entered[name].Want)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if d.interfaces[name] == nil {
			w.removed = append(w.removed, left[name])
		}
	}
	return w
}

// lostAddrs returns the addresses that led to an endpoint and no longer do.
func lostAddrs(old, next hostpath.Endpoint) []netip.Addr {
	if !old.Active {
		return nil
	}
	if !next.Active || next.Interface != old.Interface || isAnother(old, next) {
		return old.Addrs
	}
	return without(old.Addrs, next.Addrs)
}

// isAnother reports whether another container has the endpoint now: a pod was deleted and created again by its name, without an update
// between, for instance while etcd was out of reach.
func isAnother(old, next hostpath.Endpoint) bool {
	return old.Container != "" && next.Container != "" && old.Container != next.Container
}

func without(addrs, these []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return slices.Contains(these, a) })
}

// all returns the whole desired state.
func (d *desired) all() []hostpath.Endpoint {
	all := make([]hostpath.Endpoint, 0, len(d.interfaces))
	for _, name := range slices.Sorted(maps.Keys(d.interfaces)) {
		all = append(all, d.interfaces[name].Want)
	}
	return all
}

// read takes in what the kernel was read to hold, and returns the targets whose state changed.
func (d *desired) read(statuses []hostpath.Status) []*Target {
	var changed []*Target
	for _, status := range statuses {
		t := d.interfaces[status.Interface]
		delete(d.failing, status.Interface)
		if t == nil {
			continue
		}
		if status.Err != nil && !IsAbsent(status.Err) {
			d.failing[status.Interface] = struct{}{}
		}
		before, had := t.Applied, t.Problem
		t.Applied, t.Problem = status.Err == nil, status.Err
		t.was = t.was || t.Applied
		if t.Applied != before || problems.Reason(had) != problems.Reason(t.Problem) {
			changed = append(changed, t)
		}
	}
	return changed
}

// Status returns the reported status of the endpoint's connection.
func (t *Target) Status() model.EndpointStatus {
	switch {
	case t.Refused != nil:
		return model.EndpointError
	case t.Applied && t.Want.Active:
		return model.EndpointUp
	case t.Applied, t.Problem == nil, IsAbsent(t.Problem):
		return model.EndpointDown
	}
	return model.EndpointError
}

// Fault returns what is wrong with the endpoint's interface. It is nil also while the interface doesn't exist or isn't up yet, or is gone.
func (t *Target) Fault() error {
	down, is := errors.AsType[*link.DownError](t.Problem)
	switch {
	case !is:
		return t.Problem
	case t.was && down.Why == link.IsDown:
		return fmt.Errorf("%w, as somebody has set it: run ip link set %s up", down, down.Interface)
	}
	return nil
}

// IsAbsent reports whether an error says that an interface doesn't exist or isn't up, rather than that it could not be programmed.
func IsAbsent(err error) bool {
	var down *link.DownError
	return errors.As(err, &down)
}
