// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

const k8sArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c1"

// small pools make the addresses of the results predictable.
func small() lab.Config {
	return lab.Config{Pools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/26"), netip.MustParsePrefix("fd01::/122")}}
}

func TestResultOfEveryVersion(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	pod := r.pod("pod")
	for _, version := range []string{"", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		change := map[string]any{"cniVersion": version, "mtu": 1400, "dns": map[string]any{"nameservers": []string{"10.0.0.53"}}}
		if version == "" {
			change["cniVersion"] = nil
		}
		c := call(pod, r.conf(change))
		// Named, so that every version gets the same ones.
		c.Args = "IP=10.1.0.7,fd01::7;MAC=02:00:00:00:00:07"
		got := r.must(c).Stdout
		r.must(verb("DEL", c))
		got = []byte(strings.ReplaceAll(string(got), pod, "/run/netns/pod"))
		golden(t, filepath.Join("testdata", "result-"+map[bool]string{true: "absent", false: version}[version == ""]+".json"), got)
	}
	r.empty()
}

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestAddWritesOneEndpoint(t *testing.T) {
	r := newRig(t, small())
	pod := r.pod("pod")
	c := call(pod, r.conf(map[string]any{"policy": map[string]any{"type": "k8s"}}))
	c.Args = k8sArgs
	result := r.add(c)
	want := model.WorkloadEndpoint{
		State: model.StateActive, Name: result.Interfaces[0].Name, ProfileIDs: []string{"k8s_ns.default"},
		IPv4Nets: []netip.Prefix{netip.PrefixFrom(addrs(result)[0], 32)}, IPv6Nets: []netip.Prefix{netip.PrefixFrom(addrs(result)[1], 128)},
		Labels: map[string]string{"calico/k8s_ns": "default"}, ContainerID: "c1", MTU: 1500,
	}
	var err error
	if want.MAC, err = model.ParseMAC(result.Interfaces[1].Mac); err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmpopts.EquateEmpty(),
	}
	if diff := cmp.Diff(map[string]model.WorkloadEndpoint{"k8s default.web eth0": want}, r.endpoints(), same); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	// SHA-1 of "default.web", and of "default.web.net1".
	if got := result.Interfaces[0].Name; got != "cali68caf03a5f4" {
		t.Errorf("host interface %s", got)
	}
	// The agent's MTU file counts where the configuration has none.
	if err := os.WriteFile(filepath.Join(r.host.VarDir(), "mtu"), []byte("1380\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := c
	second.IfName = "net1"
	if got := r.add(second); got.Interfaces[1].Mtu != 1380 || got.Interfaces[0].Name == result.Interfaces[0].Name {
		t.Errorf("second interface: %+v", got.Interfaces)
	}
	if got := len(r.endpoints()); got != 2 {
		t.Errorf("%d endpoints", got)
	}
	r.must(verb("DEL", c))
	r.must(verb("DEL", second))
	r.empty()
}

func TestProfileOfTheNetwork(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	r.add(c)
	profile := func() string {
		var out []string
		for _, e := range r.sound() {
			switch e.Key.(type) {
			case model.ProfileRulesKey, model.ProfileTagsKey:
				data, err := model.FormatValue(e.Value)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, e.Path+" "+string(data))
			}
		}
		return strings.Join(out, "\n")
	}
	want := `/calico/v1/policy/profile/net1/rules {"inbound_rules":[{"action":"allow","src_tag":"net1"}],"outbound_rules":[{"action":"allow"}]}
/calico/v1/policy/profile/net1/tags ["net1"]`
	if diff := cmp.Diff(want, profile()); diff != "" {
		t.Errorf("profile (-want +got):\n%s", diff)
	}
	r.must(verb("DEL", c))
	// What an operator makes of it stays.
	r.put(model.ProfileRulesKey{Profile: "net1"}, model.Rules{})
	before := profile()
	r.add(c)
	if diff := cmp.Diff(before, profile()); diff != "" {
		t.Errorf("profile after the second ADD (-want +got):\n%s", diff)
	}
}

func TestAddAgain(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	first := r.must(c)
	if second := r.must(c); string(second.Stdout) != string(first.Stdout) {
		t.Errorf("second ADD:\n%s\nfirst:\n%s", second.Stdout, first.Stdout)
	}
	if got := r.handles(); !slices.Equal(got, []string{"net1.c1.eth0"}) {
		t.Errorf("handles %v", got)
	}
	// What differs in the kernel is repaired.
	for _, harm := range []string{
		"ip link set $HOST mtu 1200", "ip link set $HOST address 02:00:00:00:00:98", "ip link set $HOST down",
		"nsenter --net=$NS ip link set eth0 mtu 1200", "nsenter --net=$NS ip link set eth0 down",
		"nsenter --net=$NS ip route flush dev eth0", "nsenter --net=$NS ip -6 addr flush dev eth0",
	} {
		r.sh(strings.NewReplacer("$HOST", r.links()[0], "$NS", c.Netns).Replace(harm))
		if again := r.must(c); string(again.Stdout) != string(first.Stdout) {
			t.Errorf("ADD after %s:\n%s\nfirst:\n%s", harm, again.Stdout, first.Stdout)
		}
		r.must(verb("CHECK", withResult(r, c, first)))
	}
	// A link that the agent has shrunk stays so, even after the network's MTU has grown back.
	r.sh("nsenter --net=" + c.Netns + " ip link set eth0 mtu 1400")
	r.sh("ip link set " + r.links()[0] + " mtu 1400")
	index := "ip -o link show " + r.links()[0] + " | cut -d: -f1"
	before := r.sh(index)
	if again := r.must(c); string(again.Stdout) != string(first.Stdout) {
		t.Errorf("ADD after the MTU shrank:\n%s\nfirst:\n%s", again.Stdout, first.Stdout)
	}
	if after := r.sh(index); after != before {
		t.Errorf("the link was made anew: index %s became %s", before, after)
	}
	r.must(verb("CHECK", withResult(r, c, first)))
	greater := c
	greater.Stdin = r.conf(map[string]any{"mtu": 8000})
	if again := r.must(greater); string(again.Stdout) != string(first.Stdout) {
		t.Errorf("ADD with a greater MTU:\n%s\nfirst:\n%s", again.Stdout, first.Stdout)
	}
	// What was lost is made again; what others added to the endpoint stays.
	r.sh("ip link del " + r.links()[0])
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}
	ep := r.endpoints()["cni c1 eth0"]
	ep.Labels = map[string]string{"role": "web"}
	r.put(key, ep)
	if second := r.must(c); string(second.Stdout) != string(first.Stdout) {
		t.Errorf("ADD after the link was lost:\n%s\nfirst:\n%s", second.Stdout, first.Stdout)
	}
	if got := r.endpoints()["cni c1 eth0"]; got.Labels["role"] != "web" {
		t.Errorf("labels %v", got.Labels)
	}
	r.must(verb("CHECK", withResult(r, c, first)))
	r.must(verb("DEL", c))
	r.empty()
}

