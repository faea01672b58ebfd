// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/nft/beside"
)

// FuzzTell: whatever others call their tables and chains, the readiness page has one line for what they drop, in a form of ours.
func FuzzTell(f *testing.F) {
	f.Add("filter", "FORWARD", byte(1))
	f.Add("x\nok", "y\r\n", byte(7))
	f.Add("a'; reboot; '", "", byte(0x2b))
	f.Fuzz(func(t *testing.T, inTable, chain string, bits byte) {
		log := slog.New(slog.DiscardHandler)
		h := health.New("calico-test")
		h.SetUnready("")
		lost := []board.PathFinding{{V4: true, Text: "got lost"}}[:bits>>7]
		ledger := problems.New(log)
		o := obstacles{cfg: Config{Path: func() []board.PathFinding { return lost }, Logger: log, Problems: ledger, Health: h}, noted: ledger.Group(problems.Host)}
		b := beside.Block{Family: "inet", Table: inTable, Chain: chain, Hook: "forward", From: bits&1 != 0, To: bits&2 != 0, Pods4: bits&4 != 0, Probe4: bits&32 != 0, Prefixes: []string{"cali"}}
		o.blocks = []beside.Block{b}
		o.tell(Desired{Unready: [...]board.Unready{board.UnreadyAll, board.UnreadyAny, board.UnreadyNever}[bits>>3%3]}, nil)
		w := httptest.NewRecorder()
		h.Handler(o.cfg.Problems).ServeHTTP(w, httptest.NewRequest("GET", "/readiness", nil))
		lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
		stops := b.From || b.To || len(lost) > 0
		if last := lines[len(lines)-1]; len(lines) > 2 || stops != strings.HasPrefix(last, "workloads' packets ") || strings.ContainsAny(last, "\r\x00\x1b") {
			t.Errorf("%q", lines)
		}
		if all := ledger.All(); len(all) > 2 {
			t.Errorf("%v", all)
		}
	})
}
