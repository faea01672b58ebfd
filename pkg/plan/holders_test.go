// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestHolders has a block go from host to host while hosts change addresses and neighbours come and
// go, which histories of all that there is seldom have together.
func TestHolders(t *testing.T) {
	n := uint64(200)
	if testing.Short() {
		n = 20
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(rand.New(rand.NewPCG(seed, 2)))
			e := newEngine("a", Settings{})
			put := func(k model.Key, v any) {
				h.revision++
				entry := model.Entry{Path: k.Path(), Key: k}
				if v != nil {
					entry.Revision, entry.Created, entry.Value = h.revision, h.revision, v
				}
				h.w.put(entry)
				e.Update(entry)
			}
			addr := func() netip.Addr {
				return netip.MustParseAddr(pick(h, "172.18.0.2", "172.18.0.3", "172.18.0.4"))
			}
			h.w.links = Links{Links: []Link{{Name: "eth0", Up: true, Uplink: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.18.0.1/24")}}}}
			e.SetLinks(h.w.links)
			pool, block := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.1.0.0/30")
			put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, IPAM: true})
			put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text("172.18.0.1"))
			for _, name := range []string{"b", "c"} {
				put(model.HostMetadataKey{Host: name}, model.HostMetadata{})
			}
			var told State
			for range 80 {
				switch h.r.IntN(6) {
				case 0:
					put(model.BGPHostKey{Host: pick(h, "b", "c"), Field: model.BGPHostIPv4}, model.Text(addr().String()))
				case 1:
					b := model.Block{CIDR: block, Affinity: pick(h, "b", "c", ""), Allocations: []int{model.Free, model.Free, model.Free, model.Free}}
					put(model.BlockKey{CIDR: block}, b)
				case 2:
					if k := (model.BGPPeerKey{IP: addr()}); h.r.IntN(2) == 0 {
						put(k, nil)
					} else {
						put(k, model.BGPPeer{IP: k.IP, AS: 64512})
					}
				case 3:
					put(model.HostMetadataKey{Host: pick(h, "b", "c")}, pick[any](h, nil, model.HostMetadata{}, model.HostMetadata{}))
				case 4:
					h.w.retained = map[netip.Prefix]Route{block: {Destination: block, Kind: Unicast, Origin: FromBGP, Hops: []Hop{{Gateway: addr(), Device: "eth0"}}}}
					e.Retain(h.w.retained[block])
				case 5:
					l := Learned{Prefix: block}
					for range h.r.IntN(4) {
						l.Paths = append(l.Paths, Path{netip.MustParseAddr(pick(h, addr().String(), "172.18.0.9")), addr(), pick(h, 0, 0, len(l.Paths))})
					}
					e.Learn(l)
					if h.w.learned[block] = l.Paths; len(l.Paths) == 0 {
						delete(h.w.learned, block)
					}
				}
				told.Apply(e.compute())
				check(t, h.w, Settings{}, told)
				checkUsed(t, e, h.w, told)
			}
		})
	}
}
