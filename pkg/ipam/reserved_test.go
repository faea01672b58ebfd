// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
)

func counts(c usage.Counts) string {
	return fmt.Sprintf("%s in all, %d in use, %s reserved, free %s", c.Total, c.InUse, c.Reserved, c.Free)
}

// exhaust assigns addresses to several nodes until there are none, and returns how many.
func exhaust(t *testing.T, s *etcd, r Request) (n int) {
	for ; ; n++ {
		r.Host, r.Handle = fmt.Sprint("h", n%3), fmt.Sprintf("net.new%d.eth0", n)
		if _, err := s.assign(r); errors.As(err, new(*ExhaustedError)) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReservedAndFree: as many ADDs succeed as usage says are free, tunnels' included.
func TestReservedAndFree(t *testing.T) {
	for _, tt := range []struct {
		pool     string
		reserved []string
		inUse    []string // the first before it is reserved, the last one a tunnel's
	}{
		{"10.80.0.0/24", []string{"10.80.0.0/28", "10.80.0.5/32", "10.80.0.240/28"}, []string{"10.80.0.3", "10.80.0.100", "10.80.0.101"}},
		{"fd00:80::/120", []string{"fd00:80::/124", "fd00:80::5/128", "fd00:80::f0/124"}, []string{"fd00:80::3", "fd00:80::64", "fd00:80::65"}},
	} {
		s := world(t, model.Pool{CIDR: cidr(tt.pool)})
		for i, a := range tt.inUse {
			if i == 1 {
				for n, c := range tt.reserved {
					s.reserve(fmt.Sprint("r", n), c)
				}
			}
			if _, err := s.assign(Request{Host: "h0", Handle: fmt.Sprintf("net.c%d.eth0", i), Addrs: []netip.Addr{addr(a)}, Tunnel: i == 2, Now: noon}); err != nil {
				t.Fatal(err)
			}
		}
		pool := func() string { return counts(usage.New(s.dump()).Pools[0].Counts()) }
		if diff := cmp.Diff("256 in all, 3 in use, 32 reserved, free 222", pool()); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.pool, diff)
		}
		v6 := isV6(cidr(tt.pool))
		if n := exhaust(t, s, Request{IPv4: !v6, IPv6: v6, Now: noon}); n != 222 {
			t.Errorf("%s: %d ADDs, want 222", tt.pool, n)
		}
		if diff := cmp.Diff("256 in all, 225 in use, 32 reserved, free 0", pool()); diff != "" {
			t.Errorf("%s, full: -want +got\n%s", tt.pool, diff)
		}
		s.mustBeSound()
	}
}

// TestFreeIsWhatThereIs does the same with any reservations, at any time, and with blocks of any size, also of a new one.
func TestFreeIsWhatThereIs(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2))
	for range 60 {
		s := world(t, model.Pool{CIDR: cidr("10.0.0.0/25"), BlockSize: 25 + random.IntN(8)})
		for i := range 20 {
			s.assign(Request{Host: fmt.Sprint("h", i%3), Handle: fmt.Sprintf("net.c%d.eth0", i), IPv4: true, Now: noon}) // there may be none
			if random.IntN(4) == 0 {
				a := addr("10.0.0.0").As4()
				a[3] = byte(random.Uint32())
				s.reserve(fmt.Sprint("r", i), netip.PrefixFrom(netip.AddrFrom4(a), 25+random.IntN(8)).Masked().String())
			}
			if random.IntN(4) == 0 {
				if _, err := s.release(fmt.Sprintf("net.c%d.eth0", random.IntN(20)), noon); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := usage.New(s.dump()).Pools[0].Counts()
		if random.IntN(2) == 0 { // ipam migrate
			bits := 25 + random.IntN(8)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/25"), BlockSize: bits})
			s.resize("10.0.0.0/25", bits)
			if after := usage.New(s.dump()).Pools[0].Counts(); counts(after) != counts(before) {
				t.Fatalf("blocks of /%d: %s; before: %s", bits, counts(after), counts(before))
			}
		}
		if n := exhaust(t, s, Request{IPv4: true, Now: noon}); before.Free.Cmp(big.NewInt(int64(n))) != 0 {
			t.Fatalf("%s: %d ADDs", counts(before), n)
		}
		s.mustBeSound()
	}
}
