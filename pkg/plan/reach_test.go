// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// A fleet is several hosts in two racks with a router between, each with an
// engine, over one etcd that keeps IPAM's invariants. BGP is played: what one
// advertises its neighbours learn.
type fleet struct {
	r       *rand.Rand
	entries map[string]model.Entry
	names   []string
	engines map[string]*engine
	states  map[string]*State
	ends    map[netip.Addr]string // hosts of endpoints by address
	n       int64
}

func (f *fleet) put(k model.Key, v any) {
	f.n++
	f.entries[k.Path()] = model.Entry{Path: k.Path(), Key: k, Value: v, Revision: f.n, Created: f.n}
}

func (f *fleet) addr(i int, v6 bool) netip.Addr {
	rack := i % 2
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd18:%d::%d", rack, i+10))
	}
	return netip.MustParseAddr(fmt.Sprintf("172.18.%d.%d", rack, i+10))
}

func newFleet(seed uint64) *fleet {
	f := &fleet{
		r: rand.New(rand.NewPCG(seed, 2)), entries: map[string]model.Entry{},
		engines: map[string]*engine{}, states: map[string]*State{}, ends: map[netip.Addr]string{},
	}
	for i := range 2 + f.r.IntN(4) {
		name := fmt.Sprint("h", i)
		f.names = append(f.names, name)
		f.put(model.HostMetadataKey{Host: name}, model.HostMetadata{})
		f.put(model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}, model.Text(f.addr(i, false).String()))
		f.put(model.BGPHostKey{Host: name, Field: model.BGPHostIPv6}, model.Text(f.addr(i, true).String()))
		f.put(model.StatusKey{Host: name}, model.Status{})
	}
	for i, text := range []string{"10.1.0.0/24", "10.2.0.0/24", "fd00:1::/112", "fd00:2::/112"} {
		p := model.Pool{CIDR: netip.MustParsePrefix(text), IPAM: true}
		mode := []model.EncapMode{model.EncapNever, model.EncapAlways, model.EncapCrossSubnet}[f.r.IntN(3)]
		if i == 0 && mode != model.EncapNever {
			p.IPIP, p.IPIPMode = "tunl0", mode
		} else {
			p.VXLANMode = mode
		}
		f.put(model.PoolKey{CIDR: p.CIDR}, p)
		f.fill(p.CIDR)
	}
	for i, name := range f.names {
		e := newEngine(name, Settings{})
		e.SetLinks(f.links(i))
		f.engines[name], f.states[name] = e, &State{}
	}
	return f
}

func (f *fleet) links(i int) Links {
	l := Links{Links: []Link{{Name: "eth0", Up: true, MTU: 1500, Uplink: true}}}
	for _, v6 := range []bool{false, true} {
		bits, all, router := 24, "0.0.0.0/0", "172.18.%d.1"
		if v6 {
			bits, all, router = 64, "::/0", "fd18:%d::1"
		}
		l.Links[0].Addrs = append(l.Links[0].Addrs, netip.PrefixFrom(f.addr(i, v6), bits))
		l.Routes = append(l.Routes, HostRoute{Destination: netip.MustParsePrefix(all), Gateway: netip.MustParseAddr(fmt.Sprintf(router, i%2)), Device: "eth0"})
	}
	return l
}

// fill makes blocks and endpoints in a pool: blocks with affinity and without, own
// addresses and borrowed ones, some with the attribute and the endpoint, some
// with one alone, and endpoints that have no block.
func (f *fleet) fill(pool netip.Prefix) {
	bits := pool.Addr().BitLen()
	start := pool.Addr()
	for range 4 {
		b := model.Block{CIDR: netip.PrefixFrom(start, bits-2-f.r.IntN(2))}
		b.Affinity = append(slices.Clone(f.names), "")[f.r.IntN(len(f.names)+1)]
		a := start
		for i := range b.Size() {
			n := model.Free
			if f.r.IntN(2) == 0 {
				host := f.names[f.r.IntN(len(f.names))]
				n = len(b.Attributes)
				attributes := model.Attributes{HandleID: fmt.Sprint("x", f.n)}
				if host != b.Affinity && f.r.IntN(3) > 0 || f.r.IntN(2) == 0 {
					attributes.Secondary = map[string]string{"node": host}
				}
				b.Attributes = append(b.Attributes, attributes)
				f.endpoint(host, a)
			} else {
				b.Unallocated = append(b.Unallocated, i)
			}
			b.Allocations = append(b.Allocations, n)
			a = a.Next()
		}
		f.put(model.BlockKey{CIDR: b.CIDR}, b)
		start = last(netip.PrefixFrom(b.CIDR.Addr(), bits-3).Masked()).Next()
	}
	f.endpoint(f.names[0], last(pool))
}

