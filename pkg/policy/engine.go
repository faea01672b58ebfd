// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/ownership"
)

// Engine turns what etcd holds into what the firewall of one host is to be. It
// is told of every change and works out only what that change touches. The
// result depends on what etcd holds and not on the order in which it was heard
// of. It keeps the labels and rules of what it is told, which must not change
// afterwards. An Engine has one owner: it is not safe for concurrent use.
type Engine struct {
	host      string
	invalid   map[string]error // entries, by path
	judged    map[string]error // what Invalid said; nil = to be worked out
	spellings spellings
	index     *index
	policies  *policies
	locals    *locals
	rules     *rulebook
	sets      *sets
	pools     *pools
}

// NewEngine makes the engine of a host that knows of nothing yet.
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

// SetInterfaces replaces the host's own interfaces, those that are no workload's.
func (e *Engine) SetInterfaces(interfaces []Interface) { e.locals.setInterfaces(interfaces) }

// SetPrefixes says what the names of workload interfaces begin with. A workload
// endpoint of another name is Dropped, a host endpoint of such a name has no
// interface. None: a workload's interface may have any name.
func (e *Engine) SetPrefixes(prefixes []string) { e.locals.setPrefixes(prefixes) }

// Update takes in what became of some keys: what they hold now, or that they
// are gone. Keys that have no bearing on policy only count for Invalid.
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
	case model.ProfileRulesKey, model.ProfileTagsKey, model.ProfileLabelsKey, model.PolicyKey, model.TierKey, model.PoolKey:
		e.updateNamed(e.spellings.one(entry))
	}
}

// updateNamed takes in what there is one of by key, however that is spelled.
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
	}
}

func (e *Engine) updateProfile(name string, entry model.Entry) {
	e.index.updateProfile(name, entry)
	e.rules.touch(profileID(name))
}

// problemOf says what is wrong with what a key holds.
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

// withoutInvalid takes the value from an entry that is gone, or invalid: of invalid ones those keep
// one, that from before, which say whom policy is about.
func withoutInvalid(entry model.Entry) model.Entry {
	keeps := false
	switch entry.Key.(type) {
	case model.PoolKey, model.HostEndpointKey, model.PolicyKey, model.ProfileTagsKey, model.ProfileLabelsKey:
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
		e.index.putEndpoint(entry.Path, details{w.Labels, w.ProfileIDs, w.Addrs(), w.Ports})
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
		e.index.putEndpoint(entry.Path, details{h.Labels, h.ProfileIDs, addrs, nil})
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

// hostOf is a host endpoint; of an invalid one as much as says what it is on: what the
// value knows of that, else what the error does. ok is false where neither does.
func hostOf(entry model.Entry) (h model.HostEndpoint, ok bool) {
	var invalid *model.InvalidHostEndpointError
	if h, ok = entry.Value.(model.HostEndpoint); !ok && errors.As(entry.Err, &invalid) {
		return invalid.On, entry.Exists()
	}
	return h, ok
}

// Invalid says what is wrong, by path: objects that don't parse or can't take
// effect, what is another spelling of a key that is there, host endpoints of this host that are on no interface,
// and profiles that endpoints of this host name and that are not there.
// The caller must not change it. It costs nothing between Updates.
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
