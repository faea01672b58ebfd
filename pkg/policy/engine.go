// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Engine turns what etcd holds into what the firewall of one host shall be. It
// is told of every change and works out only what that change touches. The
// result depends on what etcd holds and not on the order in which it was heard
// of. It keeps the labels and rules of what it is told, which must not change
// afterwards. An Engine has one owner: it is not safe for concurrent use.
type Engine struct {
	host       string
	prefixes   []string
	interfaces []Interface // sorted by name
	invalid    map[string]error
	judged     map[string]error // what Invalid said; nil = to be worked out
	spellings  spellings

	endpoints    map[string]*endpoint // valid ones of all hosts, by path
	owners       owners
	profiles     map[string]*profile
	missing      map[*profile]struct{} // that this host's endpoints name and that are not there
	profileIndex profileIndex
	policies     map[model.PolicyKey]*policy
	selectors    map[string]*query // of policies, by canonical text
	all, own     *matcher

	locals map[string]*local // by path
	claims map[claim][]*local
	dirty  []*local // those that the next Flush looks at
	place  bool     // host endpoints must find their interfaces
	// hosts are the host endpoints of this host, by id, the invalid ones with them of which it
	// is known what they are on; placeHosts keeps them.
	hosts []*local
	// unplaced says why host endpoints have none, by path.
	unplaced map[string]error

	rules      map[RulesID]*usedRules
	dirtyRules map[RulesID]struct{}
	sets       map[SetID]*set
	touched    map[*set]struct{}

	pools        map[netip.Prefix]bool
	poolsChanged bool
	toldPools    Pools
}

// NewEngine makes the engine of a host that knows of nothing yet.
func NewEngine(host string) *Engine {
	e := &Engine{
		host: host, invalid: map[string]error{}, unplaced: map[string]error{}, spellings: newSpellings(),
		endpoints: map[string]*endpoint{}, owners: owners{}, profiles: map[string]*profile{}, missing: map[*profile]struct{}{},
		profileIndex: profileIndex{map[string]map[string]map[*profile]struct{}{}, map[string]map[*profile]struct{}{}},
		policies:     map[model.PolicyKey]*policy{}, selectors: map[string]*query{},
		locals: map[string]*local{}, claims: map[claim][]*local{},
		rules: map[RulesID]*usedRules{}, dirtyRules: map[RulesID]struct{}{},
		sets: map[SetID]*set{}, touched: map[*set]struct{}{}, pools: map[netip.Prefix]bool{},
	}
	e.all = newMatcher(forAll, &e.profileIndex, e.membership)
	e.own = newMatcher(forOwn, &e.profileIndex, func(ep *endpoint, _ *query, _ bool) { e.touch(ep.local, itsRules) })
	return e
}

// SetInterfaces replaces the host's own interfaces, those that are no workload's.
func (e *Engine) SetInterfaces(interfaces []Interface) {
	interfaces = slices.Clone(interfaces)
	slices.SortFunc(interfaces, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	same := func(a, b Interface) bool { return a.Name == b.Name && slices.Equal(a.Addrs, b.Addrs) }
	if slices.EqualFunc(e.interfaces, interfaces, same) {
		return
	}
	e.interfaces, e.place = interfaces, true
}

// SetPrefixes says what the names of workload interfaces begin with. A workload
// endpoint of another name is Dropped, a host endpoint of such a name has no
// interface. None: a workload's interface may have any name.
func (e *Engine) SetPrefixes(prefixes []string) {
	if slices.Equal(e.prefixes, prefixes) {
		return
	}
	e.prefixes = slices.Clone(prefixes)
	e.place = true
	for _, l := range e.locals {
		e.touch(l, anything)
		if l.workload != nil {
			e.claim(l, e.claimsOf(l.workload))
		}
	}
}

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
	entry = checkType(entry)
	problem := entry.Err
	if key, ok := entry.Key.(model.PolicyKey); ok && problem == nil && entry.Exists() {
		problem = checkPolicy(key, entry.Value.(model.Policy))
	}
	if entry.Exists() && problem != nil {
		e.invalid[entry.Path] = problem
	} else {
		delete(e.invalid, entry.Path)
	}
	switch key := entry.Key.(type) {
	case model.WorkloadEndpointKey:
		e.updateWorkload(key, entry)
	case model.HostEndpointKey:
		e.updateHost(key, entry)
	case model.ProfileRulesKey, model.ProfileTagsKey, model.ProfileLabelsKey, model.PolicyKey, model.PoolKey:
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
		e.updatePolicy(key, entry)
	case model.PoolKey:
		e.updatePool(key, entry)
	}
}

