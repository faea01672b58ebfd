// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

// TestNodeStatus prints what an agent says, as a table.
func TestNodeStatus(t *testing.T) {
	at := time.Date(2026, 11, 27, 18, 0, 59, 0, time.UTC)
	up := debugstate.Peer{Address: netip.MustParseAddr("172.20.1.2"), AS: 64512, Kind: "mesh", Host: "b", State: "established", Since: at, Received: 2, Sent: 3}
	down := debugstate.Peer{Address: netip.MustParseAddr("192.0.2.1"), AS: 65001, Kind: "own", State: "connecting", Since: at, Trouble: "other", Error: "connection refused", ErrorAt: at}
	for _, c := range []struct {
		name   string
		agent  Agent
		status bool // it is without an error
		want   string
	}{
		{"nothing", Agent{Ready: true}, true, "agent: ready\nBGP: no peers\n\nevery object and setting is in order\n"},
		{"peers", Agent{Ready: true, State: debugstate.State{Router: debugstate.Router{Peers: []debugstate.Peer{up, down}}}}, true, `agent: ready

PEER         TYPE   NODE   AS      STATE         SINCE                 ROUTES IN   ROUTES OUT   LAST ERROR
172.20.1.2   mesh   b      64512   established   2026-11-27 18:00:59   2           3            -
192.0.2.1    own    -      65001   connecting    2026-11-27 18:00:59   0           0            connection refused

every object and setting is in order
`},
		{"problems", Agent{Readiness: "firewall: no\n", Problems: []problems.Problem{{Path: "/calico/x", Kind: "object", Reason: "not JSON", Since: at}},
			State: debugstate.State{Router: debugstate.Router{PeersError: "no answer", Lacks: map[string]string{"route 10.0.0.0/26": "no link"}}}}, false, `agent: not ready
firewall: no
BGP: no answer

PROBLEM             SINCE                 REASON
object /calico/x    2026-11-27 18:00:59   not JSON
route 10.0.0.0/26   -                     not programmed: no link
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/readiness", func(w http.ResponseWriter, _ *http.Request) {
				if !c.agent.Ready {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				_, _ = w.Write([]byte(c.agent.Readiness))
			})
			for page, v := range map[string]any{"/debug/invalid": c.agent.Problems, "/debug/state": c.agent.State} {
				mux.HandleFunc(page, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) })
			}
			s := httptest.NewServer(mux)
			defer s.Close()
			run := func(args ...string) (string, error) {
				var out bytes.Buffer
				env := &session.Env{Stdout: &out}
				cmd := New(env)
				env.AddFlags(cmd)
				cmd.SilenceUsage, cmd.SilenceErrors = true, true
				cmd.SetArgs(append([]string{"status", "--agent=" + s.URL}, args...))
				err := cmd.ExecuteContext(t.Context())
				return out.String(), err
			}
			got, err := run()
			if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != c.status {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			text, _ := run("-o", "json")
			var again Agent
			if err := json.Unmarshal([]byte(text), &again); err != nil || len(again.Router.Peers) != len(c.agent.Router.Peers) || again.Ready != c.agent.Ready {
				t.Errorf("as JSON: %v\n%s", err, strings.TrimSpace(text))
			}
		})
	}
}
