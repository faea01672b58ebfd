// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMesh(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	var hosts []*host
	for n := 1; n <= 3; n++ {
		hosts = append(hosts, f.host(t, n))
	}
	blocks := [][]string{{"10.1.1.0/26", "fd01:0:0:1::/122"}, {"10.1.2.0/26", "10.1.1.7/32", "fd01:0:0:2::/122"}, {"10.1.3.0/26"}}
	var speakers []*speaker
	var desired []Desired
	for i, h := range hosts {
		d := h.desired()
		for _, other := range hosts {
			if other != h {
				h.meets(d, other)
				h.meets6(d, other)
			}
		}
		h.has(d, blocks[i]...)
		s := h.start(t)
		s.apply(d)
		speakers, desired = append(speakers, s), append(desired, d)
	}
	speakers[0].mustLearn("10.1.1.7/32 via 10.0.0.2", "10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3", "fd01:0:0:2::/122 via fd00::2")
	speakers[1].mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.3.0/26 via 10.0.0.3", "fd01:0:0:1::/122 via fd00::1")
	speakers[2].mustLearn("10.1.1.0/26 via 10.0.0.1", "10.1.1.7/32 via 10.0.0.2", "10.1.2.0/26 via 10.0.0.2", "fd01:0:0:1::/122 via fd00::1", "fd01:0:0:2::/122 via fd00::2")
	speakers[0].mustBe("10.0.0.2 established", "10.0.0.3 established", "fd00::2 established", "fd00::3 established")

	// More, fewer and other advertisements: no session is touched.
	before := speakers[0].look().Status
	hosts[1].has(desired[1], "10.1.4.0/26")
	delete(desired[1].Advertisements, prefix("10.1.1.7/32"))
	speakers[1].apply(desired[1])
	speakers[0].mustLearn("10.1.2.0/26 via 10.0.0.2", "10.1.3.0/26 via 10.0.0.3", "10.1.4.0/26 via 10.0.0.2", "fd01:0:0:2::/122 via fd00::2")
	sameSessions(t, before, speakers[0].look().Status)
	for _, s := range speakers {
		s.close()
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// sameSessions checks that no session began or ended.
func sameSessions(t *testing.T, before, after []PeerStatus) {
	t.Helper()
	of := func(list []PeerStatus) (l []string) {
		for _, p := range list {
			l = append(l, p.Address.String()+" "+p.State+" since "+p.Since.String())
		}
		return l
	}
	if diff := cmp.Diff(of(before), of(after)); diff != "" {
		t.Errorf("sessions (-before +after):\n%s", diff)
	}
}
