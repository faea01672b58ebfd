// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/eventually"
)

// TestUndoing: policies that older controllers leave are listed while NetworkPolicies have no effect beside them.
func TestUndoing(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.ready()
	h.addPod(1)
	listed := func(key model.PolicyKey, want bool) {
		t.Helper()
		eventually.True(t, key.Policy+" to be listed or not", func() bool {
			_, body := h.fetch(h.health, "/debug/invalid")
			return strings.Contains(body, "notice "+key.Path()) == want && strings.Contains(body, "calicoctl delete globalnetworkpolicy "+key.Policy+". ") == want
		})
	}
	access := model.PolicyKey{Tier: "default", Policy: "a.access"}
	allow := []model.Rule{{Action: model.ActionAllow}}
	h.put(access, model.Policy{Inbound: allow, Outbound: allow})
	h.put(kubepolicy.NoMatch, model.Policy{Selector: "has(calico/k8s_ns)"})
	listed(kubepolicy.NoMatch, true)
	listed(access, false)
	isolates := kubepolicy.PolicyKey("a", "deny")
	h.put(isolates, model.Policy{Types: []model.Direction{model.Inbound}})
	listed(access, true)
	h.remove(kubepolicy.NoMatch)
	listed(kubepolicy.NoMatch, false)
	h.remove(isolates)
	listed(access, false)
}
