// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
)

// TestRealised: the host's status says up to which revision objects of the Kubernetes API are in force, those of policy and those of routes,
// once they are.
func TestRealised(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	owned := model.Meta{Owner: model.OwnerAPI + "u"}
	before := h.put(model.BGPFilterKey{Name: "before"}, model.BGPFilter{Meta: owned})
	h.start()
	until := func(what string, revision int64) {
		t.Helper()
		h.until(what, func() bool {
			s, is := h.get(model.StatusKey{Host: h.name}).(model.Status)
			return is && s.PolicyRevision == revision
		})
	}
	until("what was there is in force", before)
	h.addPod(1)
	for _, source := range []string{"203.0.113.77", "203.0.113.78"} {
		policy := model.Policy{Selector: "all()", Inbound: []model.Rule{{Action: model.ActionAllow, Match: model.Match{SrcNets: []netip.Prefix{netip.MustParsePrefix(source + "/32")}}}}, Meta: owned}
		until("a policy is in force", h.put(model.PolicyKey{Tier: model.DefaultTier, Policy: "p"}, policy))
		if rules, err := exec.Command("nft", "list", "table", "inet", nft.TableName).CombinedOutput(); err != nil || !strings.Contains(string(rules), source) {
			t.Errorf("it says that the policy of %s is in force: %v\n%s", source, err, rules)
		}
	}
	until("a filter of routes is in force", h.put(model.BGPFilterKey{Name: "after"}, model.BGPFilter{Meta: owned}))
	h.put(model.BGPFilterKey{Name: "operator's"}, model.BGPFilter{})
	until("a tier is in force", h.put(model.TierKey{Tier: "t"}, model.Tier{Meta: owned}))
}
