// SPDX-License-Identifier: Apache-2.0

// Package scale makes clusters of any size, the same ones every time, to
// measure what a change costs in them.
package scale

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// Host is the one that Size.Local counts the endpoints of.
const Host = "host-0"

// Size is how much there is of everything.
type Size struct {
	Endpoints int // workload endpoints of all hosts
	Local     int // of them on Host
	Policies  int
	Profiles  int
}

// Typical is a cluster with 50 endpoints to a host, 10 to a policy and 100 to a
// profile: what a change touches is the same at every size.
func Typical(endpoints int) Size {
	return Size{Endpoints: endpoints, Local: min(50, endpoints), Policies: max(10, endpoints/10), Profiles: max(1, endpoints/100)}
}

// broad policies apply to all endpoints, whatever their application.
const broad = 10

// perApp policies are for one application.
const perApp = 5

// Cluster is what etcd holds of one.
type Cluster struct {
	Endpoints []model.Entry
	Profiles  []model.Entry // the three keys of each
	Policies  []model.Entry
	Pools     []model.Entry
	apps      int
}

// Make makes the cluster of a size.
func Make(s Size) *Cluster {
	r := rand.New(rand.NewPCG(1, uint64(s.Endpoints)))
	c := &Cluster{apps: max(1, s.Policies/perApp)}
	perHost := max(1, s.Local)
	for i := range s.Endpoints {
		c.Endpoints = append(c.Endpoints, c.endpoint(r, i, fmt.Sprintf("host-%d", i/perHost), max(1, s.Profiles)))
	}
	for i := range s.Profiles {
		c.Profiles = append(c.Profiles, profile(i)...)
	}
	for i := range s.Policies {
		c.Policies = append(c.Policies, c.policy(r, i))
	}
	pool := netip.MustParsePrefix("10.0.0.0/8")
	c.Pools = append(c.Pools, entry(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, Masquerade: true, IPAM: true, BlockSize: 26}))
	return c
}

// Entries are all of the cluster's, in the order of their paths' kinds.
func (c *Cluster) Entries() []model.Entry {
	var all []model.Entry
	all = append(all, c.Endpoints...)
	all = append(all, c.Pools...)
	all = append(all, c.Policies...)
	return append(all, c.Profiles...)
}

func entry(k model.Key, v any) model.Entry {
	return model.Entry{Path: k.Path(), Key: k, Value: v, Revision: 1, Created: 1}
}

func app(i int) string { return fmt.Sprintf("app-%d", i) }

func profileName(i int) string { return fmt.Sprintf("k8s_ns.ns-%d", i) }

// endpoint i runs application i modulo their number, so that Host has many.
func (c *Cluster) endpoint(r *rand.Rand, i int, host string, profiles int) model.Entry {
	v4 := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	v6 := netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
	w := model.WorkloadEndpoint{
		State: model.StateActive, Name: fmt.Sprintf("cali%x", i), MAC: model.MAC{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)},
		ProfileIDs: []string{profileName(i % profiles)},
		IPv4Nets:   []netip.Prefix{netip.PrefixFrom(v4, 32)}, IPv6Nets: []netip.Prefix{netip.PrefixFrom(v6, 128)},
		Labels: map[string]string{
			"app": app(i % c.apps), "env": [...]string{"prod", "prod", "staging", "dev"}[r.IntN(4)],
			"zone": fmt.Sprintf("z%d", r.IntN(8)), "pod": fmt.Sprintf("pod-%d", i),
		},
		Ports: []model.EndpointPort{{Name: fmt.Sprintf("port-%d", i%c.apps), Protocol: model.ProtocolTCP, Port: 8080}},
	}
	return entry(model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: fmt.Sprintf("ns.pod-%d", i), Endpoint: "eth0"}, w)
}

func profile(i int) []model.Entry {
	name := profileName(i)
	allow := []model.Rule{{Action: model.ActionAllow}}
	return []model.Entry{
		entry(model.ProfileLabelsKey{Profile: name}, model.Labels{"ns": fmt.Sprintf("ns-%d", i), "team": fmt.Sprintf("team-%d", i%20)}),
		entry(model.ProfileRulesKey{Profile: name}, model.Rules{Inbound: allow, Outbound: allow}),
		entry(model.ProfileTagsKey{Profile: name}, model.Tags{name}),
	}
}

// policy i is for one application, but for the first few, which are for all.
func (c *Cluster) policy(r *rand.Rand, i int) model.Entry {
	order := float64(r.IntN(1000))
	p := model.Policy{Order: &order}
	tcp := func(m model.Match) model.Rule {
		m.Protocol = model.ProtocolTCP
		return model.Rule{Action: model.ActionAllow, Match: m}
	}
	if i < broad {
		p.Selector = fmt.Sprintf(`has(app) && zone != "none-%d"`, i)
		p.Inbound = []model.Rule{tcp(model.Match{
			SrcSelector: fmt.Sprintf(`zone == "z%d"`, i%8), HasSrcSelector: true, DstPorts: []model.Port{{Min: uint16(9000 + i), Max: uint16(9000 + i)}},
		})}
		p.Types = []model.Direction{model.Inbound}
		return entry(model.PolicyKey{Tier: "default", Policy: fmt.Sprintf("broad-%d", i)}, p)
	}
	mine := i % c.apps
	p.Selector = fmt.Sprintf(`env == "prod" && app == %q`, app(mine))
	if i%7 == 0 {
		p.Selector = fmt.Sprintf(`app in {%q, "canary-%d"} && !has(quarantine)`, app(mine), i)
	}
	p.Inbound = []model.Rule{
		tcp(model.Match{SrcSelector: fmt.Sprintf("app == %q && has(ns)", app(r.IntN(c.apps))), HasSrcSelector: true, DstPorts: []model.Port{{Min: 80, Max: 80}, {Name: fmt.Sprintf("port-%d", mine)}}}),
		{Action: model.ActionDeny, Match: model.Match{SrcNets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
	}
	p.Outbound = []model.Rule{
		tcp(model.Match{DstSelector: fmt.Sprintf("app == %q", app(r.IntN(c.apps))), HasDstSelector: true}),
		{Action: model.ActionAllow, Match: model.Match{DstTag: profileName(mine)}},
	}
	return entry(model.PolicyKey{Tier: "default", Policy: fmt.Sprintf("app-%d-%d", mine, i)}, p)
}
