// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// run runs a command in the current namespace.
func run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// open opens the nftables of the current namespace, configured.
func open(tb testing.TB) *Firewall {
	tb.Helper()
	f, err := Open(Config{Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	f.Configure(settings())
	return f
}

func mustApply(tb testing.TB, f *Firewall) Report {
	tb.Helper()
	r, err := f.Apply(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	for path, err := range r.Programmed {
		if err != nil {
			tb.Errorf("%s: %v", path, err)
		}
	}
	return r
}

// wantWrites applies, and expects these numbers of writes and repairs.
func wantWrites(tb testing.TB, f *Firewall, writes, repairs int) {
	tb.Helper()
	if r := mustApply(tb, f); r.Writes != writes || r.Repairs != repairs {
		tb.Errorf("wrote %d, repaired %d: want %d and %d", r.Writes, r.Repairs, writes, repairs)
	}
}

func settings() policy.Settings {
	return policy.Settings{
		Prefixes: []string{"cali"}, EndpointToHost: policy.ToHostDrop, LogPrefix: "calico-packet",
		FailsafeInbound:  []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 22}, {Protocol: model.ProtocolUDP, Port: 68}},
		FailsafeOutbound: []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 2379}, {Protocol: model.ProtocolTCP, Port: 2380}, {Protocol: model.ProtocolUDP, Port: 53}},
	}
}

var (
	counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)
)

// listed returns the table as the nft tool prints it, without the values of counters.
func listed(tb testing.TB) string {
	tb.Helper()
	return counters.ReplaceAllString(run(tb, "nft", "list", "table", "inet", TableName), "counter")
}

func ip(s string) netip.Addr     { return netip.MustParseAddr(s) }
func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func cidrs(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, cidr(p))
	}
	return out
}

func byteOf(v uint8) *uint8 { return &v }

func tierID(tier, name string) policy.RulesID {
	return policy.RulesID{Kind: policy.KindPolicy, Tier: tier, Name: name}
}

func policyID(name string) policy.RulesID { return tierID("default", name) }
func profileID(name string) policy.RulesID {
	return policy.RulesID{Kind: policy.KindProfile, Name: name}
}

// macOf returns the MAC address of endpoint n.
func macOf(n int) model.MAC { return model.MAC{2, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)} }

// workload returns endpoint n with an address of each version.
func workload(n int, policies ...string) *policy.Endpoint {
	var ids []policy.RulesID
	for _, p := range policies {
		ids = append(ids, policyID(p))
	}
	v := policy.Verdicts{Policies: ids, Profiles: []policy.RulesID{profileID("prod")}}
	return &policy.Endpoint{
		Path: fmt.Sprintf("/calico/v1/host/here/workload/k8s/w%d/endpoint/e", n), Workload: true,
		Interface: fmt.Sprintf("cali%d", n), MAC: macOf(n),
		Addrs:   []netip.Addr{netip.AddrFrom4([4]byte{10, 65, byte(n >> 8), byte(n)}), netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(n >> 8), 15: byte(n)})},
		Inbound: v, Outbound: v,
	}
}

func endpoints(list ...*policy.Endpoint) map[string]*policy.Endpoint {
	out := make(map[string]*policy.Endpoint)
	for _, ep := range list {
		out[ep.Path] = ep
	}
	return out
}

func rules(list ...policy.Rules) map[policy.RulesID]*policy.Rules {
	out := make(map[policy.RulesID]*policy.Rules)
	for _, r := range list {
		out[r.ID] = &r
	}
	return out
}

// sampleLinks are indexes of the links of sample; no workload has the last two. No link of a test has one of these indexes.
func sampleLinks() map[string]int {
	return map[string]int{"cali1": 100001, "cali2": 100002, "cali3": 0, "cali4": 100004, "eth0": 100005}
}