// withResult adds the result of an ADD as prevResult.
func withResult(r *rig, c lab.Call, reply lab.Reply) lab.Call {
	r.Helper()
	var conf map[string]any
	if err := json.Unmarshal(c.Stdin, &conf); err != nil {
		r.Fatal(err)
	}
	conf["prevResult"] = json.RawMessage(reply.Stdout)
	data, err := json.Marshal(conf)
	if err != nil {
		r.Fatal(err)
	}
	c.Stdin = data
	return c
}

// TestAddAgainWithOtherSettings asks for other addresses than the first time: asking for specific ones is an error, any
// other way gives the same answer as before.
func TestAddAgainWithOtherSettings(t *testing.T) {
	r := newRig(t, small())
	for _, plugin := range []string{"calico", "calico-ipam"} {
		c := call(r.pod(plugin), r.conf(nil))
		c.Plugin, c.Args = plugin, "IP=10.1.0.9,fd01::9,10.1.0.3"
		first := r.must(c)
		same := func(c lab.Call) {
			t.Helper()
			if again := r.must(c); string(again.Stdout) != string(first.Stdout) {
				t.Errorf("%s again:\n%s\nfirst:\n%s", plugin, again.Stdout, first.Stdout)
			}
		}
		same(c)
		other := c
		other.Args = "IP=10.1.0.9,10.1.0.10"
		r.fails(other, 105, "address 10.1.0.10: the container's interface has 10.1.0.3 and 10.1.0.9 and fd01::9 already, as handle net1.c1.eth0")
		same(c)
		for _, ipam := range []map[string]any{
			{"assign_ipv6": false}, {"ipv4_pools": []string{"10.99.0.0/16"}}, {"ipv6_pools": []string{"fd99::/64"}, "assign_ipv6": true},
		} {
			ipam["type"] = "calico-ipam"
			other := c
			other.Stdin = r.conf(map[string]any{"ipam": ipam})
			same(other)
		}
		r.must(verb("DEL", c))

		// A family that comes later is the next pod's.
		only4 := c
		only4.Args, only4.Stdin = "", r.conf(map[string]any{"ipam": map[string]any{"type": "calico-ipam", "assign_ipv6": false}})
		first = r.must(only4)
		both := only4
		both.Stdin = c.Stdin
		same(both)
		r.must(verb("DEL", c))
		r.empty()
	}
}

