// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
)

// FuzzAllot: whatever a client and an endpoint say of addresses, what the connection gets is the endpoint's, free, and little enough to be kept.
func FuzzAllot(f *testing.F) {
	f.Add("true", "10.0.0.0/8, fd00::/8", "4/28,6/64", "10.60.0.0/24,fd60::/64", "192.0.2.0/24", "10.60.0.0/30")
	f.Add("true", "", strings.Repeat("4/32,", 300), "10.60.0.0/16", "", "")
	f.Add("perhaps", "10.0.0.1/8", "5/28", "10.0.0.1/24", "0.0.0.0/0", "::/0")
	f.Fuzz(func(t *testing.T, addressed, excluded, additional, pools, routes, has string) {
		wanted := Interface{Parameters: map[string]string{ParamAddressed: addressed, ParamExcluded: excluded, ParamAdditional: additional}}
		r, err := ParseContextRequest(wanted.Parameters)
		offered := Interface{Parameters: map[string]string{ParamPools: pools, ParamRoutes: routes}}
		o, errOffer := ParseOffer(offered.Parameters)
		taken, errTaken := parsePrefixes(map[string]string{ParamPools: has}, ParamPools)
		if err := errors.Join(err, errOffer, errTaken); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		c, err := Allot(o, r, taken)
		if err != nil {
			if !errors.Is(err, ErrAborted) {
				t.Fatal(err)
			}
			return
		}
		all := c.Prefixes()
		for i, p := range all {
			for _, other := range append(append(append([]netip.Prefix(nil), all[:i]...), taken...), r.Excluded...) {
				if p.Overlaps(other) {
					t.Fatalf("%v overlaps %v", p, other)
				}
			}
		}
		if len(c.Additional) > maxEntries || len(c.Routes) > maxEntries || r.Addressed != c.Client.IsValid() {
			t.Fatalf("%+v", c)
		}
	})
}

// FuzzInterfaceName: a name that a client's interface gets is one that the kernel's edge takes, too.
func FuzzInterfaceName(f *testing.F) {
	for _, name := range []string{"", "vpn", "sixteen-letters-", "..", "a b", "n%d", "all", "\v"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, wanted string) {
		name, err := InterfaceName(wanted, func(name string) bool { return name == "eth0" || name == "nsm0" })
		if err != nil {
			return
		}
		if err := link.CheckName(name); err != nil {
			t.Error(err)
		}
	})
}