func (f *fleet) endpoint(host string, a netip.Addr) {
	w := model.WorkloadEndpoint{State: model.StateActive}
	if a.Is4() {
		w.IPv4Nets = []netip.Prefix{single(a)}
	} else {
		w.IPv6Nets = []netip.Prefix{single(a)}
	}
	f.put(model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: "w" + a.String(), Endpoint: "eth0"}, w)
	f.ends[a] = host
}

// converge tells every engine what changed and plays BGP.
func (f *fleet) converge() {
	for _, name := range f.names {
		for _, entry := range f.entries {
			f.engines[name].Update(entry)
		}
		f.states[name].Apply(f.engines[name].compute())
	}
	for _, from := range f.names {
		for p, ad := range f.states[from].Advertisements {
			for _, to := range f.names {
				n, ok := f.states[to].Neighbours[ad.NextHop]
				if to != from && ok && !(ad.NoMesh && n.Kind == FromMesh) {
					f.engines[to].Learn(Learned{p, []Path{{NextHop: ad.NextHop, Peer: ad.NextHop}}})
				}
			}
		}
	}
	for _, name := range f.names {
		f.states[name].Apply(f.engines[name].compute())
	}
}

// walk follows a packet from a host and gives the host where it ends.
func (f *fleet) walk(t *testing.T, from string, a netip.Addr) string {
	at := from
	for range 4 {
		if f.ends[a] == at {
			return at
		}
		r, ok := longestRoute(f.states[at].Routes, a)
		if !ok {
			return "lost at " + at
		}
		if r.Kind == Blackhole {
			return "blackhole at " + at
		}
		at = f.next(at, r, a)
		if at == "" {
			return fmt.Sprintf("astray by %s", r)
		}
	}
	return "in a loop"
}

func longestRoute[V any](routes map[netip.Prefix]V, a netip.Addr) (best V, ok bool) {
	bits := -1
	for p, r := range routes {
		if p.Contains(a) && p.Bits() > bits {
			best, ok, bits = r, true, p.Bits()
		}
	}
	return best, ok
}

// next is the host at the other end of a route's only hop.
func (f *fleet) next(at string, r Route, a netip.Addr) string {
	gateway := r.Hops[0].Gateway
	for id, remote := range f.states[at].Remotes {
		if r.Hops[0].Device != "eth0" && remote.Gateway == gateway {
			gateway = id.Outer
		}
	}
	if name := f.states[at].Hosts[gateway]; name != "" {
		i := slices.Index(f.names, name)
		far := i%2 != slices.Index(f.names, at)%2
		if r.Hops[0].Device == "eth0" && far {
			return "" // the kernel would take no gateway that isn't on the link
		}
		return name
	}
	// The router between the racks knows what the hosts tell it.
	told := map[netip.Prefix]string{}
	for _, name := range f.names {
		for p := range f.states[name].Advertisements {
			told[p] = name
		}
	}
	name, _ := longestRoute(told, a)
	return name
}

// Every host leads every address of every endpoint to the host that has it; no two
// hosts say of a prefix that it is theirs.
func TestEveryEndpointIsReached(t *testing.T) {
	for seed := range uint64(50) {
		f := newFleet(seed)
		f.converge()
		for range 2 {
			for a, host := range f.ends {
				for _, from := range f.names {
					if end := f.walk(t, from, a); end != host {
						for _, name := range f.names {
							t.Logf("%s:\n%s", name, f.states[name])
						}
						t.Fatalf("seed %d: a packet of %s for %s, which %s has, ends: %s", seed, from, a, host, end)
					}
				}
			}
			told := map[netip.Prefix]string{}
			for _, name := range f.names {
				for p := range f.states[name].Advertisements {
					if told[p] != "" {
						t.Fatalf("seed %d: %s and %s advertise %s", seed, told[p], name, p)
					}
					told[p] = name
				}
			}
			f.migrate()
		}
	}
}

// migrate gives half the endpoints to other hosts, as a live migration does:
// allocations stay as they are, for now.
func (f *fleet) migrate() {
	for a, host := range f.ends {
		if f.r.IntN(2) == 0 {
			continue
		}
		key := model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: "w" + a.String(), Endpoint: "eth0"}
		delete(f.entries, key.Path())
		for _, name := range f.names {
			f.engines[name].Update(model.Entry{Path: key.Path(), Key: key})
			for p := range f.engines[name].learned.all {
				f.engines[name].Learn(Learned{Prefix: p})
			}
		}
		f.endpoint(f.names[f.r.IntN(len(f.names))], a)
	}
	f.converge()
}
