// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestUndoing: policies that make NetworkPolicies ineffective are listed. If older controllers left them the host is unready, but not for a
// user's policy that only looks like theirs.
func TestUndoing(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.ready()
	p := h.newPod(1)
	p.spec.Labels = map[string]string{model.LabelNamespace: "a"}
	p.wire()
	h.mustPass(p.key, p.put())
	listed := func(key model.PolicyKey, remedy string) {
		t.Helper()
		eventually.True(t, fmt.Sprintf("%s to be listed with %q", key.Policy, remedy), func() bool {
			_, body := h.fetch(h.health, "/debug/invalid")
			_, notice, there := strings.Cut(body, "notice "+key.Path()+"\n")
			notice, _, _ = strings.Cut(notice, "\nnotice ")
			return there == (remedy != "") && strings.Contains(notice, remedy)
		})
	}
	const migrate = "calicoctl datastore migrate --dry-run"
	allow, order := []model.Rule{{Action: model.ActionAllow}}, 1000.0
	older := model.Policy{Selector: "calico/k8s_ns == 'a'", Order: &order, Inbound: allow, Outbound: allow}
	access, web := model.PolicyKey{Tier: "default", Policy: "a.access"}, model.PolicyKey{Tier: "default", Policy: "a.web"}
	h.put(web, older) // a person's: there is no NetworkPolicy of that name
	h.put(access, older)
	h.put(kubepolicy.NoMatch, model.Policy{Selector: "has(calico/k8s_ns)"})
	listed(kubepolicy.NoMatch, "calicoctl delete globalnetworkpolicy k8s-policy-no-match. ")
	listed(access, "")
	h.ready() // beside nothing of today's controllers

	isolates := kubepolicy.PolicyKey("a", "access")
	h.put(isolates, model.Policy{Types: []model.Direction{model.Inbound}})
	listed(kubepolicy.NoMatch, migrate)
	listed(access, migrate)
	listed(web, "calicoctl delete globalnetworkpolicy a.web. ")
	h.unready("left (a.access, 2 in all). When none of them runs any more, calicoctl datastore migrate removes it; see first what it would remove: " + migrate)
	h.remove(access)
	listed(access, "")
	h.unready("left (k8s-policy-no-match, 1 in all)")
	h.remove(kubepolicy.NoMatch)
	listed(kubepolicy.NoMatch, "")
	h.ready()
	listed(web, "calicoctl delete globalnetworkpolicy a.web. ")

	h.put(kubepolicy.NoMatch, model.Policy{Selector: "has(calico/k8s_ns)"})
	h.put(access, older)
	h.unready("left (a.access, 2 in all)")
	h.put(kubepolicy.PolicyKey("a", "deny"), model.Policy{Types: []model.Direction{model.Inbound}})
	h.remove(isolates) // the NetworkPolicy of that name
	h.unready("left (k8s-policy-no-match, 1 in all)")
	listed(access, "calicoctl delete globalnetworkpolicy a.access. ")
	h.remove(kubepolicy.PolicyKey("a", "deny")) // now no policy is made ineffective
	listed(access, "")
	listed(web, "")
	h.ready()
}
