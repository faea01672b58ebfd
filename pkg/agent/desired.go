// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// desired is what the agent wants of the kernel, and what the kernel was last
// seen to hold of that. It follows the state while that is to be acted upon.
type desired struct {
	targets    map[string]*target  // by the endpoint's path
	interfaces map[string]*target  // those that want something, by interface
	failing    map[string]struct{} // of these, what the kernel refused
}

// target is one endpoint on its way into the kernel.
type target struct {
	key      model.WorkloadEndpointKey
	path     string
	revision int64
	want     hostpath.Endpoint
	refused  error // why nothing is wanted
	// untranslated is why some of its 1:1 NAT isn't; nil = all of it is.
	untranslated error
	since        time.Time
	applied      bool  // read back as wanted
	problem      error // why it isn't, where that was tried
}

// work is what follows from a change of the desired state.
type work struct {
	changed, removed []hostpath.Endpoint
	// host: of the host as a whole something drifted.
	host bool
	// fresh: the firewall decides whether what changed is connected. Interfaces
	// that no endpoint had before are closed, and others keep the access they have.
	fresh bool
	// lost are addresses that no longer lead where they led: connections to
	// them are over.
	lost []netip.Addr
}

func (w work) empty() bool { return len(w.changed) == 0 && len(w.removed) == 0 && !w.host }

func newDesired() *desired {
	return &desired{targets: map[string]*target{}, interfaces: map[string]*target{}, failing: map[string]struct{}{}}
}

// follow brings the targets of some endpoints in line with the state.
func (d *desired) follow(s *state, paths map[string]struct{}, now time.Time) work {
	w := work{fresh: true}
	left := map[string]hostpath.Endpoint{} // what interfaces had, by name
	entered := map[string]*target{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		old, ep := d.targets[path], s.endpoints[path]
		next := &target{path: path, since: now}
		if ep != nil {
			next.key, next.revision = ep.key, ep.revision
			next.want, next.refused = s.verdict(ep)
			next.untranslated = s.untranslated(ep)
		}
		if old != nil && old.refused == nil {
			if ep != nil && next.refused == nil && sameEndpoint(old.want, next.want) {
				if old.revision != next.revision {
					// The interface may be another one of the same name: what was
					// read before that revision proves nothing.
					old.revision, old.applied, old.since = next.revision, false, now
					entered[old.want.Interface] = old
				}
				old.untranslated = next.untranslated
				continue
			}
			left[old.want.Interface] = old.want
			w.lost = append(w.lost, s.notOwn(lostAddrs(old.want, next.want))...)
			if d.interfaces[old.want.Interface] == old {
				delete(d.interfaces, old.want.Interface)
				delete(d.failing, old.want.Interface)
			}
		}
		if ep == nil {
			delete(d.targets, path)
			continue
		}
		d.targets[path] = next
		if next.refused == nil {
			entered[next.want.Interface] = next
		}
	}
	for name, t := range entered {
		_, had := left[name]
		w.fresh = w.fresh && !had && (d.interfaces[name] == nil || d.interfaces[name] == t)
		d.interfaces[name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(entered)) {
		w.changed = append(w.changed, entered[name].want)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if d.interfaces[name] == nil {
			w.removed = append(w.removed, left[name])
		}
	}
	return w
}

// lostAddrs are those that led to an endpoint and now don't lead there.
func lostAddrs(old, next hostpath.Endpoint) []netip.Addr {
	if !old.Active {
		return nil
	}
	if !next.Active || next.Interface != old.Interface || isAnother(old, next) {
		return old.Addrs
	}
	return without(old.Addrs, next.Addrs)
}

// isAnother says that a container has the endpoint that another had: a pod was deleted and
// made again by its name, and of that nothing was heard, as where etcd was out of reach.
func isAnother(old, next hostpath.Endpoint) bool {
	return old.Container != "" && next.Container != "" && old.Container != next.Container
}

func without(addrs, these []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return slices.Contains(these, a) })
}

// all is the whole desired state.
func (d *desired) all() []hostpath.Endpoint {
	all := make([]hostpath.Endpoint, 0, len(d.interfaces))
	for _, name := range slices.Sorted(maps.Keys(d.interfaces)) {
		all = append(all, d.interfaces[name].want)
	}
	return all
}

// read takes in what the kernel was read to hold, and returns the targets
// whose standing that changed.
func (d *desired) read(statuses []hostpath.Status) []*target {
	var changed []*target
	for _, status := range statuses {
		t := d.interfaces[status.Interface]
		delete(d.failing, status.Interface)
		if t == nil {
			continue
		}
		if status.Err != nil && !isAbsent(status.Err) {
			d.failing[status.Interface] = struct{}{}
		}
		before, had := t.applied, t.problem
		t.applied, t.problem = status.Err == nil, status.Err
		if t.applied != before || problems.Reason(had) != problems.Reason(t.problem) {
			changed = append(changed, t)
		}
	}
	return changed
}

// status is what is reported of the endpoint.
func (t *target) status() model.EndpointStatus {
	switch {
	case t.refused != nil:
		return model.EndpointError
	case t.applied && t.want.Active:
		return model.EndpointUp
	case t.applied, t.problem == nil, isAbsent(t.problem):
		return model.EndpointDown
	}
	return model.EndpointError
}

// answer decides a question at the gate: it is done and the endpoint is
// programmed (nil) or never will be (a *gate.RejectedError), or it has to wait.
func (d *desired) answer(s *state, r gate.Request) (done bool, err error) {
	if err := s.checkHost(r.Endpoint.Host); err != nil {
		return true, err
	}
	path := r.Endpoint.Path()
	ep := s.endpoints[path]
	known := s.synced && s.revision >= r.Revision
	switch {
	case ep == nil && known && !s.deaf:
		return true, &gate.RejectedError{Reason: "endpoint " + path + " has been deleted since"}
	case ep == nil, ep.revision < r.Revision && !known:
		return false, nil
	}
	t := d.targets[path]
	switch {
	case t == nil || t.revision < ep.revision:
		return false, nil
	case t.refused != nil:
		return true, &gate.RejectedError{Reason: "endpoint " + path + " keeps no access: " + t.refused.Error()}
	}
	return t.applied, nil
}

// isAbsent tells an interface that isn't there or up, yet or any more, from one
// that could not be programmed.
func isAbsent(err error) bool {
	var down *link.DownError
	return errors.As(err, &down)
}