func TestPodMovesToANewSandbox(t *testing.T) {
	r := newRig(t, small())
	first := call(r.pod("one"), r.conf(nil))
	first.Args = k8sArgs
	before := r.add(first)
	second := first
	second.Netns, second.ContainerID = r.pod("two"), "c2"
	after := r.add(second)
	if got := r.handles(); !slices.Equal(got, []string{"net1.c2.eth0"}) {
		t.Errorf("handles %v", got)
	}
	if ep := r.endpoints()["k8s default.web eth0"]; ep.ContainerID != "c2" {
		t.Errorf("endpoint %+v", ep)
	}
	if before.Interfaces[0].Name != after.Interfaces[0].Name {
		t.Errorf("%s became %s", before.Interfaces[0].Name, after.Interfaces[0].Name)
	}
	// The late DEL of the old sandbox touches nothing.
	r.must(verb("DEL", first))
	r.must(verb("CHECK", withResult(r, second, r.must(second))))
	r.must(verb("DEL", second))
	r.empty()
}

// TestPoolOfTheHost uses a pool that contains the host's own network: no pod gets an address of the host.
func TestPoolOfTheHost(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{netip.MustParsePrefix("10.7.0.0/29"), netip.MustParsePrefix("fd07::/125")}})
	for _, own := range []string{"10.7.0.0/29", "10.7.0.2/29", "fd07::2/125"} {
		r.sh("ip addr add " + own + " dev eth0 nodad")
	}
	conf := r.conf(map[string]any{"ipam": map[string]any{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"}})
	var got []netip.Addr
	for i := range 3 {
		c := call(r.pod(fmt.Sprintf("pod%d", i)), conf)
		c.ContainerID = fmt.Sprintf("c%d", i)
		got = append(got, addrs(r.add(c))...)
	}
	var want []netip.Addr
	for _, a := range []string{"10.7.0.1", "fd07::", "10.7.0.3", "fd07::1", "10.7.0.4", "fd07::3"} {
		want = append(want, netip.MustParseAddr(a))
	}
	if !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	c := call(r.pod("asks"), conf)
	c.ContainerID = "asks"
	r.sh("ip addr add 10.7.0.5/29 dev eth0")
	c.Args = "IP=10.7.0.5"
	r.fails(c, 105, "address 10.7.0.5: this host has it itself")
}

// TestPoolOfTheHosts uses a pool that contains the network of all hosts: each of its addresses, except the hosts', is
// assigned to a pod.
func TestPoolOfTheHosts(t *testing.T) {
	for _, plugin := range []string{"calico", "calico-ipam"} {
		t.Run(plugin, func(t *testing.T) {
			r := newRig(t, lab.Config{Pools: []netip.Prefix{prefix("10.7.0.0/27"), prefix("fd07::/123")}})
			conf := r.conf(map[string]any{"type": map[string]string{"calico": "calico", "calico-ipam": "bridge"}[plugin], "isGateway": true})
			next := 0
			ask := func() lab.Call {
				next++
				c := call(r.pod(fmt.Sprintf("pod%d", next)), conf)
				c.Plugin, c.ContainerID = plugin, fmt.Sprintf("c%d", next)
				return c
			}
			trips := func() int {
				c := ask()
				r.must(c)
				n := r.roundTrips()
				r.must(verb("DEL", c))
				return n
			}
			trips() // claims the blocks
			ordinary := trips()
			// A tunnel's address and the gateway of a bridge don't count as signs of the hosts' network.
			r.sh("ip link add tunl0 type bridge && ip addr add 10.7.0.30/32 dev tunl0")
			if plugin == "calico-ipam" {
				r.sh("ip link add cni0 type bridge && ip addr add 10.7.0.1/27 dev cni0 && ip addr add fd07::1/123 dev cni0 nodad")
			}
			if n := trips(); n != ordinary {
				t.Errorf("%d round trips with a tunnel, without %d", n, ordinary)
			}
			r.sh("ip addr add 10.7.0.2/27 dev eth0 && ip addr add 10.7.0.0/27 dev eth0 && ip addr add fd07::2/123 dev eth0 nodad")
			for i := range 20 {
				host := fmt.Sprintf("h%d", i)
				r.put(model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, model.Text(fmt.Sprintf("10.7.0.%d", i+3)))
				r.put(model.BGPHostKey{Host: host, Field: model.BGPHostIPv6}, model.Text(fmt.Sprintf("fd07::%x", i+3)))
			}
			if plugin == "calico" {
				asks := ask()
				asks.Args = "IP=10.7.0.3"
				r.fails(asks, 105, "address 10.7.0.3: host h0 has it itself")
			}
			var got, want []netip.Addr
			for _, a := range []string{"10.7.0.1", "10.7.0.23", "10.7.0.24", "10.7.0.25", "10.7.0.26", "10.7.0.27", "10.7.0.28", "10.7.0.29"} {
				want = append(want, netip.MustParseAddr(a))
			}
			if plugin == "calico-ipam" {
				want = want[1:] // but for the gateway
			}
			for i := range want {
				for _, a := range addrs(r.add(ask())) {
					if a.Is4() {
						got = append(got, a)
					} else if n := a.As16()[15]; n > 1 && n < 23 {
						t.Errorf("%s is a host's", a)
					}
				}
				if n := r.roundTrips(); i == 1 && n != ordinary+1 { // nothing is left to be set aside
					t.Errorf("%d round trips, without hosts in the pool %d", n, ordinary)
				}
			}
			if slices.SortFunc(got, netip.Addr.Compare); !slices.Equal(got, want) {
				t.Errorf("addresses %v, want %v", got, want)
			}
			if _, err := r.host.CNI(r.ctx(), ask()); err == nil || !strings.Contains(err.Error(), "no free IPv4 address") {
				t.Errorf("the pool is exhausted: %v", err)
			}
		})
	}
}

func TestWantedAddresses(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(map[string]any{
		"runtimeConfig": map[string]any{"ips": []string{"10.1.0.9/26"}, "mac": "02:00:00:00:00:09"},
		"args":          map[string]any{"cni": map[string]any{"ips": []string{"10.1.0.10"}}},
	}))
	c.Args = "IP=10.1.0.11;MAC=02:00:00:00:00:11"
	result := r.add(c)
	if got := addrs(result); got[0] != netip.MustParseAddr("10.1.0.9") || len(got) != 2 || result.Interfaces[1].Mac != "02:00:00:00:00:09" {
		t.Errorf("addresses %v, MAC %s", got, result.Interfaces[1].Mac)
	}
	// Each family is separate: nerdctl passes --ip in CNI_ARGS, and --ip6 in runtimeConfig.
	both := call(r.pod("both"), r.conf(map[string]any{"runtimeConfig": map[string]any{"ips": []string{"fd01::12"}}}))
	both.ContainerID, both.Args = "c3", "IP=10.1.0.12,fd01::13"
	if got, want := addrs(r.add(both)), []netip.Addr{netip.MustParseAddr("10.1.0.12"), netip.MustParseAddr("fd01::12")}; !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	r.must(verb("DEL", both))
	other := call(r.pod("other"), r.conf(nil))
	other.ContainerID, other.Args = "c2", "IP=10.1.0.9"
	r.fails(other, 105, "address 10.1.0.9 is taken by handle net1.c1.eth0")
	other.Args = "IP=10.9.9.9"
	if _, err := r.host.CNI(r.ctx(), other); err == nil || !strings.Contains(err.Error(), "10.9.9.9") {
		t.Errorf("an address of no pool: %v", err)
	}
	r.must(verb("DEL", c))
	r.empty()
}

// TestAddressesOfManyBlocks asks for specific addresses, each in a different block: etcd accepts no more than 128
// operations in one transaction.
func TestAddressesOfManyBlocks(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{prefix("10.4.0.0/16")}})
	ask := func(first, n int) []byte {
		var ips []string
		for i := range n {
			ips = append(ips, fmt.Sprintf("10.4.%d.%d", (first+i)/4, (first+i)%4*64))
		}
		return r.conf(map[string]any{
			"ipam": map[string]any{"type": "calico-ipam"},
			"args": map[string]any{"cni": map[string]any{"ips": ips}},
		})
	}
	c := call(r.pod("pod"), ask(0, 31))
	const many = "the addresses that are asked for lie in 31 blocks: those of one container may lie in 30"
	for _, plugin := range []string{"calico", "calico-ipam"} {
		c.Plugin = plugin
		r.fails(c, 7, many)
		r.fails(lab.Call{Plugin: plugin, Verb: "STATUS", Stdin: c.Stdin}, 50, many)
	}
	r.empty()
	// A pod's next sandbox releases as many as it claims, and blocks that are in no pool any more are deleted.
	first := call(r.pod("one"), ask(0, 30))
	first.Args = k8sArgs
	r.add(first)
	second := call(r.pod("two"), ask(100, 30))
	second.ContainerID, second.Args = "c2", k8sArgs
	r.add(second)
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{model.PoolKey{CIDR: prefix("10.4.0.0/16")}}}); err != nil {
		t.Fatal(err)
	}
	r.must(verb("DEL", second))
	r.put(model.PoolKey{CIDR: prefix("10.4.0.0/16")}, model.Pool{CIDR: prefix("10.4.0.0/16")})
	r.empty()
}

