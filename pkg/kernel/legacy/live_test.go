// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package legacy_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/legacy"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// TestLive removes what older agents and BIRD leave, and nothing of others.
func TestLive(t *testing.T) {
	sh := func(commands string) string {
		t.Helper()
		out, err := exec.Command("sh", "-ec", commands).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	others := `for p in iptables-legacy iptables-nft ip6tables-legacy ip6tables-nft; do $p-save 2>/dev/null | grep '^-A' || true; done; ipset list -n; ip -N route show; ip -N -6 route show`
	sh(`ip link set lo up; ip link add uplink type veth peer name other; ip link set uplink up; ip link set other up; ip address add 172.18.0.1/24 dev uplink; ip -6 address add fd18::1/64 dev uplink nodad`)
	sh(`iptables-legacy -A FORWARD -m comment --comment "cali: no" -i docker0 -j ACCEPT; iptables-nft -t nat -A PREROUTING -p tcp -j REDIRECT; ipset create mine hash:ip;
		iptables-legacy -A INPUT -m set --match-set mine src -j DROP; ip route add 10.9.0.0/24 via 172.18.0.2 proto 12`)
	before := sh(others)
	sh(`ipset create cali40s:web hash:ip; ipset create felix-v4-x hash:ip; ipset create felix-v4-all list:set; ipset add felix-v4-all felix-v4-x
		for p in iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do
			$p -N cali-FORWARD; $p -N cali-to; $p -A cali-FORWARD -o cali+ -j cali-to; $p -A cali-to -j DROP
			$p -I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
			$p -t nat -N felix-PREROUTING; $p -t nat -A PREROUTING -j felix-PREROUTING
			$p -t raw -N cali-PREROUTING; $p -t raw -A PREROUTING -m comment --comment cali:6gwbT8clXdHdC1b1 -j cali-PREROUTING
		done
		iptables-legacy -A cali-to -m set --match-set cali40s:web src -j ACCEPT`)
	sh(fmt.Sprintf(`for via in "10.1.0.0/26 via 172.18.0.2" "blackhole 10.1.0.64/26" "fd01::/122 via fd18::2"; do
			ip route add $via proto 12; ip route add $via proto %[1]d metric 1100
		done`, fabric.Protocol))

	found, err := legacy.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := found.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"iptables-legacy: 4 chains, and 3 rules that lead to them", "ip6tables-nft: 4 chains, and 3 rules", "ipset: 3 sets: ",
		"route of BIRD, beside that of calico-node: 10.1.0.0/26 via 172.18.0.2", "beside that of calico-node: blackhole 10.1.0.64/26",
		"stays, as calico-node has no such route: route of BIRD: 10.9.0.0/24 via 172.18.0.2",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if err := found.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh(fmt.Sprintf(`for r in 10.1.0.0/26 10.1.0.64/26 fd01::/122; do
			test "$(ip -N route show $r | grep -c 'proto %[1]d')$(ip -N -6 route show $r | grep -c 'proto %[1]d')" != 00; ip route del $r proto %[1]d || ip route del blackhole $r proto %[1]d
		done`, fabric.Protocol))
	if after := sh(others); after != before {
		t.Errorf("what others have:\n%s\nwant\n%s", after, before)
	}
	if found, err = legacy.Find(t.Context()); err != nil || !found.Empty() {
		t.Errorf("left: %+v, %v", found, err)
	}
}

// TestMigrationPage runs the commands of docs/migration.md.
func TestMigrationPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/migration.md")
	if err != nil {
		t.Fatal(err)
	}
	script := ""
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		script += string(block[1])
	}
	e := etcd.New(t)
	e.Put(model.BGPMeshKey{Legacy: true}, model.Mesh{Enabled: false})
	e.Put(model.ReadyKey{}, model.Ready(true))
	bin, err := filepath.Abs(lab.Build(t, lab.BuildOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	sh := func(script string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ETCD_ENDPOINTS=http://"+e.Addr())
		return cmd.CombinedOutput()
	}
	// Without an agent's table nothing else holds policy.
	out, err := sh("ipset create cali40s:x hash:ip; iptables-nft -N cali-INPUT; calico-node -clean-up-legacy -yes")
	if err == nil || !strings.Contains(string(out), "nothing is removed: without table inet calico pods would be open") {
		t.Errorf("without an agent: %v\n%s", err, out)
	}
	out, err = sh("nft add table inet calico\n" + script)
	for _, want := range []string{"ipset: 1 sets: cali40s:x\n", "iptables-nft: 1 chains", "nothing is removed yet: add -yes", "\nremoved\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("no %q: %v\n%s", want, err, out)
		}
	}
	if got := e.Get(model.BGPMeshKey{}); got != (model.Mesh{Enabled: false}) {
		t.Errorf("the mesh's switch is not where it belongs: %v\n%s", got, out)
	}
}