// checkType makes a value that is not its key's invalid. Of invalid entries those keep a
// value, that from before, which say whom policy is about.
func checkType(entry model.Entry) model.Entry {
	keeps := false
	switch entry.Key.(type) {
	case model.PoolKey, model.HostEndpointKey, model.PolicyKey, model.ProfileTagsKey, model.ProfileLabelsKey:
		keeps = entry.Value != nil
	}
	if !entry.Exists() || entry.Err != nil && !keeps {
		entry.Value = nil
		return entry
	}
	ok := true
	switch entry.Key.(type) {
	case model.WorkloadEndpointKey:
		_, ok = entry.Value.(model.WorkloadEndpoint)
	case model.HostEndpointKey:
		_, ok = entry.Value.(model.HostEndpoint)
	case model.ProfileRulesKey:
		_, ok = entry.Value.(model.Rules)
	case model.ProfileTagsKey:
		_, ok = entry.Value.(model.Tags)
	case model.ProfileLabelsKey:
		_, ok = entry.Value.(model.Labels)
	case model.PolicyKey:
		_, ok = entry.Value.(model.Policy)
	case model.PoolKey:
		_, ok = entry.Value.(model.Pool)
	}
	if !ok {
		entry.Err = fmt.Errorf("the value is a %T, which the key does not hold", entry.Value)
		entry.Value = nil
	}
	return entry
}

func (e *Engine) updateWorkload(key model.WorkloadEndpointKey, entry model.Entry) {
	w, ok := entry.Value.(model.WorkloadEndpoint)
	if !ok {
		e.removeEndpoint(entry.Path)
	} else {
		e.putEndpoint(entry.Path, details{w.Labels, w.ProfileIDs, w.Addrs(), w.Ports})
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
	e.updateLocal(entry, l)
}

func (e *Engine) updateHost(key model.HostEndpointKey, entry model.Entry) {
	h, on := hostOf(entry)
	ok := on && entry.Err == nil
	if !ok {
		e.removeEndpoint(entry.Path)
	} else {
		addrs := append(slices.Clone(h.ExpectedIPv4Addrs), h.ExpectedIPv6Addrs...)
		e.putEndpoint(entry.Path, details{h.Labels, h.ProfileIDs, addrs, nil})
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
	e.updateLocal(entry, l)
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

// Invalid says what is wrong, by path: objects that don't parse or can't be
// heeded, what is another spelling of a key that is there, host endpoints of this host that are on no interface,
// untracked policies without effect here, and profiles that endpoints of this host name and that are not there.
// The caller must not change it. It costs nothing between Updates.
func (e *Engine) Invalid() map[string]error {
	if e.place {
		e.placeHosts()
	}
	if e.judged != nil {
		return e.judged
	}
	e.judged = e.unheeded()
	maps.Copy(e.judged, e.spellings.passedOver())
	maps.Copy(e.judged, e.unplaced)
	for path, err := range e.invalid {
		if l := e.locals[path]; l != nil && l.isHost {
			err = e.untilCorrected(l)
		}
		e.judged[path] = err
	}
	for p := range e.missing {
		first := ""
		p.endpoints[forOwn].each(func(ep *endpoint) {
			if first == "" || ep.path < first {
				first = ep.path
			}
		})
		at := model.ProfileRulesKey{Profile: p.name}.Path()
		e.judged[at] = fmt.Errorf("profile %s does not exist, so it denies: create it, or take it out of %s", p.name, first)
	}
	return e.judged
}

// untilCorrected is the error of an invalid host endpoint with what became of it.
func (e *Engine) untilCorrected(l *local) error {
	switch {
	case l.host == nil:
		return fmt.Errorf("%w; until it is corrected, it has no effect, as it isn't known what it is on", l.invalid)
	case l.iface == "":
		return fmt.Errorf("%w; %w", l.invalid, e.unplaced[l.path])
	case l.iface == "*":
		return fmt.Errorf("%w; until it is corrected, nothing is forwarded by interfaces that are no workloads'", l.invalid)
	}
	return fmt.Errorf("%w; until it is corrected, it lets pass nothing by %s but fail-safe ports", l.invalid, l.iface)
}

// Flush returns what changed for this host since the last Flush.
func (e *Engine) Flush() Changes {
	if e.place {
		e.placeHosts()
	}
	c := Changes{Endpoints: e.flushEndpoints()}
	c.Rules = e.flushRules()
	c.Sets = e.flushSets()
	c.Pools = e.flushPools()
	return c
}