// TestGatewaysOfManyPools asks for addresses from as many pools as can have their gateways reserved in one transaction,
// and then from one more.
func TestGatewaysOfManyPools(t *testing.T) {
	var pools []netip.Prefix
	var ips []string
	for i := range 16 {
		pools = append(pools, prefix(fmt.Sprintf("10.4.%d.0/24", i)))
		ips = append(ips, fmt.Sprintf("10.4.%d.77", i), fmt.Sprintf("10.4.%d.177", i))
	}
	r := newRig(t, lab.Config{Pools: pools})
	ask := func(n int) lab.Call {
		c := call(r.pod(fmt.Sprintf("pod%d", n)), r.conf(map[string]any{
			"type": "bridge", "isGateway": true, "ipam": map[string]any{"type": "calico-ipam"},
			"args": map[string]any{"cni": map[string]any{"ips": ips[:n]}},
		}))
		c.Plugin = "calico-ipam"
		return c
	}
	r.fails(ask(31), 7, "the addresses that are asked for lie in 31 blocks: those of one container may lie in 30")
	most := ask(30)
	r.must(most)
	r.must(verb("DEL", most))
	ips = slices.DeleteFunc(ips, func(ip string) bool { return strings.HasSuffix(ip, ".177") })
	r.fails(ask(16), 7, "the addresses that are asked for have 16 gateways: those of one container may have 15")
}

