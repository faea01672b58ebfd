// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/ownership"
	"github.com/calico-go/calico/pkg/policy"
)

// claims are this host's workload endpoints in etcd, by path, and which of them owns each exclusive resource. They do no I/O.
type claims struct {
	host      string
	prefixes  []string // prefixes of workload interfaces' names
	loopback  bool     // virtual machines find metadata at the host's loopback
	endpoints map[string]*endpoint
	owners    *ownership.Table
	// reserved are addresses that no endpoint may have, with their owners: this host would send the owner's packets to the endpoint.
	reserved map[netip.Addr]string
	dirty    map[string]struct{} // endpoints whose verdict may have changed
}

func newClaims(host string, prefixes []string) *claims {
	s := &claims{host: host, prefixes: prefixes, endpoints: map[string]*endpoint{}, dirty: map[string]struct{}{}}
	s.owners = ownership.New(func(path string) { s.dirty[path] = struct{}{} })
	return s
}

// endpoint is one workload endpoint in etcd.
type endpoint struct {
	key               model.WorkloadEndpointKey
	path              string
	revision, created int64
	spec              model.WorkloadEndpoint
	invalid           error             // why spec does not parse
	want              hostpath.Endpoint // what follows from spec
	refused           error             // why spec by itself is refused; invalid included
}

// update takes in one key that is new, changed or gone.
func (s *claims) update(entry model.Entry) {
	key, ok := entry.Key.(model.WorkloadEndpointKey)
	if !ok || key.Host != s.host {
		return
	}
	s.dirty[entry.Path] = struct{}{}
	if !entry.Exists() {
		delete(s.endpoints, entry.Path)
		s.owners.Put(entry.Path, 0, nil)
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

// claim judges the endpoint by itself and enters its claims.
func (s *claims) claim(ep *endpoint) {
	ep.want, ep.refused = hostpath.Endpoint{}, ep.invalid
	if ep.invalid == nil {
		ep.want, ep.refused = endpointOf(ep.spec, s.prefixes)
		ep.want.Loopback = s.loopback && !strings.HasPrefix(ep.want.Interface, policy.VethPrefix)
	}
	claims := &ep.spec
	if ep.refused != nil {
		claims = nil
	}
	s.owners.Put(ep.path, ep.created, claims)
}

// verdict returns what the kernel should hold for an endpoint, or why it gets no access: see package ownership. An endpoint that lost only
// an ext_ip goes without that NAT.
func (s *claims) verdict(ep *endpoint) (hostpath.Endpoint, error) {
	if ep.refused != nil {
		return hostpath.Endpoint{}, ep.refused
	}
	for _, c := range s.owners.Claims(ep.path) {
		if !s.owners.Needs(ep.path, c) {
			continue // an ext_ip
		}
		if whose := s.reserved[c.Addr]; whose != "" {
			return hostpath.Endpoint{}, fmt.Errorf("%s is that of %s: delete the endpoint, and the pool that overlaps the hosts' addresses", c, whose)
		}
		if older := s.owners.Holder(ep.path, c); older != "" {
			return hostpath.Endpoint{}, fmt.Errorf("%s belongs to an older endpoint, %s: delete the one that is wrong", c, older)
		}
	}
	want := ep.want
	if s.untranslated(ep) != nil {
		want.Addrs = slices.DeleteFunc(slices.Clone(want.Addrs), func(a netip.Addr) bool {
			return s.reserved[a] != "" || s.owners.Holder(ep.path, ownership.Claim{Addr: a}) != ""
		})
	}
	return want, nil
}

// setPrefixes changes which interfaces are workloads' and judges every endpoint again.
func (s *claims) setPrefixes(prefixes []string) {
	s.prefixes = prefixes
	for path, ep := range s.endpoints {
		s.dirty[path] = struct{}{}
		s.claim(ep)
	}
}

// misfit returns an error if the host has endpoints but the prefixes cover none of their interfaces: then the setting is wrong.
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

// outside returns the interface of an endpoint if no prefix covers it; "" if one does, or if there is no readable endpoint.
func (s *claims) outside(path string) string {
	ep := s.endpoints[path]
	if ep == nil || ep.invalid != nil || model.IsWorkloadInterface(ep.spec.Name, s.prefixes) {
		return ""
	}
	return ep.spec.Name
}
