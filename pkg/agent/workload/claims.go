// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// claims are this host's workload endpoints as etcd holds them, and which of them has
// what only one may have. They do no I/O.
//
// Everything is kept by path rather than by key: should one key be stored
// twice, in two spellings, these are two endpoints that claim the same.
type claims struct {
	host      string
	prefixes  []string // what the names of workload interfaces begin with
	loopback  bool     // virtual machines find metadata at the host's loopback
	endpoints map[string]*endpoint
	by        map[claim][]*endpoint
	// reserved are addresses that no endpoint may have, with whose they are: this host
	// would send to the endpoint what is for the other.
	reserved map[netip.Addr]string
	dirty    map[string]struct{} // endpoints whose verdict may differ now
}

func newClaims(host string, prefixes []string) *claims {
	return &claims{host: host, prefixes: prefixes, endpoints: map[string]*endpoint{}, by: map[claim][]*endpoint{}, dirty: map[string]struct{}{}}
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

// update takes in one key that is new, changed or gone.
func (s *claims) update(entry model.Entry) {
	key, ok := entry.Key.(model.WorkloadEndpointKey)
	if !ok || key.Host != s.host {
		return
	}
	s.dirty[entry.Path] = struct{}{}
	if old := s.endpoints[entry.Path]; old != nil {
		s.unclaim(old)
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
	s.claim(ep)
}

// claim judges the endpoint by itself and enters what it claims.
func (s *claims) claim(ep *endpoint) {
	ep.want, ep.refused = hostpath.Endpoint{}, ep.invalid
	if ep.invalid == nil {
		ep.want, ep.refused = endpointOf(ep.spec, s.prefixes)
		ep.want.Loopback = s.loopback && !strings.HasPrefix(ep.want.Interface, policy.VethPrefix)
	}
	for _, c := range claimsOf(ep) {
		for _, other := range s.by[c] {
			s.dirty[other.path] = struct{}{}
		}
		s.by[c] = append(s.by[c], ep)
	}
}

// unclaim gives back what the endpoint claimed.
func (s *claims) unclaim(ep *endpoint) {
	for _, c := range claimsOf(ep) {
		rest := slices.DeleteFunc(s.by[c], func(o *endpoint) bool { return o == ep })
		for _, other := range rest {
			s.dirty[other.path] = struct{}{}
		}
		s.by[c] = rest
		if len(rest) == 0 {
			delete(s.by, c)
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

// verdict says what the kernel is to hold for an endpoint, or why it gets no
// access. Of two that claim one thing, the one that was made first has it: a
// newcomer takes nothing away but another's ext_ip that is its own address. An
// endpoint that lost one claim still holds its others, so that verdicts depend on
// what is in etcd and not on the order in which it was heard of. One that has lost
// an ext_ip alone goes without that NAT.
func (s *claims) verdict(ep *endpoint) (hostpath.Endpoint, error) {
	if ep.refused != nil {
		return hostpath.Endpoint{}, ep.refused
	}
	for _, c := range claimsOf(ep) {
		if !ep.is(c) {
			continue // an ext_ip
		}
		if whose := s.reserved[c.addr]; whose != "" {
			return hostpath.Endpoint{}, fmt.Errorf("%s is that of %s: delete the endpoint, and the pool that overlaps the hosts' addresses", c, whose)
		}
		if older := s.holder(ep, c); older != nil {
			return hostpath.Endpoint{}, fmt.Errorf("%s belongs to an older endpoint, %s: delete the one that is wrong", c, older.path)
		}
	}
	want := ep.want
	if s.untranslated(ep) != nil {
		want.Addrs = slices.DeleteFunc(slices.Clone(want.Addrs), func(a netip.Addr) bool {
			return s.reserved[a] != "" || s.holder(ep, claim{addr: a}) != nil
		})
	}
	return want, nil
}

// holder is the other endpoint that has what ep claims too, nil = ep has it.
func (s *claims) holder(ep *endpoint, c claim) *endpoint {
	all := s.by[c]
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
func (s *claims) setPrefixes(prefixes []string) {
	s.prefixes = prefixes
	clear(s.by)
	for path, ep := range s.endpoints {
		s.dirty[path] = struct{}{}
		s.claim(ep)
	}
}

// misfit says that the prefixes cover no interface of the host's endpoints, of which
// there are some: it is the setting then that is wrong. nil = they do.
func (s *claims) misfit() error {
	var first *endpoint
	for _, ep := range s.endpoints {
		switch {
		case ep.invalid != nil:
		case model.IsWorkloadInterface(ep.spec.Name, s.prefixes):
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

// outside is the interface of an endpoint that no prefix covers; "" = one does, or there is
// no endpoint that can be read.
func (s *claims) outside(path string) string {
	ep := s.endpoints[path]
	if ep == nil || ep.invalid != nil || model.IsWorkloadInterface(ep.spec.Name, s.prefixes) {
		return ""
	}
	return ep.spec.Name
}
