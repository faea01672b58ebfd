// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// state is what etcd holds, and what follows from it for one host but for policy.
// It is changed by fold, setPrefixes, setHosts, setOwn and setNeeded alone, which do no I/O.
//
// Everything is kept by path rather than by key: should one key be stored
// twice, spelled in two ways, these are two endpoints that claim the same.
type state struct {
	host string
	// prefixes are what the names of workload interfaces begin with.
	prefixes []string
	synced   bool // a whole snapshot has been folded
	ready    bool // ReadyKey is there and true
	// revision is the latest that has been folded: what was written up to it
	// below the watched prefixes is known.
	revision  int64
	deaf      bool // etcd is away: it may be another when it is back, restored from a backup
	objects   map[string]object
	endpoints map[string]*endpoint
	claims    map[claim][]*endpoint
	settings  params.Stored
	// hosts are the names of the other hosts, by address: no endpoint may have that, as
	// this host would send to the endpoint what is for the host.
	hosts map[netip.Addr]string
	// own are this host's links, by address: no endpoint may have that either.
	own map[netip.Addr]string
	// needed are etcd and the host's routers, by address: nor that. The host would send to
	// the endpoint what is for them, and what puts it right in etcd would not arrive.
	needed map[netip.Addr]string
}

// object is what is kept of every key.
type object struct {
	key     model.Key
	invalid error
}

// endpoint is one workload endpoint as etcd holds it.
type endpoint struct {
	key               model.WorkloadEndpointKey
	path              string
	revision, created int64
	spec              model.WorkloadEndpoint
	invalid           error             // why spec does not parse
	want              hostpath.Endpoint // what follows from spec
	refused           error             // why spec cannot be, by itself; invalid included
}

// claim is what only one endpoint of a host may have: an interface or an address.
type claim struct {
	iface string
	addr  netip.Addr
}

func (c claim) String() string {
	if c.addr.IsValid() {
		return "address " + c.addr.String()
	}
	return "interface " + c.iface
}

// effect is what a change of the state touched.
type effect struct {
	endpoints map[string]struct{} // whose verdict may differ now
	objects   map[string]struct{} // what is new, changed or gone, but for settings
	settings  bool
	entries   []model.Entry // the same in full
}

func newEffect() effect {
	return effect{endpoints: map[string]struct{}{}, objects: map[string]struct{}{}}
}

func newState(host string, prefixes []string) *state {
	return &state{
		host:      host,
		prefixes:  prefixes,
		objects:   map[string]object{},
		endpoints: map[string]*endpoint{},
		claims:    map[claim][]*endpoint{},
		settings:  params.Stored{Global: map[string]string{}, Local: map[string]string{}},
	}
}

// watched are the prefixes that fold, policy and the router understand. Endpoints
// of other hosts are members of the sets that rules refer to. What address management's
// settings say is for plugins, which end before anybody asks them what is wrong.
func watched() []string {
	return append(router.OnlyRouterPrefixes(), model.ReadyKey{}.Path(), model.ConfigPrefix(), model.HostPrefix(""), model.PolicyPrefix(), model.PoolPrefix(),
		model.IPAMConfigKey{}.Path())
}

// concerns says whether an object is this agent's to report on: not another host's.
func (s *state) concerns(key model.Key) bool {
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		return key.Host == s.host
	case model.HostEndpointKey:
		return key.Host == s.host
	case model.HostConfigKey:
		return key.Host == s.host
	case model.HostMetadataKey:
		return key.Host == s.host
	}
	return true // a host's bird_ip is where all others send
}

// fold takes in one update of the watch.
func (s *state) fold(u model.Update) effect {
	e := newEffect()
	if u.Resync {
		there := make(map[string]struct{}, len(u.Entries))
		for _, entry := range u.Entries {
			there[entry.Path] = struct{}{}
		}
		for path, o := range s.objects {
			if _, ok := there[path]; !ok {
				gone := model.Entry{Path: path, Key: o.key}
				s.take(gone, &e)
				e.entries = append(e.entries, gone)
			}
		}
		s.synced = true
	}
	// A snapshot is taken in whole, whatever the revisions: that of an etcd
	// which was restored from a backup may have other content at the same ones.
	for _, entry := range u.Entries {
		s.take(entry, &e)
	}
	e.entries = append(e.entries, u.Entries...)
	s.revision = u.Revision
	return e
}

// take folds one key that is new, changed or gone.
func (s *state) take(entry model.Entry, e *effect) {
	if entry.Exists() {
		s.objects[entry.Path] = object{key: entry.Key, invalid: entry.Err}
	} else {
		delete(s.objects, entry.Path)
	}
	if !s.concerns(entry.Key) {
		return
	}
	if !params.IsSetting(entry.Key) { // that is reported when it is taken into use
		e.objects[entry.Path] = struct{}{}
	}
	switch key := entry.Key.(type) {
	case model.ReadyKey:
		ready, ok := entry.Value.(model.Ready)
		s.ready = ok && bool(ready)
	case model.GlobalConfigKey:
		e.settings = true
		params.Take(s.settings.Global, key.Name, entry)
	case model.HostConfigKey:
		e.settings = true
		params.Take(s.settings.Local, key.Name, entry)
	case model.WorkloadEndpointKey:
		s.takeEndpoint(key, entry, e)
	}
}

