// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// routed puts a router between two hosts, in place of the bridge.
func (f *fabric) routed(t *testing.T, a, b *host) {
	t.Helper()
	for n, ends := range [][2]*host{{a, b}, {b, a}} {
		here, beyond, port := ends[0], ends[1], fmt.Sprintf("port%d", n+1)
		ip(t, f.ns, "link set "+port+" nomaster")
		ip(t, f.ns, "addr add 10.0.0.254/32 dev "+port)
		ip(t, f.ns, "addr add fd00::fe/128 dev "+port+" nodad")
		ip(t, f.ns, fmt.Sprintf("route add %s dev %s", here.v4, port))
		ip(t, f.ns, fmt.Sprintf("route add %s dev %s", here.v6, port))
		ip(t, here.ns, fmt.Sprintf("route add %s via 10.0.0.254", beyond.v4))
		ip(t, here.ns, fmt.Sprintf("route add %s via fd00::fe", beyond.v6))
	}
	in(t, f.ns, func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	})
}

// TestMultihop: a router and a password are between two neighbours. Without ebgp_multihop their packets live for one hop and
// don't arrive.
func TestMultihop(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	a, b := f.host(t, 1), f.host(t, 2)
	f.routed(t, a, b)
	da, db := a.desired(), b.desired()
	db.Speaker.AS = 65001
	a.has(da, "10.1.1.0/26", "fd01:0:0:1::/122")
	b.has(db, "10.1.2.0/26", "fd01:0:0:2::/122")
	sa, sb := a.start(t), b.start(t)
	file := passwordFile(t, "pass word with blanks")
	meet := func(s *speaker, h, other *host, d Desired, as model.ASNumber, hops int) {
		n := h.outside(d, other, as)
		n.PasswordFile, n.Multihop = file, hops
		d.Neighbours[n.Address] = n
		n.Address, n.Local = other.v6, h.v6
		d.Neighbours[n.Address] = n
		s.apply(d)
	}
	meet(sa, a, b, da, 65001, 0)
	meet(sb, b, a, db, 64512, 0)
	for _, s := range []*speaker{sa, sb} {
		becomes(t, s.name+"'s neighbours with too few hops to set", 2, func() (advised int) {
			for _, p := range s.look().Status {
				if p.State == Established {
					t.Fatalf("%s has a session with %s by one hop", s.name, p.Address)
				}
				if strings.HasSuffix(p.Error, nearAdvice) {
					advised++
				}
			}
			return advised
		})
	}
	meet(sa, a, b, da, 65001, 2)
	meet(sb, b, a, db, 64512, 2)
	sa.mustBe("10.0.0.2 established", "fd00::2 established")
	sb.mustBe("10.0.0.1 established", "fd00::1 established")
	sa.mustLearn("10.1.2.0/26 via 10.0.0.2", "fd01:0:0:2::/122 via fd00::2")
	sb.mustLearn("10.1.1.0/26 via 10.0.0.1", "fd01:0:0:1::/122 via fd00::1")
}
