// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Survey is an extract of etcd for a pass.
type Survey struct {
	pools    []*pool
	holdings map[string]*holding // by handle
	byAddr   map[netip.Addr]*holding
	hosts    map[string]*host
	blocks   map[netip.Prefix]model.Block // empty ones with an affinity, without their addresses
	unnamed  map[netip.Addr]bool          // allocated without a handle
}

// pool is one pool and the number of its allocated addresses.
type pool struct {
	cidr      netip.Prefix
	allocated int
	reserved  model.Reserved
	both      int // allocated and reserved
}

// holding has the addresses of one handle.
type holding struct {
	handle     string
	attributes map[string]string
	mixed      bool // attributes differ from address to address
	addrs      []netip.Addr
	endpoint   model.WorkloadEndpointKey // an endpoint with one of the addresses
	uid        string                    // of the pod that the endpoint was written for
	up         bool                      // a live agent reports the endpoint as up
	unreported bool                      // the endpoint's agent lives but reports none of its endpoints
}

// host is everything stored under a host's name.
type host struct {
	name       string
	metadata   model.Entry
	node       model.KubernetesNode
	live       bool // its agent's status exists
	affinities []netip.Prefix
	bare       []model.WorkloadEndpointKey // pods' endpoints without an address of ours
	// tunnels are the settings with tunnels' addresses without a handle, as Calico assigned them before version 3.6.
	tunnels map[model.HostConfigKey]netip.Addr
}

// FirstRead returns the ranges with which a survey begins.
func FirstRead() []model.Range {
	return []model.Range{
		model.PrefixRange(model.PoolPrefix()), model.PrefixRange(model.ReservationPrefix()), model.PrefixRange(model.BlockPrefix(false)), model.PrefixRange(model.BlockPrefix(true)),
		{Prefix: model.AffinityPrefix(""), KeysOnly: true}, {Prefix: model.HostPrefix(""), KeysOnly: true},
	}
}

// ReadHost returns the ranges to read for each host of Survey.Hosts.
func ReadHost(name string) []model.Range {
	return []model.Range{model.PrefixRange(model.HostPrefix(name)), model.PrefixRange(model.StatusPrefix(name))}
}

// NewSurvey makes a survey from the entries read by FirstRead.
func NewSurvey(entries []model.Entry) *Survey {
	s := &Survey{holdings: map[string]*holding{}, byAddr: map[netip.Addr]*holding{}, hosts: map[string]*host{}, blocks: map[netip.Prefix]model.Block{}, unnamed: map[netip.Addr]bool{}}
	reserved := model.ReservedOf(entries)
	for _, e := range entries {
		if k, ok := e.Key.(model.PoolKey); ok {
			s.pools = append(s.pools, &pool{cidr: k.CIDR, reserved: reserved.Within(k.CIDR)})
		}
	}
	slices.SortFunc(s.pools, func(a, b *pool) int { return cmp.Compare(b.cidr.Bits(), a.cidr.Bits()) })
	for _, e := range entries {
		switch k := e.Key.(type) {
		case model.BlockKey:
			if b, ok := e.Value.(model.Block); ok {
				s.addBlock(b)
			}
		case model.AffinityKey:
			h := s.host(k.Host)
			h.affinities = append(h.affinities, k.CIDR)
		case model.HostMetadataKey:
			s.host(k.Host)
		case model.WorkloadEndpointKey:
			s.host(k.Host)
		}
	}
	return s
}

func (s *Survey) host(name string) *host {
	if s.hosts[name] == nil {
		s.hosts[name] = &host{name: name, tunnels: map[model.HostConfigKey]netip.Addr{}}
	}
	return s.hosts[name]
}

// addBlock records the owners of the block's addresses.
func (s *Survey) addBlock(b model.Block) {
	if len(b.Unallocated) == len(b.Allocations) && b.Affinity != "" {
		s.blocks[b.CIDR] = model.Block{CIDR: b.CIDR, Affinity: b.Affinity, EmptySince: b.EmptySince}
	}
	of := s.poolOf(b.CIDR)
	a := b.CIDR.Addr()
	for _, n := range b.Allocations {
		if n != model.Free {
			s.addAddr(a, b.Attributes[n])
			if of != nil {
				of.allocated++
				if of.reserved.Contains(a) {
					of.both++
				}
			}
		}
		a = a.Next()
	}
}

func (s *Survey) addAddr(a netip.Addr, of model.Attributes) {
	if of.HandleID == "" {
		s.unnamed[a] = true
		return
	}
	h := s.holdings[of.HandleID]
	if h == nil {
		h = &holding{handle: of.HandleID, attributes: of.Secondary}
		s.holdings[of.HandleID] = h
	}
	h.mixed = h.mixed || !maps.Equal(h.attributes, of.Secondary)
	h.addrs = append(h.addrs, a)
	s.byAddr[a] = h
}

// poolOf returns the smallest pool that contains the prefix, or nil.
func (s *Survey) poolOf(c netip.Prefix) *pool {
	for _, p := range s.pools { // sorted, smallest first
		if p.cidr.Bits() <= c.Bits() && p.cidr.Contains(c.Addr()) {
			return p
		}
	}
	return nil
}

// Hosts returns the names for which to read ReadHost, in order.
func (s *Survey) Hosts() []string { return slices.Sorted(maps.Keys(s.hosts)) }

