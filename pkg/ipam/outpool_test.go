// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// TestOwnBlockOfPoolThatIsOut: a host's block is in a pool that assigns nothing to its pods any more. The next address
// is from another pool, and the block is deleted with its last address.
func TestOwnBlockOfPoolThatIsOut(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := model.Pool{CIDR: cidr("10.70.0.0/24"), BlockSize: 26}
	for name, change := range map[string]func(*etcd){
		"disabled":           func(s *etcd) { p := p; p.Disabled = true; s.pool(p) },
		"picks no node":      func(s *etcd) { p := p; p.NodeSelector = "!all()"; s.pool(p) },
		"picks other nodes":  func(s *etcd) { p := p; p.NodeSelector = `rack == "2"`; s.pool(p) },
		"for tunnels":        func(s *etcd) { p := p; p.AllowedUses = "Tunnel"; s.pool(p) },
		"for load balancers": func(s *etcd) { p := p; p.AllowedUses = "LoadBalancer"; s.pool(p) },
		"deleted":            func(s *etcd) { s.delete(model.PoolKey{CIDR: p.CIDR}) },
	} {
		for _, byAddr := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", by address ", byAddr), func(t *testing.T) {
				s := newEtcd(t)
				s.put(model.HostMetadataKey{Host: "h1"}, model.HostMetadata{Labels: map[string]string{"rack": "1"}})
				s.pool(p)
				ask := func(handle string) Assigned {
					return must(s.assign(Request{Host: "h1", Handle: handle, IPv4: true, Now: now})).Addrs[0]
				}
				old := []Assigned{ask("old0"), ask("old1"), ask("old2"), ask("old3")}
				change(s)
				s.pool(model.Pool{CIDR: cidr("10.90.0.0/24")})
				if got := ask("new"); got.Pool != cidr("10.90.0.0/24") {
					t.Errorf("the next address is %+v", got)
				}
				for n, got := range old {
					if byAddr {
						p := must(s.plan(FirstReadRelease(""), func(p *Plan) error { _, _, err := p.ReleaseAddr(got.Addr, now); return err }))
						if err := s.commit(p.Change()); err != nil {
							t.Fatal(err)
						}
					} else {
						must(s.release(fmt.Sprint("old", n), now))
					}
					if there := s.keys[model.BlockKey{CIDR: got.Block}.Path()].modified != 0; there != (n < 3) {
						t.Fatalf("after %d of four have gone the block is there: %t", n+1, there)
					}
				}
			})
		}
	}
}

// TestAllowedUses uses a pool for tunnels and one for workloads: neither assigns for the other's use, requested or not.
func TestAllowedUses(t *testing.T) {
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.1.0.0/24"), AllowedUses: "Tunnel"})
	s.pool(model.Pool{CIDR: cidr("10.2.0.0/24"), AllowedUses: "Workload"})
	for _, tt := range []struct {
		tunnel bool
		pools  []model.PoolRef
		want   string
	}{
		{false, nil, "10.2.0.0/24"}, {true, nil, "10.1.0.0/24"},
		{false, pools("10.1.0.0/24"), ""}, {true, pools("10.2.0.0/24"), ""},
	} {
		got, err := s.assign(Request{Host: "h1", Handle: fmt.Sprint(tt), IPv4: true, Tunnel: tt.tunnel, Pools4: tt.pools})
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || got.Addrs[0].Pool != cidr(tt.want)) {
			t.Errorf("tunnel %t, of %v: %+v, %v; want one of %q", tt.tunnel, tt.pools, got, err, tt.want)
		}
		t.Log(err)
	}
}
