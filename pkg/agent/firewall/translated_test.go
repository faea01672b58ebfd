// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

func nat(inner, outer string) model.NAT {
	return model.NAT{IntIP: netip.MustParseAddr(inner), ExtIP: netip.MustParseAddr(outer)}
}

// TestTranslated: an unchanged translation is no change for the firewall.
func TestTranslated(t *testing.T) {
	ep := &policy.Endpoint{Path: "p", Workload: true, NAT: []model.NAT{nat("10.0.0.1", "192.0.2.1"), nat("10.0.0.1", "192.0.2.2")}}
	whole := Verdict{Connect: true}
	if got := translated(ep, whole, nil); got != ep {
		t.Errorf("with all of its NAT: %+v", got)
	}
	less := Verdict{Connect: true, Untranslated: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
	first := translated(ep, less, nil)
	if diff := cmp.Diff(ep.NAT[1:], first.NAT, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || len(ep.NAT) != 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := translated(ep, less, first); again != first {
		t.Error("the same is another")
	}
	if again := translated(ep, less, ep); again == ep {
		t.Error("what had more NAT is the same")
	}
}
