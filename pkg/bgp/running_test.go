// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/calico-go/calico/pkg/plan"
)

// TestAdvertisementsTriedAgain: the next call retries what the library refused to advertise or to withdraw, and undoes what
// is no longer wanted.
func TestAdvertisementsTriedAgain(t *testing.T) {
	t.Parallel()
	r := &running{advertise: map[netip.Prefix]advertised{}}
	fresh := func() {
		r.srv = server.NewBgpServer(server.LoggerOption(slog.New(slog.DiscardHandler), nil))
		go r.srv.Serve()
		t.Cleanup(r.srv.Stop)
	}
	start := func() {
		t.Helper()
		if err := r.srv.StartBgp(context.Background(), &api.StartBgpRequest{Global: &api.Global{Asn: 64512, RouterId: "10.0.0.1", ListenPort: -1}}); err != nil {
			t.Fatal(err)
		}
	}
	stop := func() {
		t.Helper()
		if err := r.srv.StopBgp(context.Background(), &api.StopBgpRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	table := func() (prefixes []string) {
		t.Helper()
		err := r.srv.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: bgp.RF_IPv4_UC},
			func(nlri bgp.NLRI, _ []*apiutil.Path) { prefixes = append(prefixes, nlri.String()) })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(prefixes)
		return prefixes
	}
	wanted := func(prefixes ...string) map[netip.Prefix]plan.Advertisement {
		m := map[netip.Prefix]plan.Advertisement{}
		for _, p := range prefixes {
			m[netip.MustParsePrefix(p)] = plan.Advertisement{Prefix: netip.MustParsePrefix(p), NextHop: netip.MustParseAddr("10.0.0.1")}
		}
		return m
	}
	const one, two = "10.1.1.0/26", "10.1.2.0/26"
	fails := func(what string, prefixes ...string) {
		t.Helper()
		if r.setAdvertisements(wanted(prefixes...)) == nil {
			t.Errorf("%s: no error", what)
		}
	}
	holds := func(what string, prefixes ...string) {
		t.Helper()
		if err := r.setAdvertisements(wanted(prefixes...)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if diff := cmp.Diff(prefixes, table()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	fresh()
	fails("a server that isn't started", one, two)
	start()
	holds("once it is", one, two)
	holds("nothing new", one, two)
	holds("one less", one)
	stop()
	fails("a withdrawal from a server that is stopped")
	if len(r.advertise) != 1 {
		t.Errorf("%v is left to be withdrawn", r.advertise)
	}
	fresh()
	start()
	holds("once it runs")
	if len(r.advertise) != 0 {
		t.Errorf("%v is left", r.advertise)
	}
	fresh()
	fails("another that fails", two)
	start()
	holds("and is no longer wanted", one)
	if len(r.advertise) != 1 {
		t.Errorf("%v is left", r.advertise)
	}
}
