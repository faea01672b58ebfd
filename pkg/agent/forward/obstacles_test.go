// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/nft/beside"
)

// TestTell: a host is unready, as far as the setting says so, if workloads' packets are certainly stopped. Everything else is a remark.
func TestTell(t *testing.T) {
	const stopped, may = "workloads' packets are stopped: ", "workloads' packets may be stopped: "
	all := beside.Block{Table: "f", From: true, Pods4: true, Pods6: true}
	some := beside.Block{Table: "f", From: true}
	vxlan := beside.Block{Table: "f", Hook: "input", VXLANPort: 4789}
	bogons := beside.Block{Table: "f", Chain: "bogons", Hook: "forward", Probe4: true}
	path := []board.PathFinding{{V4: true, Text: "got lost"}}
	filter := []hostnet.Obstacle{{What: "rp_filter", Text: "strict", Maybe: true}}
	for _, c := range []struct {
		name     string
		unready  board.Unready
		families board.Families
		blocks   []beside.Block
		settings []hostnet.Obstacle
		lost     []board.PathFinding
		reason   string // how it begins
		remark   string
	}{
		{"all", board.UnreadyAll, board.Families{V4: true, V6: true}, []beside.Block{all}, nil, nil, stopped, ""},
		{"all of the family that there is", board.UnreadyAll, board.Families{V6: true}, []beside.Block{{From: true, Pods6: true}}, nil, nil, stopped, ""},
		{"all, of one family", board.UnreadyAll, board.Families{V4: true, V6: true}, []beside.Block{{From: true, Pods6: true}}, nil, nil, "", stopped},
		{"some", board.UnreadyAll, board.Families{}, []beside.Block{some}, nil, nil, "", stopped},
		{"any", board.UnreadyAny, board.Families{}, []beside.Block{some}, nil, nil, stopped, ""},
		{"never", board.UnreadyNever, board.Families{}, []beside.Block{all}, nil, nil, "", stopped},
		{"VXLAN", board.UnreadyAll, board.Families{}, []beside.Block{vxlan}, nil, nil, "", stopped},
		{"the path", board.UnreadyAll, board.Families{}, nil, nil, path, stopped, ""},
		{"the path of the probe", board.UnreadyAny, board.Families{}, []beside.Block{bogons}, nil, path, "", may + "got lost; chain  f bogons (hook forward) drops it for its addresses"},
		{"the path of the probe, and workloads'", board.UnreadyAny, board.Families{}, []beside.Block{bogons, all}, nil, path, stopped, ""},
		{"the probe's other family", board.UnreadyAll, board.Families{}, []beside.Block{{Probe6: true}}, nil, path, stopped, ""},
		{"what stops only the probe, which isn't there", board.UnreadyAny, board.Families{}, []beside.Block{bogons}, nil, nil, "", ""},
		{"rp_filter", board.UnreadyAny, board.Families{}, nil, filter, nil, "", may + "strict"},
		{"rp_filter and others", board.UnreadyAny, board.Families{}, []beside.Block{some}, filter, nil, stopped, ""},
	} {
		log := slog.New(slog.DiscardHandler)
		h := health.New("calico-test")
		h.SetUnready("")
		ledger := problems.New(log)
		o := obstacles{cfg: Config{Path: func() []board.PathFinding { return c.lost }, Logger: log, Problems: ledger, Health: h}, noted: ledger.Group(problems.Host), settings: c.settings}
		for _, b := range c.blocks {
			b.Prefixes = []string{"cali"}
			o.blocks = append(o.blocks, b)
		}
		o.tell(Desired{Unready: c.unready, Families: c.families}, nil)
		if got := h.Unready(); !strings.HasPrefix(got, c.reason) || (got == "") != (c.reason == "") {
			t.Errorf("%s: not ready: %q", c.name, got)
		}
		w := httptest.NewRecorder()
		h.Handler(o.cfg.Problems).ServeHTTP(w, httptest.NewRequest("GET", "/readiness", nil))
		if page := w.Body.String(); c.reason == "" && (!strings.Contains(page, c.remark) || strings.Contains(page, "packets") != (c.remark != "")) {
			t.Errorf("%s: the page says %q", c.name, page)
		}
	}
}

// TestSearch: the search is for chains that drop packets of the families that workloads have, with addresses of the host's blocks.
func TestSearch(t *testing.T) {
	block4, block6 := netip.MustParsePrefix("10.65.0.0/26"), netip.MustParsePrefix("fd65::/122")
	any4, any6 := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
	both := []netip.Prefix{block4, block6}
	for _, c := range []struct {
		name     string
		families board.Families
		blocks   []netip.Prefix
		want     []netip.Prefix
	}{
		{"no workloads", board.Families{}, nil, []netip.Prefix{any4}},
		{"both", board.Families{V4: true, V6: true}, both, both},
		{"IPv4", board.Families{V4: true}, both, []netip.Prefix{block4}},
		{"IPv6", board.Families{V6: true}, both, []netip.Prefix{block6}},
		{"no block of one", board.Families{V4: true, V6: true}, both[:1], []netip.Prefix{block4, any6}},
	} {
		got := Desired{Families: c.families, Blocks: c.blocks}.search()
		if diff := cmp.Diff(c.want, got.Nets, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if len(got.Probe) != 4 {
			t.Errorf("%s: the probe takes %v", c.name, got.Probe)
		}
	}
}
