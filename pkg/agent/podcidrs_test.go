// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// TestPodCIDRs: a network that Kubernetes has set aside for pods, and that overlaps no pool, is listed.
func TestPodCIDRs(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c := &podCIDRs{log: log, problems: problems.New(log)}
	listed := func(when, want string) {
		t.Helper()
		got := ""
		for _, p := range c.problems.All() {
			got += p.Path + " " + p.Reason
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	pool := func(cidr string, disabled bool) model.Entry {
		p := netip.MustParsePrefix(cidr)
		return put(model.PoolKey{CIDR: p}, model.Pool{CIDR: p, Disabled: disabled}, 1)
	}
	c.SetNode([]netip.Prefix{netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:3::/64")})
	listed("etcd hasn't been read", "")
	c.Update(model.Update{Resync: true, Entries: []model.Entry{put(testKey("a"), testSpec("cali1", "10.0.0.1"), 1)}})
	listed("no pools", "")
	c.Update(model.Update{Entries: []model.Entry{pool("192.168.0.0/16", false), pool("10.244.0.0/16", true)}})
	listed("a pool elsewhere", "podCIDR [10.244.3.0/24] of this host's Node overlaps none of the pools [192.168.0.0/16]: ")
	c.Update(model.Update{Entries: []model.Entry{pool("fd80::/64", false)}})
	listed("one of the other family", "podCIDR [10.244.3.0/24 fd00:3::/64] of this host's Node overlaps none of the pools [192.168.0.0/16 fd80::/64]: ")
	c.Update(model.Update{Entries: []model.Entry{pool("10.244.0.0/16", false)}})
	listed("one that has the podCIDR", "podCIDR [fd00:3::/64] ")
	c.Update(model.Update{Entries: []model.Entry{gone(model.PoolKey{CIDR: netip.MustParsePrefix("fd80::/64")})}})
	listed("none of the other family", "")
	c.Update(model.Update{Resync: true, Entries: []model.Entry{pool("192.168.0.0/16", false)}})
	listed("etcd is another", "podCIDR [10.244.3.0/24] ")
	c.SetNode(nil)
	listed("the Node has none", "")
}