// sample returns a bit of everything.
func sample() policy.Changes {
	tcp, udp := model.ProtocolTCP, model.ProtocolUDP
	host := &policy.Endpoint{
		Path: "/calico/v1/host/here/endpoint/eth0", Interface: "eth0",
		Inbound: policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}, Outbound: policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}},
		UntrackedInbound: []policy.RulesID{tierID("admin", "web"), tierID("admin", "tier"), policyID("fast")}, UntrackedOutbound: []policy.RulesID{policyID("fast")},
	}
	wild := &policy.Endpoint{Path: "/calico/v1/host/here/endpoint/all", Wildcard: true, Inbound: policy.Verdicts{Policies: []policy.RulesID{policyID("web")}}}
	nat := workload(2, "web", "tier")
	nat.Inbound.Policies = append([]policy.RulesID{tierID("admin", "web"), tierID("admin", "tier")}, nat.Inbound.Policies...)
	nat.Inbound.Passing = []string{"admin"}
	nat.NAT = []model.NAT{{IntIP: nat.Addrs[0], ExtIP: ip("192.0.2.7")}, {IntIP: nat.Addrs[1], ExtIP: ip("2001:db8::7")}}
	anyMAC := workload(3)
	anyMAC.MAC = model.MAC{}
	dropped := workload(4, "web")
	dropped.Dropped = "inactive"
	return policy.Changes{
		Endpoints: endpoints(workload(1, "web"), nat, anyMAC, dropped, host, wild),
		Rules: rules(
			policy.Rules{ID: policyID("web"), Inbound: []policy.Rule{
				{Action: model.ActionAllow, Match: policy.Criteria{Protocol: tcp, SrcSets: []policy.SetID{"clients"}, DstPorts: []model.Port{{Min: 80, Max: 80}, {Min: 8080, Max: 8089}}}},
				{Action: model.ActionAllow, Match: policy.Criteria{Protocol: tcp, DstPorts: []model.Port{{Min: 443, Max: 443}}, DstPortSets: []policy.SetID{"admin"}}},
				{Action: model.ActionLog, LogPrefix: "odd packet", Match: policy.Criteria{Protocol: model.ProtocolICMP, ICMPType: byteOf(8), ICMPCode: byteOf(0)}},
				{Action: model.ActionDeny, LogPrefix: "no", Not: policy.Criteria{SrcNets: cidrs("10.0.0.0/8")}},
				{Action: model.ActionAllow, Match: policy.Criteria{Protocol: model.ProtocolICMP}, Not: policy.Criteria{ICMPType: byteOf(3), ICMPCode: byteOf(4)}},
			}},
			policy.Rules{ID: policyID("tier"), Inbound: []policy.Rule{{Action: model.ActionNextTier}}, Outbound: []policy.Rule{{Action: model.ActionNextTier}}},
			policy.Rules{ID: tierID("admin", "web"), Inbound: []policy.Rule{{Action: model.ActionDeny, Match: policy.Criteria{SrcNets: cidrs("192.0.2.0/24")}}}},
			policy.Rules{ID: tierID("admin", "tier"), Inbound: []policy.Rule{{Action: model.ActionNextTier, Match: policy.Criteria{Protocol: udp}}}},
			policy.Rules{ID: policyID("fast"), Inbound: []policy.Rule{{Action: model.ActionAllow, Match: policy.Criteria{Protocol: udp, DstPorts: []model.Port{{Min: 9000, Max: 9000}}}}},
				Outbound: []policy.Rule{{Action: model.ActionAllow, Match: policy.Criteria{Protocol: udp, SrcPorts: []model.Port{{Min: 9000, Max: 9000}}}}}},
			policy.Rules{ID: profileID("prod"), Inbound: []policy.Rule{{Action: model.ActionAllow, Match: policy.Criteria{SrcNets: cidrs("10.0.0.0/8", "192.168.0.0/17", "fd00::/8")}}},
				Outbound: []policy.Rule{{Action: model.ActionAllow}}},
		),
		Sets: map[policy.SetID]*policy.SetChange{
			"clients": {Kind: policy.KindAddrs, Text: `selector role == "client"`, New: true, Added: []policy.Member{{Addr: ip("10.65.0.9")}, {Addr: ip("fd00::9")}, {Addr: ip("10.65.0.8")}}},
			"admin":   {Kind: policy.KindPorts, Text: "port admin", New: true, Added: []policy.Member{{Addr: ip("10.65.0.1"), Protocol: tcp, Port: 9443}, {Addr: ip("fd00::1"), Protocol: tcp, Port: 9443}}},
		},
		Pools: &policy.Pools{All: cidrs("10.64.0.0/16", "10.65.0.0/16", "fd00::/64"), Masquerade: cidrs("10.65.0.0/16", "fd00::/64")},
	}
}