// TestFormerSandboxRead counts what an ADD reads from etcd to release a former sandbox's addresses.
func TestFormerSandboxRead(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{prefix("10.4.0.0/16")}})
	var trips []int
	for _, n := range []int{1, 8} {
		var ips []string
		for i := range n {
			ips = append(ips, fmt.Sprintf("10.4.%d.0", i))
		}
		ipam := map[string]any{"type": "calico-ipam"}
		c := call(r.pod(fmt.Sprintf("first%d", n)), r.conf(map[string]any{"ipam": ipam, "args": map[string]any{"cni": map[string]any{"ips": ips}}}))
		c.ContainerID, c.Args = fmt.Sprintf("first%d", n), k8sArgs
		r.must(c)
		c = call(r.pod(fmt.Sprintf("second%d", n)), r.conf(map[string]any{"ipam": ipam}))
		c.ContainerID, c.Args = fmt.Sprintf("second%d", n), k8sArgs
		r.must(c)
		trips = append(trips, r.roundTrips())
		r.must(verb("DEL", c))
	}
	if trips[0] > 4 || trips[1] > 5 { // the former handle, and its blocks if other calls came in between
		t.Errorf("round trips to free one address and eight: %v", trips)
	}
}

// TestBlocksOfOneAddress makes an ADD read all blocks of its host, more than fit in one etcd transaction, in one round
// trip.
func TestBlocksOfOneAddress(t *testing.T) {
	pools := []netip.Prefix{prefix("10.4.0.0/22"), prefix("fd04::/118")}
	r := newRig(t, lab.Config{Pools: pools})
	for _, p := range pools {
		r.put(model.PoolKey{CIDR: p}, model.Pool{CIDR: p, BlockSize: p.Addr().BitLen(), IPAM: true})
	}
	pod := r.pod("pod")
	ask := func(n int) lab.Call {
		c := call(pod, r.conf(nil))
		c.Plugin, c.ContainerID = "calico-ipam", fmt.Sprintf("c%d", n)
		return c
	}
	const n = 100
	for i := range n {
		r.must(ask(i))
		if trips := r.roundTrips(); trips > 4 { // own blocks are more than one request takes
			t.Fatalf("ADD %d: %d round trips", i, trips)
		}
	}
	// Released addresses are assigned again although they are in none of the most recently claimed blocks.
	freed := addrs(r.result(r.must(ask(5))))
	r.must(verb("DEL", ask(5)))
	if got := addrs(r.result(r.must(ask(n)))); !slices.Equal(got, freed) {
		t.Errorf("got %v after %v were freed", got, freed)
	}
	if trips := r.roundTrips(); trips > 4 { // own blocks are more than one request takes
		t.Errorf("%d round trips", trips)
	}
	r.sound()
}

