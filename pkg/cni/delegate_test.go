// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
	"github.com/google/go-cmp/cmp"
)

// hostLocal returns a configuration with addresses from host-local, and the directory where that stores them.
func (r *rig) hostLocal(change map[string]any) (conf []byte, dir string) {
	r.Helper()
	dir = filepath.Join(r.TempDir(), "hl")
	ipam := map[string]any{"type": "host-local", "dataDir": dir, "ranges": []any{
		[]any{map[string]any{"subnet": "10.8.0.0/24"}}, []any{map[string]any{"subnet": "fd08::/64"}},
	}}
	fields := map[string]any{"ipam": ipam}
	for k, v := range change {
		if k == "routes" {
			ipam["routes"] = v
		} else {
			fields[k] = v
		}
	}
	return r.conf(fields), dir
}

// leases returns the addresses that host-local has assigned.
func leases(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "net1"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestHostLocal(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	c := call(r.pod("pod"), conf)
	reply := r.must(c)
	if got := addrs(r.result(reply)); !slices.Equal(got, []netip.Addr{netip.MustParseAddr("10.8.0.2"), netip.MustParseAddr("fd08::2")}) {
		t.Errorf("addresses %v", got)
	}
	if ep := r.endpoints()["cni c1 eth0"]; !slices.Equal(ep.Addrs(), addrs(r.result(reply))) {
		t.Errorf("endpoint %+v", ep)
	}
	if got := r.handles(); len(got) != 0 {
		t.Errorf("handles %v", got)
	}
	r.must(verb("CHECK", withResult(r, c, reply)))
	r.must(verb("STATUS", c))
	r.must(verb("DEL", c))
	r.must(verb("DEL", c))
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.empty()

	// GC goes to both.
	r.add(c)
	other := c
	other.ContainerID, other.Netns = "c2", r.pod("other")
	kept := r.add(other)
	r.sh("ip link del " + kept.Interfaces[0].Name)
	gc := lab.Call{Verb: "GC", Stdin: []byte(strings.TrimSuffix(string(conf), "}") +
		`,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}`)}
	r.must(gc)
	if got := leases(t, dir); len(got) != 2 {
		t.Errorf("host-local has %v", got)
	}
	if got := r.endpoints(); len(got) != 1 || len(r.links()) != 1 {
		t.Errorf("after GC: %v, %v", got, r.links())
	}
	r.must(verb("DEL", c))
	r.empty()

	// That it assigns IPv6 is only known once it has.
	c.Stdin, dir = r.hostLocal(map[string]any{"runtimeConfig": map[string]any{"mac": "ee:ee:ee:ee:ee:ee"}})
	r.fails(c, 7, "runtimeConfig.mac: ee:ee:ee:ee:ee:ee is the host's end's, by which a container with IPv6 has its gateway")
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.empty()
}

// TestHostLocalAgainUndone: a repeated ADD fails after the addresses of the first one were released, so the endpoint
// must be removed too.
func TestHostLocalAgainUndone(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(map[string]any{"policy_setup_timeout_seconds": 1})
	c := call(r.pod("pod"), conf)
	r.add(c)
	r.agentRan()
	r.failsLike(c, 11, "the agent didn't confirm within [0-9ms]+ that the pod's network is programmed: .*no agent listens")
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.empty()
}

// TestHostLocalSandboxes starts a pod's sandbox again and again without a DEL of the former one, whose namespace may be
// gone, as after a restart of the host: the pod always holds one address.
func TestHostLocalSandboxes(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	dir := filepath.Join(r.TempDir(), "hl")
	c := call("", r.conf(map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": dir, "subnet": "10.8.0.0/29"}}))
	c.Args = k8sArgs
	for i := range 8 {
		c.ContainerID, c.Netns = fmt.Sprintf("c%d", i), r.pod(fmt.Sprintf("pod%d", i))
		got := addrs(r.add(c))
		if held := leases(t, dir); len(held) != 1 || held[0] != got[0].String() {
			t.Errorf("sandbox %d: the pod has %v, host-local has %v", i, got, held)
		}
		if i%2 == 0 { // as a link goes with its namespace
			r.sh("ip link del " + r.links()[0])
		}
	}
	r.must(verb("DEL", c))
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.empty()
}

// TestOlderIPAMPlugin uses a list of version 1.1.0 with IPAM plugins that support only older versions: each verb uses
// theirs.
func TestOlderIPAMPlugin(t *testing.T) {
	long.Test(t)
	bin := t.TempDir()
	r := newRig(t, lab.Config{CNIPath: []string{bin}, Pools: []netip.Prefix{}})
	dir := filepath.Join(r.TempDir(), "hl")
	c := call(r.pod("pod"), r.conf(map[string]any{"ipam": map[string]any{"type": "older", "dataDir": dir, "subnet": "10.8.0.0/29"}}))
	knows := func(versions string) {
		script := `#!/bin/sh
conf=$(cat)
case "$CNI_COMMAND,$conf" in
VERSION,*) echo '{"cniVersion":"1.0.0","supportedVersions":[` + versions + `]}'; exit ;;
*'"cniVersion":"1.1.0"'*) echo '{"cniVersion":"1.0.0","code":1,"msg":"incompatible CNI versions"}'; exit 1 ;;
esac
printf %s "$conf" | exec ` + filepath.Join(reference(t), "host-local")
		if err := os.WriteFile(filepath.Join(bin, "older"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, versions := range []string{`"0.3.1"`, `"0.3.1","0.4.0"`, `"0.4.0","1.0.0"`} {
		knows(versions)
		r.must(verb("STATUS", c))
		reply := r.must(c)
		r.must(verb("CHECK", withResult(r, c, reply)))
		gone := c
		gone.ContainerID, gone.Netns = fmt.Sprintf("gone%d", i), r.pod(fmt.Sprintf("gone%d", i))
		r.add(gone)
		r.must(lab.Call{Verb: "GC", Stdin: []byte(strings.TrimSuffix(string(c.Stdin), "}") +
			`,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}`)})
		if got := leases(t, dir); len(got) != 1 {
			t.Errorf("%s: after GC host-local has %v", versions, got)
		}
		r.must(verb("DEL", withResult(r, c, reply)))
		if got := leases(t, dir); len(got) != 0 {
			t.Errorf("%s: host-local still has %v", versions, got)
		}
		r.empty()
	}
	knows(`"9.0.0"`)
	const says = "IPAM plugin older: it knows the versions 9.0.0 of CNI alone"
	r.fails(c, 7, says)
	r.fails(verb("STATUS", c), 7, says)
	r.empty()
}

// TestDelOfAPodCIDR deletes what other software has made with a configuration that an ADD here rejects.
func TestDelOfAPodCIDR(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	c := call(r.pod("pod"), conf)
	r.add(c)
	conf = bytes.ReplaceAll(conf, []byte(`"10.8.0.0/24"`), []byte(`"usePodCidr"`))
	c.Stdin = bytes.ReplaceAll(conf, []byte(`"fd08::/64"`), []byte(`"usePodCidrIPv6"`))
	r.failsLike(c, 7, "ipam.subnet: usePodCidr is what calico-node reads from the Kubernetes API, and it never ran on this node: .*")
	gc := lab.Call{Verb: "GC", Stdin: slices.Concat(bytes.TrimSuffix(c.Stdin, []byte("}")),
		[]byte(`,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}`))}
	r.must(gc)
	if got := leases(t, dir); len(got) != 2 {
		t.Errorf("host-local has %v", got)
	}
	r.must(verb("DEL", c))
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.must(verb("DEL", c))
	r.empty()
}

func TestHostLocalRoutes(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	routes := []any{map[string]any{"dst": "192.168.0.0/16"}, map[string]any{"dst": "fd99::/48"}}
	for _, tt := range []struct {
		include bool
		want    []string
	}{
		{false, []string{"192.168.0.0/16 169.254.1.1", "fd99::/48 fe80::ecee:eeff:feee:eeee"}},
		{true, []string{"0.0.0.0/0 169.254.1.1", "::/0 fe80::ecee:eeff:feee:eeee", "192.168.0.0/16 169.254.1.1", "fd99::/48 fe80::ecee:eeff:feee:eeee"}},
	} {
		conf, _ := r.hostLocal(map[string]any{"routes": routes, "include_default_routes": tt.include})
		c := call("", conf)
		c.Netns = r.pod(map[bool]string{false: "without", true: "with"}[tt.include])
		reply := r.must(c)
		var got []string
		for _, route := range r.result(reply).Routes {
			got = append(got, route.Dst.String()+" "+route.GW.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("include_default_routes %v: routes %v, want %v", tt.include, got, tt.want)
		}
		r.must(verb("CHECK", withResult(r, c, reply)))
		r.must(verb("DEL", c))
	}
	r.empty()
}

func TestStatic(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	c := call(r.pod("pod"), r.conf(map[string]any{"ipam": map[string]any{
		"type": "static", "addresses": []any{map[string]any{"address": "10.5.0.5/24", "gateway": "10.5.0.1"}},
	}}))
	reply := r.must(c)
	if got := r.result(reply).IPs[0].Address.String(); got != "10.5.0.5/32" {
		t.Errorf("address %s", got)
	}
	r.must(verb("CHECK", withResult(r, c, reply)))
	r.must(verb("DEL", c))
	r.empty()
}

// TestDelegateUndone shows that an ADD that fails later releases what the other plugin assigned, and that the other
// plugin's errors keep their code.
func TestDelegateUndone(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	r.put(model.ReadyKey{}, model.Ready(false))
	r.failsLike(call(r.pod("pod"), conf), 11, `.*/calico/v1/Ready.*`)
	r.put(model.ReadyKey{}, model.Ready(true))
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.empty()
	bad := call(r.pod("bad"), r.conf(map[string]any{"ipam": map[string]any{"type": "static", "addresses": []any{map[string]any{"address": "x"}}}}))
	_, err := r.host.CNI(r.ctx(), bad)
	if err == nil || !strings.HasPrefix(err.Error(), "IPAM plugin static: ") {
		t.Errorf("got %v", err)
	}
	r.empty()
}

// TestAnswersOfOtherPlugins uses IPAM plugins with invalid answers.
func TestAnswersOfOtherPlugins(t *testing.T) {
	long.Test(t)
	bin := t.TempDir()
	r := newRig(t, lab.Config{CNIPath: []string{bin}, Pools: []netip.Prefix{}})
	c := call(r.pod("pod"), r.conf(map[string]any{"ipam": map[string]any{"type": "other"}}))
	for _, tt := range []struct {
		answer string
		code   uint
		want   string
	}{
		{"", 6, "IPAM plugin other: .*unexpected end of JSON input"},
		{"{", 6, "IPAM plugin other: .*unexpected end of JSON input"},
		{"[]", 6, "IPAM plugin other: .*cannot unmarshal array.*"},
		{"null", 7, "the IPAM plugin other gave no address"},
		{"{}", 7, "the IPAM plugin other gave no address"},
		{`{"cniVersion":"1.0.0","ips":[null]}`, 6, `result of the IPAM plugin other: ips\[0\]: want an object, got null`},
		{`{"cniVersion":"1.0.0","routes":[null],"ips":[{"address":"10.9.9.9/24"}]}`, 6, `result of the IPAM plugin other: routes\[0\]: want an object, got null`},
		{`{"cniVersion":"1.0.0","ips":[{"address":"0.0.0.0/0"}]}`, 7, "the IPAM plugin other gave 0.0.0.0: not an address that a container can have here"},
		{`{"cniVersion":"1.0.0","ips":[{"address":"127.0.0.1/8"}]}`, 7, "the IPAM plugin other gave 127.0.0.1: .*"},
		{`{"cniVersion":"1.0.0","ips":[{"address":"10.9.9.9/24"},{"address":"ff02::1/64"}]}`, 7, "the IPAM plugin other gave ff02::1: .*"},
		{`{"cniVersion":"1.0.0","ips":[{"address":"fe80::1/64"}]}`, 7, "the IPAM plugin other gave fe80::1: .*"},
		{"X\nexit 3", 5, "IPAM plugin other: netplugin failed: .*exit status 3.*"},
	} {
		script := "#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND = ADD ] || exit 0\ncat <<'X'\n" + tt.answer + "\nX\n"
		if strings.HasPrefix(tt.answer, "X\n") {
			script = strings.Replace(script, "cat <<'X'\nX\n", "echo oh no >&2\n", 1)
		}
		if err := os.WriteFile(filepath.Join(bin, "other"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		r.failsLike(c, tt.code, tt.want)
		r.must(verb("DEL", c))
		r.nothingDelegated("")
	}
}

// TestArgumentsThatOthersRefuse shows that what makes an ADD fail does not make a container undeletable.
func TestArgumentsThatOthersRefuse(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	c := call(r.pod("pod"), conf)
	c.Args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web" // ours, and unknown to host-local
	r.failsLike(c, 999, `IPAM plugin host-local: ARGS: unknown args .*`)
	r.must(verb("DEL", c))
	c.Args += ";IgnoreUnknown=1"
	for _, args := range []string{"K8S_POD_NAMESPACE=default;K8S_POD_NAME=web", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;x"} {
		r.must(c)
		del := verb("DEL", c)
		del.Args = args
		r.must(del)
		r.nothingDelegated(dir)
	}
}

// TestMainPluginAsIPAM sets ipam.type to plugins that themselves ask ipam.type for addresses.
func TestMainPluginAsIPAM(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	for _, name := range []string{"calico", "ptp"} {
		c := call(r.pod(name), r.conf(map[string]any{"ipam": map[string]any{"type": name}}))
		msg := "ipam.type " + name + " is a main plugin: it asks ipam.type for addresses, which is itself"
		r.fails(c, 7, msg)
		r.fails(verb("STATUS", c), 7, msg)
		r.must(verb("DEL", c))
		r.must(verb("GC", withAttachments(r, c)))
		r.empty()
	}
}

// TestOtherMainPlugins lets the reference plugins take their addresses from calico-ipam.
func TestOtherMainPlugins(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{
		CNIPath: []string{reference(t)}, Pools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/64")},
	})
	for _, tt := range []struct {
		name, plugin string
		conf         map[string]any
		gateway      bool // pods and host reach each other; a macvlan's don't
	}{
		{"ptp", "ptp", map[string]any{}, true},
		{"with-gateway", "bridge", map[string]any{"bridge": "br0", "isGateway": true}, true},
		{"with-default", "bridge", map[string]any{"bridge": "br1", "isDefaultGateway": true, "ipMasq": false}, true},
		{"macvlan", "macvlan", map[string]any{"master": "eth0", "mode": "bridge"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rig{t, r.lab, r.host}
			conf := map[string]any{
				"type": tt.plugin, "name": tt.name, "ipam": map[string]any{"type": "calico-ipam", "assign_ipv6": true},
			}
			maps.Copy(conf, tt.conf)
			data := r.conf(conf)
			var pods []lab.Call
			for _, name := range []string{"one", "two"} {
				c := call(r.pod(tt.name+"-"+name), data)
				c.Plugin, c.ContainerID = tt.plugin, name
				pods = append(pods, c)
			}
			r.must(verb("STATUS", pods[0]))
			one, two := r.must(pods[0]), r.must(pods[1])
			r.must(verb("CHECK", withResult(r, pods[0], one)))
			inOne := r.namespace(pods[0].Netns)
			targets := addrs(r.result(two))
			if len(targets) != 2 {
				t.Errorf("addresses %v", targets)
			}
			if tt.gateway {
				targets = append(targets, netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd01::1"))
			}
			for _, to := range targets {
				if _, err := inOne.Ping(r.ctx(), to); err != nil {
					t.Errorf("from a pod to %s: %v", to, err)
				}
				if !tt.gateway {
					continue
				}
				if _, err := r.host.Namespace().Ping(r.ctx(), to); err != nil {
					t.Errorf("from the host to %s: %v", to, err)
				}
			}
			for range 2 {
				r.must(verb("DEL", pods[0]))
			}

			// The other container's DEL never comes. These plugins don't pass GC on: a runtime that needs it must call
			// calico-ipam itself.
			gc := lab.Call{Plugin: "calico-ipam", Verb: "GC"}
			gc.Stdin = r.conf(with(conf, "cni.dev/valid-attachments", []any{map[string]any{"containerID": "two", "ifname": "eth0"}}))
			r.must(gc)
			if got := r.held(); !slices.Equal(got, []string{tt.name + ".two.eth0"}) {
				t.Errorf("after GC that keeps it: %v", got)
			}
			gc.Stdin = r.conf(with(conf, "cni.dev/valid-attachments", []any{}))
			r.must(gc)
			if got := r.held(); len(got) != 0 {
				t.Errorf("after GC: %v", got)
			}
			r.must(verb("DEL", pods[1])) // its interface

			away := pods[0]
			away.Stdin = r.conf(with(with(conf, "etcd_endpoints", "http://127.0.0.1:1"), "datastore_timeout_seconds", 4))
			r.failsLike(verb("STATUS", away), 50, ".*connection refused.*")
			r.failsLike(away, 11, ".*connection refused.*")
			if bridge, ok := tt.conf["bridge"].(string); ok {
				r.sh("ip link del " + bridge)
			}
		})
	}
}

// TestRoundTripsWithGateways checks that the gateways are reserved within the three round trips of every ADD: the first
// one of a cluster, one whose block is not yet known to contain the pool's first address, and all others.
func TestRoundTripsWithGateways(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{Pools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/64")}})
	for _, tt := range []struct {
		name string
		conf map[string]any
	}{
		{"ptp", map[string]any{"type": "ptp"}},
		{"bridge", map[string]any{"type": "bridge", "isGateway": true}},
		{"elsewhere", map[string]any{"type": "bridge", "ipam": map[string]any{"type": "calico-ipam", "assign_ipv6": true, "gateway": "10.1.9.9"}}},
	} {
		c := call(r.pod(tt.name), r.conf(tt.conf))
		c.Plugin = "calico-ipam"
		for i := range 4 {
			c.ContainerID = fmt.Sprint(tt.name, i)
			r.must(c)
			if n := r.roundTrips(); n > 3 && i > 0 || n > 7 { // the first one reserves the gateways
				t.Errorf("%s: ADD %d: %d round trips", tt.name, i, n)
			}
		}
	}
	byNumber := call(r.pod("by-number"), r.conf(map[string]any{"type": "ptp"}))
	byNumber.Plugin, byNumber.Args = "calico-ipam", "IP=10.2.0.7"
	r.put(model.PoolKey{CIDR: prefix("10.2.0.0/24")}, model.Pool{CIDR: prefix("10.2.0.0/24"), BlockSize: 26, IPAM: true})
	r.must(byNumber)
	if n := r.roundTrips(); n > 5 {
		t.Errorf("an address by number, of another pool: %d round trips", n)
	}
	r.sound()
}

// TestRoundTripsInABurst: ADDs wait for each other while those before them claim one block after another.
func TestRoundTripsInABurst(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{})
	r.put(model.PoolKey{CIDR: prefix("10.1.0.0/16")}, model.Pool{CIDR: prefix("10.1.0.0/16"), BlockSize: 28, IPAM: true})
	c := call(r.pod("pod"), r.conf(map[string]any{"type": "macvlan"}))
	c.Plugin = "calico-ipam"
	const calls = 60
	var all sync.WaitGroup
	for i := range calls {
		c := c
		c.ContainerID = fmt.Sprint("c", i)
		all.Go(func() {
			if reply, err := r.host.CNI(r.ctx(), c); err != nil {
				t.Errorf("%s: %v\n%s", c.ContainerID, err, reply.Stderr)
			}
		})
	}
	all.Wait()
	trips := r.allRoundTrips()
	if len(trips) != calls || slices.Max(trips) > 4 {
		t.Errorf("%d calls, round trips %v, want 4 at most", len(trips), trips)
	}
	r.sound()
}

// with returns a configuration with one more field.
func with(conf map[string]any, name string, value any) map[string]any {
	out := maps.Clone(conf)
	out[name] = value
	return out
}

// held returns the handles of pods, without those of gateways.
func (r *rig) held() []string {
	r.Helper()
	return slices.DeleteFunc(r.handles(), func(h string) bool { return strings.HasPrefix(h, "gateway.") })
}

func TestIPAMResult(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/26"), netip.MustParsePrefix("fd01::/122")}})
	c := call(r.pod("pod"), r.conf(map[string]any{"type": "macvlan"}))
	c.Plugin, c.Args = "calico-ipam", "IP=10.1.0.7,fd01::7"
	reply := r.must(c)
	golden(t, "testdata/ipam-macvlan.json", reply.Stdout)
	r.must(verb("CHECK", withResult(r, c, reply)))
	if again := r.must(c); string(again.Stdout) != string(reply.Stdout) {
		t.Errorf("again: %s", again.Stdout)
	}
	r.must(verb("DEL", c))
	r.fails(verb("CHECK", withResult(r, c, reply)), 107, "etcd has no address for handle net1.c1.eth0")
	withIPAM := func(fields map[string]any) []byte {
		fields["type"] = "calico-ipam"
		return r.conf(map[string]any{"type": "macvlan", "ipam": fields})
	}
	c.Stdin = withIPAM(map[string]any{"gateway": "10.1.0.1"})
	golden(t, "testdata/ipam-gateway.json", r.must(c).Stdout)
	r.must(verb("DEL", c))
	c.Stdin, c.Args = r.conf(map[string]any{"type": "bridge", "isGateway": true}), "IP=10.1.0.1"
	r.fails(c, 105, "address 10.1.0.1 is taken by handle gateway.10.1.0.1")
	var said map[string]any
	if err := json.Unmarshal(reply.Stdout, &said); err != nil || said["cniVersion"] != "1.1.0" {
		t.Errorf("%v, %v", said, err)
	}
	// The gateway is every host's, and stays.
	if got := r.handles(); !slices.Equal(got, []string{"gateway.10.1.0.1"}) {
		t.Errorf("handles %v", got)
	}
}

// TestGatewayTaken: a container has the address that should become the next one's gateway. STATUS gives the same error
// as each ADD.
func TestGatewayTaken(t *testing.T) {
	r := newRig(t, small())
	former := call(r.pod("former"), r.conf(nil))
	former.ContainerID, former.Args = "former", "IP=10.1.0.1"
	r.add(former)
	for _, tt := range []struct {
		fields map[string]any
		what   string
	}{
		{map[string]any{"type": "ptp"}, "the gateway of ptp, the first address of its network"},
		{map[string]any{"type": "macvlan", "ipam": map[string]any{"type": "calico-ipam", "gateway": "10.1.0.1"}}, "ipam.gateway"},
	} {
		tt.fields["cniVersion"] = "1.1.0"
		c := call(r.pod(tt.what[:3]), r.conf(tt.fields))
		c.Plugin = "calico-ipam"
		want := "reserve " + tt.what + ": address 10.1.0.1 is taken by handle net1.former.eth0"
		r.fails(c, 105, want)
		r.fails(lab.Call{Plugin: c.Plugin, Verb: "STATUS", Stdin: c.Stdin}, 50, want)
	}
	r.must(verb("DEL", former))
	r.empty()
}

// TestNetworksOwnAddresses fills pools through plugins that put their subnet on the link: addresses that mean the
// subnet as a whole, or all its routers, are not assigned to pods.
func TestNetworksOwnAddresses(t *testing.T) {
	for _, tt := range []struct {
		plugin string
		want   []string
	}{
		{"macvlan", []string{"10.1.0.1/29", "10.1.0.2/29", "10.1.0.3/29", "10.1.0.4/29", "10.1.0.5/29", "10.1.0.6/29"}},
		{"ptp", []string{"10.1.0.2/29", "10.1.0.3/29", "10.1.0.4/29", "10.1.0.5/29", "10.1.0.6/29"}},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			r := newRig(t, lab.Config{})
			for _, p := range []string{"10.1.0.0/29", "fd01::/125"} {
				r.put(model.PoolKey{CIDR: prefix(p)}, model.Pool{CIDR: prefix(p), BlockSize: prefix(p).Bits(), IPAM: true})
			}
			ipam := map[string]any{"type": "calico-ipam", "assign_ipv6": true, "ipv4_pools": []any{"10.1.0.0/29"}, "ipv6_pools": []any{"fd01::/125"}}
			c := call(r.pod("pod"), r.conf(map[string]any{"type": tt.plugin, "ipam": ipam}))
			c.Plugin = "calico-ipam"
			for ip, what := range map[string]string{
				"10.1.0.0": "the network's own address of 10.1.0.0/29", "10.1.0.7": "the broadcast address of 10.1.0.0/29",
				"fd01::": "the address of all routers of fd01::/125",
			} {
				c.Args = "IP=" + ip
				r.fails(c, 105, "address "+ip+": "+what+", which is the network that "+tt.plugin+" is told")
			}
			r.empty()
			c.Args = ""
			for round := range 2 { // freed addresses are given again, those of the network never
				var got []string
				for i := range tt.want {
					c.ContainerID = fmt.Sprint("c", i)
					result := r.add(c)
					got = append(got, result.IPs[0].Address.String())
					if v6 := result.IPs[1].Address.String(); v6 == "fd01::/125" {
						t.Errorf("round %d: a pod has %s", round, v6)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("round %d (-want +got):\n%s", round, diff)
				}
				c.ContainerID = "more"
				r.failsLike(c, 104, "no free IPv4 address.*")
				r.sound()
				for i := range tt.want {
					c.ContainerID = fmt.Sprint("c", i)
					r.must(verb("DEL", c))
				}
			}
			if got := r.held(); len(got) != 0 {
				t.Errorf("handles %v", got)
			}
		})
	}
}

// TestAfterManyHostLocal: one ADD records as many of host-local's pods as kubelet runs on a node. More than fit in one
// etcd transaction are refused, and no address is assigned twice.
func TestAfterManyHostLocal(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{Pools: []netip.Prefix{}})
	pool := netip.MustParsePrefix("10.8.0.0/25")
	r.put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, IPAM: true, BlockSize: 25})
	old := func(i int) model.WorkloadEndpointKey {
		return model.WorkloadEndpointKey{Host: r.host.Name(), Orchestrator: "cni", Workload: fmt.Sprint("old", i), Endpoint: "eth0"}
	}
	routes := "ip link add old up type veth peer name peer" // one does for all
	addr := pool.Addr()
	for i := range 113 {
		r.put(old(i), model.WorkloadEndpoint{State: model.StateActive, Name: "old", IPv4Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)}, ContainerID: fmt.Sprint("old", i)})
		routes += fmt.Sprintf(" && ip route add %s dev old proto 80", addr)
		addr = addr.Next()
	}
	r.sh(routes)
	conf := r.conf(map[string]any{"ipam": map[string]any{"type": "calico-ipam"}})
	r.failsLike(call(r.pod("one"), conf), 105, `113 pods of this host live with addresses of another IPAM plugin.s, such as 10.8.0.0, more than one ADD can enter`)
	r.sh("ip route del 10.8.0.112")
	r.delete(old(112))
	if got := addrs(r.add(call(r.pod("two"), conf))); len(got) != 1 || got[0] != netip.MustParseAddr("10.8.0.112") {
		t.Errorf("addresses %v", got)
	}
	if n := r.roundTrips(); n > 8 {
		t.Errorf("%d round trips", n)
	}
	r.sound()
}

// TestAfterHostLocal: calico-ipam assigns from a range that host-local used before, while host-local's pods live. None
// of their addresses is assigned to another pod, each is recorded as its pod's in etcd too, and all others are
// available.
func TestAfterHostLocal(t *testing.T) {
	long.Test(t)
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	before := r.conf(map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": filepath.Join(r.TempDir(), "hl"), "subnet": "10.8.0.0/29"}})
	var calls []lab.Call
	add := func(name string, conf []byte) netip.Addr {
		c := call(r.pod(name), conf)
		c.ContainerID = name
		calls = append(calls, c)
		return addrs(r.add(c))[0]
	}
	for i := range 3 {
		a := add(fmt.Sprintf("old%d", i), before)
		for _, ep := range r.endpoints() {
			if slices.Contains(ep.Addrs(), a) {
				r.sh(fmt.Sprintf("ip link set %s up && ip route add %s dev %s proto 80", ep.Name, a, ep.Name)) // as the agent does
			}
		}
	}
	pool := netip.MustParsePrefix("10.8.0.0/29")
	r.put(model.PoolKey{CIDR: pool}, model.Pool{CIDR: pool, IPAM: true, BlockSize: 29})
	var got []string
	for i := range 5 {
		got = append(got, add(fmt.Sprintf("new%d", i), r.conf(map[string]any{"ipam": map[string]any{"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "false"}})).String())
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"10.8.0.0", "10.8.0.1", "10.8.0.5", "10.8.0.6", "10.8.0.7"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	r.sound()
	if n := len(r.handles()); n != 8 {
		t.Errorf("%d handles for 8 pods: %q", n, r.handles())
	}
	for _, c := range calls {
		r.must(verb("DEL", c))
	}
	if left := r.handles(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
