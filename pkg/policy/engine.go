// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/ownership"
)

// Engine turns the content of etcd into the state that one host's firewall should have. It is passed every change and
// recomputes only what that change affects. The result depends on the content of etcd, not on the order of changes.
// Engine keeps the labels and rules passed to it, which must not be modified afterwards. It is not safe for concurrent
// use.
type Engine struct {
	host      string
	invalid   map[string]error // entries, by path
	judged    map[string]error // result of Invalid; nil = must be recomputed
	spellings spellings
	index     *index
	policies  *policies
	locals    *locals
	rules     *rulebook
	sets      *sets
	pools     *pools
}

// NewEngine returns an empty engine for a host.
func NewEngine(host string) *Engine {
	x := newIndex()
	ss := &sets{index: x, byID: map[SetID]*set{}, touched: map[*set]struct{}{}}
	ls := &locals{index: x, byPath: map[string]*local{}, unplaced: map[string]error{}}
	ls.owners = ownership.New(func(path string) { ls.touch(ls.byPath[path], anything) })
	x.all.changed = ss.membership
	x.own.changed = func(ep *endpoint, _ *query, _ bool) { ls.touch(ep.local, itsRules) }
	return &Engine{
		host: host, invalid: map[string]error{}, spellings: newSpellings(), index: x, locals: ls, sets: ss,
		policies: &policies{own: x.own, tiers: map[string]*tier{}, selectors: map[string]*query{}},
		rules:    &rulebook{sets: ss, used: map[RulesID]*usedRules{}, dirty: map[RulesID]struct{}{}},
		pools:    &pools{byCIDR: map[netip.Prefix]bool{}},
	}
}

// SetInterfaces replaces the host's own interfaces, that is, all but those of workloads.
func (e *Engine) SetInterfaces(interfaces []Interface) { e.locals.setInterfaces(interfaces) }

// SetPrefixes sets the prefixes of workload interface names. A workload endpoint with another interface name is
// Dropped; a host endpoint with such a name has no interface. With no prefixes, a workload's interface may have any
// name.
func (e *Engine) SetPrefixes(prefixes []string) { e.locals.setPrefixes(prefixes) }

// Update processes the new state of some keys: their values, or that they are gone. Keys irrelevant to policy only
// count for Invalid.
func (e *Engine) Update(entries ...model.Entry) {
	e.judged = nil
	for _, entry := range entries {
		e.update(entry)
	}
}

func (e *Engine) update(entry model.Entry) {
	if entry.Key == nil {
		if key, err := model.ParseKey(entry.Path); err == nil {
			entry.Key = key
		}
	}
	entry = withoutInvalid(entry)
	if problem := problemOf(entry); entry.Exists() && problem != nil {
		e.invalid[entry.Path] = problem
	} else {
		delete(e.invalid, entry.Path)
	}
	switch key := entry.Key.(type) {
	case model.WorkloadEndpointKey:
		e.updateWorkload(key, entry)
	case model.HostEndpointKey:
		e.updateHost(key, entry)
	case model.ProfileRulesKey, model.ProfileTagsKey, model.ProfileLabelsKey, model.PolicyKey, model.TierKey, model.PoolKey, model.NetworkSetKey, model.ServiceKey:
		e.updateNamed(e.spellings.one(entry))
	}
}

// updateNamed processes the entry that counts for a key, among those with different spellings of it.
func (e *Engine) updateNamed(entry model.Entry) {
	switch key := entry.Key.(type) {
	case model.ProfileRulesKey:
		e.updateProfile(key.Profile, entry)
	case model.ProfileTagsKey:
		e.updateProfile(key.Profile, entry)
	case model.ProfileLabelsKey:
		e.updateProfile(key.Profile, entry)
	case model.PolicyKey:
		e.policies.update(key, entry)
		e.rules.touch(RulesID{KindPolicy, key.Tier, key.Policy})
	case model.TierKey:
		for _, p := range e.policies.updateTier(key, entry) {
			e.rules.touch(p.id)
		}
	case model.PoolKey:
		e.pools.update(key, entry)
	case model.NetworkSetKey:
		e.updateNetworkSet(key, entry)
	case model.ServiceKey:
		e.updateService(key, entry)
	}
}

func (e *Engine) updateProfile(name string, entry model.Entry) {
	e.index.updateProfile(name, entry)
	e.rules.touch(profileID(name))
}

// problemOf returns the problem with an entry's value, or nil.
func problemOf(entry model.Entry) error {
	switch key := entry.Key.(type) {
	case model.PolicyKey:
		if value, ok := entry.Value.(model.Policy); ok && entry.Err == nil {
			return checkPolicy(value)
		}
	case model.TierKey:
		value, _ := entry.Value.(model.Tier)
		return checkTier(key, value, entry.Err)
	}
	return entry.Err
}