func TestPools(t *testing.T) {
	r := newRig(t, small())
	pod := r.pod("pod")
	ipam := func(fields map[string]any) lab.Call {
		fields["type"] = "calico-ipam"
		return call(pod, r.conf(map[string]any{"ipam": fields}))
	}
	r.fails(ipam(map[string]any{"ipv4_pools": []string{"10.7.0.0/16"}}), 103,
		"requested pool 10.7.0.0/16: no such pool, there are 10.1.0.0/26")
	r.fails(ipam(map[string]any{"assign_ipv4": false}), 7, "ipam.assign_ipv4: neither IPv4 nor IPv6 is to be assigned")
	got := addrs(r.add(ipam(map[string]any{"assign_ipv4": false, "assign_ipv6": "true", "ipv6_pools": []string{"fd01::/122"}})))
	if len(got) != 1 || !got[0].Is6() {
		t.Errorf("addresses %v", got)
	}
	r.must(verb("DEL", ipam(map[string]any{})))
	for i := range 64 {
		c := call("", r.conf(nil))
		c.Plugin, c.ContainerID, c.Netns = "calico-ipam", fmt.Sprintf("fill%d", i), pod
		r.must(c)
	}
	r.fails(ipam(map[string]any{}), 104, "no free IPv4 address: pool 10.1.0.0/26: no room for a new block; 1 of its 1 blocks are full")
	for i := range 64 {
		c := verb("DEL", call("", r.conf(nil)))
		c.Plugin, c.ContainerID = "calico-ipam", fmt.Sprintf("fill%d", i)
		r.must(c)
	}
	r.empty()
}