// AddHost adds the entries read by ReadHost for a host.
func (s *Survey) AddHost(name string, entries []model.Entry) {
	h := s.host(name)
	reported, last := map[model.WorkloadStatusKey]bool{}, false
	for _, e := range entries {
		switch k := e.Key.(type) {
		case model.HostMetadataKey:
			h.metadata = e
			m, _ := e.Value.(model.HostMetadata)
			h.node = m.Kubernetes
		case model.StatusKey:
			h.live = true
		case model.LastStatusKey:
			last = true
		case model.HostConfigKey:
			if a, ok := tunnelAddr(e); ok && s.unnamed[a] {
				h.tunnels[k] = a
			}
		case model.WorkloadStatusKey:
			reported[k] = e.Value == model.EndpointUp
		}
	}
	for _, e := range entries {
		if k, ok := e.Key.(model.WorkloadEndpointKey); ok && k.Orchestrator == orchestrator {
			s.addEndpoint(h, k, e, reported[model.WorkloadStatusKey(k)] && model.AgentLives(h.live, last), h.live && len(reported) == 0)
		}
	}
}

// tunnelAddr returns the address of a host's tunnel in a setting.
func tunnelAddr(e model.Entry) (netip.Addr, bool) {
	k, _ := e.Key.(model.HostConfigKey)
	text, _ := e.Value.(model.Text)
	a, err := netip.ParseAddr(string(text))
	return a, err == nil && strings.HasSuffix(k.Name, "TunnelAddr")
}

func (s *Survey) addEndpoint(h *host, k model.WorkloadEndpointKey, e model.Entry, up, unreported bool) {
	spec, _ := e.Value.(model.WorkloadEndpoint)
	bare := true
	for _, a := range spec.Addrs() {
		holds := s.byAddr[a]
		if holds == nil || holds.attributes["node"] != k.Host || holds.attributes["workload"] != k.Workload {
			continue
		}
		bare = false
		holds.endpoint, holds.uid, holds.up, holds.unreported = k, spec.PodUID, holds.up || up, holds.unreported || unreported
	}
	if bare {
		h.bare = append(h.bare, k)
	}
}

// never says why a handle can't be a pod's, "" if it is one.
func (h *holding) never() string {
	switch {
	case h.attributes["orchestrator"] != orchestrator:
		return "it is no pod's"
	case h.attributes["namespace"] == "" || h.attributes["workload"] == "" || h.attributes["node"] == "":
		return "it doesn't say which pod's, or which node's"
	case h.mixed:
		return "its addresses don't agree on whose they are"
	}
	return ""
}

func (h *holding) node() string { return h.attributes["node"] }

func (h *holding) pod() Pod {
	namespace, name := h.attributes["namespace"], h.attributes["pod"]
	if name == "" {
		name = strings.TrimPrefix(h.attributes["workload"], namespace+".")
	}
	return Pod{namespace, name}
}

// Usage is how many addresses of a pool are allocated, and how many are free: neither allocated nor reserved.
type Usage struct {
	Pool            netip.Prefix
	Allocated, Free float64
}

// Usage returns the usage of each pool. If pools overlap, a block counts for the smaller one.
func (s *Survey) Usage() []Usage {
	var all []Usage
	for _, p := range s.pools {
		free := size(p.cidr) - float64(p.allocated-p.both)
		for _, r := range p.reserved {
			free -= size(r)
		}
		all = append(all, Usage{p.cidr, float64(p.allocated), free})
	}
	return all
}

func size(c netip.Prefix) float64 { return math.Exp2(float64(c.Addr().BitLen() - c.Bits())) }

// Questions returns the pods and Nodes to ask the API for, without those it is known to have. For a pod, known returns
// its UIDs there unless it is finished, as far as the caller has heard; for a Node, node reports whether it exists.
// They are hints that save requests: no decision is based on them.
func (s *Survey) Questions(known func(Pod) []string, node func(name string) bool) (pods []Pod, nodes []string) {
	going := map[string]bool{}
	for _, h := range s.hosts {
		for _, name := range h.names() {
			if !node(name) {
				going[h.name], nodes = true, append(nodes, name)
			}
		}
	}
	for _, h := range s.holdings {
		if h.never() != "" {
			continue
		}
		if uids := known(h.pod()); len(uids) == 0 || h.uid != "" && !slices.Contains(uids, h.uid) {
			pods = append(pods, h.pod())
		}
	}
	for name := range going {
		for _, k := range s.hosts[name].bare {
			pods = append(pods, podOf(k))
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) })
	slices.Sort(nodes)
	return slices.Compact(pods), slices.Compact(nodes)
}

// podOf returns the pod of an endpoint. A namespace's name has no dot.
func podOf(k model.WorkloadEndpointKey) Pod {
	namespace, name, _ := strings.Cut(k.Workload, ".")
	return Pod{namespace, name}
}

// nodeNames returns the Nodes that a host may be; none if it isn't known to be one.
func nodeNames(host string, node model.KubernetesNode) []string {
	switch node.Name {
	case "":
		return nil
	case host:
		return []string{host}
	}
	return []string{node.Name, host}
}

func (h *host) names() []string { return nodeNames(h.name, h.node) }