// withoutInvalid removes the value of an entry that is gone or invalid. Some invalid entries keep their previous value,
// because it says which endpoints are affected.
func withoutInvalid(entry model.Entry) model.Entry {
	keeps := false
	switch entry.Key.(type) {
	case model.PoolKey, model.HostEndpointKey, model.PolicyKey, model.ProfileTagsKey, model.ProfileLabelsKey, model.NetworkSetKey:
		keeps = entry.Value != nil
	}
	if !entry.Exists() || entry.Err != nil && !keeps {
		entry.Value = nil
	}
	return entry
}

func (e *Engine) updateWorkload(key model.WorkloadEndpointKey, entry model.Entry) {
	w, ok := entry.Value.(model.WorkloadEndpoint)
	if !ok {
		e.index.removeEndpoint(entry.Path)
	} else {
		e.index.putEndpoint(entry.Path, details{labels: w.Labels, profiles: w.ProfileIDs, addrs: w.Addrs(), ports: w.Ports})
	}
	if key.Host != e.host {
		return
	}
	l := &local{path: entry.Path, created: entry.Created}
	if ok {
		own := w
		l.workload = &own
	} else if entry.Exists() {
		l.invalid = entry.Err
	}
	e.locals.update(entry, l)
}

func (e *Engine) updateHost(key model.HostEndpointKey, entry model.Entry) {
	h, on := hostOf(entry)
	ok := on && entry.Err == nil
	if !ok {
		e.index.removeEndpoint(entry.Path)
	} else {
		addrs := append(slices.Clone(h.ExpectedIPv4Addrs), h.ExpectedIPv6Addrs...)
		e.index.putEndpoint(entry.Path, details{labels: h.Labels, profiles: h.ProfileIDs, addrs: addrs})
	}
	if key.Host != e.host {
		return
	}
	l := &local{path: entry.Path, id: key.Endpoint, created: entry.Created, isHost: true}
	if on {
		l.host = &h
	}
	if entry.Exists() {
		l.invalid = entry.Err
	}
	e.locals.update(entry, l)
}

// updateNetworkSet processes a network set. To the selectors of rules it is an endpoint of another host that has networks.
func (e *Engine) updateNetworkSet(key model.NetworkSetKey, entry model.Entry) {
	s, ok := entry.Value.(model.NetworkSet)
	if !ok {
		e.index.removeEndpoint(key.Path())
		return
	}
	labels, profiles := key.Matched(s.Labels)
	e.index.putEndpoint(key.Path(), details{labels: labels, profiles: profiles, nets: s.Nets})
}

// updateService processes a service. Each of its groups is an endpoint of another host that has ports, and is picked by nothing but their
// name.
func (e *Engine) updateService(key model.ServiceKey, entry model.Entry) {
	s, _ := entry.Value.(model.Service)
	group := func(i int) string { return key.Path() + "#" + strconv.Itoa(i) }
	for i, g := range s.Endpoints {
		d := details{ports: g.Ports, service: true}
		for _, n := range g.Nets {
			d.addrs = append(d.addrs, n.Addr())
		}
		e.index.putEndpoint(group(i), d)
	}
	for i := len(s.Endpoints); e.index.endpoints[group(i)] != nil; i++ {
		e.index.removeEndpoint(group(i))
	}
}

// hostOf returns a host endpoint. For an invalid one it returns only what identifies the interface: from the value if
// possible, else from the error. ok is false if neither is known.
func hostOf(entry model.Entry) (h model.HostEndpoint, ok bool) {
	var invalid *model.InvalidHostEndpointError
	if h, ok = entry.Value.(model.HostEndpoint); !ok && errors.As(entry.Err, &invalid) {
		return invalid.On, entry.Exists()
	}
	return h, ok
}

// Invalid returns problems by path: objects that don't parse or can't take effect, duplicate spellings of a key, host
// endpoints of this host without an interface, and missing profiles that endpoints of this host name. The caller must
// not modify the map. Repeated calls between Updates cost nothing.
func (e *Engine) Invalid() map[string]error {
	if e.locals.placeHosts() {
		e.judged = nil
	}
	if e.judged != nil {
		return e.judged
	}
	e.judged = e.spellings.passedOver()
	maps.Copy(e.judged, e.locals.unplaced)
	for path, err := range e.invalid {
		e.judged[path] = e.locals.untilCorrected(path, err)
	}
	maps.Copy(e.judged, e.index.missingProfiles())
	return e.judged
}

// Flush returns what changed for this host since the last Flush.
func (e *Engine) Flush() Changes {
	if e.locals.placeHosts() {
		e.judged = nil
	}
	c := Changes{Endpoints: e.locals.flush(e.rules)}
	c.Rules = e.rules.flush(e.compile)
	c.Sets = e.sets.flush()
	c.Pools = e.pools.flush()
	return c
}