func (s *state) takeEndpoint(key model.WorkloadEndpointKey, entry model.Entry, e *effect) {
	e.endpoints[entry.Path] = struct{}{}
	if old := s.endpoints[entry.Path]; old != nil {
		s.unclaim(old, e)
		delete(s.endpoints, entry.Path)
	}
	if !entry.Exists() {
		return
	}
	ep := &endpoint{
		key: key, path: entry.Path, revision: entry.Revision, created: entry.Created,
		invalid: entry.Err,
	}
	if spec, ok := entry.Value.(model.WorkloadEndpoint); ok {
		ep.spec = spec
	} else if ep.invalid == nil {
		ep.invalid = fmt.Errorf("the value is a %T, not a workload endpoint", entry.Value)
	}
	s.endpoints[ep.path] = ep
	s.claim(ep, e)
}

// claim judges the endpoint by itself and enters what it claims.
func (s *state) claim(ep *endpoint, e *effect) {
	ep.want, ep.refused = hostpath.Endpoint{}, ep.invalid
	if ep.invalid == nil {
		ep.want, ep.refused = endpointOf(ep.spec, s.prefixes)
	}
	for _, c := range claimsOf(ep) {
		for _, other := range s.claims[c] {
			e.endpoints[other.path] = struct{}{}
		}
		s.claims[c] = append(s.claims[c], ep)
	}
}

// unclaim gives back what the endpoint claimed.
func (s *state) unclaim(ep *endpoint, e *effect) {
	for _, c := range claimsOf(ep) {
		rest := slices.DeleteFunc(s.claims[c], func(o *endpoint) bool { return o == ep })
		for _, other := range rest {
			e.endpoints[other.path] = struct{}{}
		}
		s.claims[c] = rest
		if len(rest) == 0 {
			delete(s.claims, c)
		}
	}
}

// claimsOf lists what an endpoint claims: nothing where it cannot be.
func claimsOf(ep *endpoint) []claim {
	if ep.refused != nil {
		return nil
	}
	all := []claim{{iface: ep.want.Interface}}
	for _, a := range ep.want.Addrs {
		all = append(all, claim{addr: a})
	}
	return all
}

// verdict says what the kernel shall hold for an endpoint, or why it keeps no
// access. Of two that claim one thing, the one that was made first has it: a
// newcomer takes nothing away but another's ext_ip that is its own address. An
// endpoint that lost one claim still holds its others, so that verdicts depend on
// what is in etcd and not on the order in which it was heard of. One that has lost
// an ext_ip alone goes without that NAT.
func (s *state) verdict(ep *endpoint) (hostpath.Endpoint, error) {
	if ep.refused != nil {
		return hostpath.Endpoint{}, ep.refused
	}
	for _, c := range claimsOf(ep) {
		if !ep.is(c) {
			continue // an ext_ip
		}
		if whose := s.hostOf(c.addr); whose != "" {
			return hostpath.Endpoint{}, fmt.Errorf("%s is that of %s: delete the endpoint, and the pool that overlaps the hosts' addresses", c, whose)
		}
		if older := s.holder(ep, c); older != nil {
			return hostpath.Endpoint{}, fmt.Errorf("%s belongs to an older endpoint, %s: delete the one that is wrong", c, older.path)
		}
	}
	want := ep.want
	if s.untranslated(ep) != nil {
		want.Addrs = slices.DeleteFunc(slices.Clone(want.Addrs), func(a netip.Addr) bool {
			return s.hostOf(a) != "" || s.holder(ep, claim{addr: a}) != nil
		})
	}
	return want, nil
}

// holder is the other endpoint that has what ep claims too, nil = ep has it.
func (s *state) holder(ep *endpoint, c claim) *endpoint {
	all := s.claims[c]
	if len(all) == 0 {
		return nil // ep can't be, and claims nothing
	}
	if first := slices.MinFunc(all, c.compare); first != ep {
		return first
	}
	return nil
}

// compare orders endpoints that claim one thing: first those that can't be without,
// then by age, and those of one transaction by name.
func (c claim) compare(a, b *endpoint) int {
	if is := a.is(c); is != b.is(c) {
		if is {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.path, b.path))
}

// is says that the endpoint can't be without what it claims: its interface or an
// address of its own, not an ext_ip.
func (ep *endpoint) is(c claim) bool {
	return !c.addr.IsValid() || slices.Contains(ep.spec.Addrs(), c.addr)
}

// setPrefixes changes which interfaces are workloads' and judges every endpoint anew.
func (s *state) setPrefixes(prefixes []string) effect {
	e := newEffect()
	s.prefixes = prefixes
	clear(s.claims)
	for path, ep := range s.endpoints {
		e.endpoints[path] = struct{}{}
		s.claim(ep, &e)
	}
	return e
}

// misfit says that the prefixes cover no interface of the host's endpoints, of which
// there are some: it is the setting then that is wrong. nil = they do.
func (s *state) misfit() error {
	var first *endpoint
	for _, ep := range s.endpoints {
		switch {
		case ep.invalid != nil:
		case params.BeginningOf(ep.spec.Name, s.prefixes) != "":
			return nil
		case first == nil || ep.path < first.path:
			first = ep
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("interface prefix %s: no endpoint of this host has an interface that begins so, and all are without access; the first, %s, has %s: "+
		"want what the names of workloads' interfaces begin with", strings.Join(s.prefixes, ","), first.path, first.spec.Name)
}

// waitsFor says what must be known before anything is done; "" = nothing.
func (s *state) waitsFor() string { return health.WaitsFor(s.synced, s.ready) }
