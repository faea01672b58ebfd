// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

const (
	otherHosts = 500
	blocksEach = 10
)

// TestManyHosts has an agent start in a large cluster: all routes are there, and
// one more block leads to one more.
func TestManyHosts(t *testing.T) {
	long.Test(t)
	pool := netip.MustParsePrefix("10.64.0.0/10")
	r := &trio{T: t, lab: lab.ForTest(t, lab.Config{Pools: []netip.Prefix{pool}, Pool: encap(model.EncapAlways), NoFsync: true, Log: io.Discard})}
	r.commit(model.Change{Puts: []model.Put{{Key: model.BGPMeshKey{}, Value: model.Mesh{}}}})
	var puts []model.Put
	for i := range otherHosts {
		name := fmt.Sprintf("other-%d", i)
		puts = append(puts, model.Put{Key: model.HostMetadataKey{Host: name}, Value: model.HostMetadata{}},
			model.Put{Key: model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}, Value: model.Text(fmt.Sprintf("172.20.%d.%d", 200+i/250, 1+i%250))})
		for j := range blocksEach {
			puts = append(puts, blockOf(i*blocksEach+j, name))
		}
	}
	for chunk := range slices.Chunk(puts, 100) {
		r.commit(model.Change{Puts: chunk})
	}
	h, err := r.lab.AddHost(r.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r.hosts = append(r.hosts, h)
	r.until("all routes", func() bool {
		return strings.Count(r.run(0, "ip", "-4", "route", "show", "proto", "81"), "via") == otherHosts*blocksEach
	})
	for n := range 20 { // another host reports, and claims a block
		name := fmt.Sprintf("other-%d", n)
		r.commit(model.Change{Puts: []model.Put{{Key: model.LastStatusKey{Host: name}, Value: model.Status{Time: time.Unix(0, 0).UTC()}}, {Key: model.StatusKey{Host: name}, Value: model.Status{Time: time.Unix(0, 0).UTC()}}}})
		p := blockOf(otherHosts*blocksEach+n, name)
		dst := p.Key.(model.BlockKey).CIDR.String()
		r.commit(model.Change{Puts: []model.Put{p}})
		r.until("route to "+dst, func() bool { return r.run(0, "ip", "route", "show", dst) != "" })
	}
}

// blockOf is the nth block of the pool, a host's, with nothing in it.
func blockOf(n int, host string) model.Put {
	a := netip.AddrFrom4([4]byte{10, byte(64 + n>>10), byte(n >> 2), byte(n << 6)})
	b := model.Block{CIDR: netip.PrefixFrom(a, 26), Affinity: host}
	for i := range b.Size() {
		b.Allocations, b.Unallocated = append(b.Allocations, model.Free), append(b.Unallocated, i)
	}
	return model.Put{Key: model.BlockKey{CIDR: b.CIDR}, Value: b}
}
