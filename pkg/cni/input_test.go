// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/long"
)

func TestBadInput(t *testing.T) {
	r := newRig(t, small())
	pod := r.pod("pod")
	good := call(pod, r.conf(nil))
	with := func(change func(*lab.Call)) lab.Call {
		c := good
		change(&c)
		return c
	}
	stdin := func(s string) lab.Call { return with(func(c *lab.Call) { c.Stdin = []byte(s) }) }
	field := func(name string, value any) lab.Call {
		return with(func(c *lab.Call) { c.Stdin = r.conf(map[string]any{name: value}) })
	}
	for _, tt := range []struct {
		name string
		call lab.Call
		code uint
		msg  string
	}{
		{"empty", stdin(""), 6, "network configuration: unexpected end of JSON input"},
		{"garbage", stdin("\x00\xffgarbage"), 6, `network configuration: invalid character '\x00' looking for beginning of value`},
		{"1 MB of garbage", stdin(strings.Repeat("x", 1<<20)), 6, "network configuration: stdin has more than 512 KiB"},
		{"1 MB of JSON", stdin(`{"name":"` + strings.Repeat("x", 1<<20) + `"}`), 6, "network configuration: stdin has more than 512 KiB"},
		{"no object", stdin("[]"), 6, "network configuration: want a JSON object, got list"},
		{"no name", stdin("{}"), 7, "name: missing: every network needs a name"},
		{"bad name", field("name", "a/b"), 7, `name: want letters, digits, '_', '.' and '-', got "a/b"`},
		{"wrong type", field("ipam", map[string]any{"assign_ipv4": 1}), 7, `ipam.assign_ipv4: want true/false or "true"/"false", got number`},
		{"no ipam", field("ipam", nil), 7, "ipam.type: missing"},
		{"usePodCidr", field("ipam", map[string]any{"type": "host-local", "subnet": "usePodCidr"}), 7,
			"ipam.subnet: usePodCidr is what calico-node reads from the Kubernetes API, and it never ran on this node: ask the agent at " + r.host.AgentSocket() + ": no agent listens"},
		{"unknown IPAM plugin", field("ipam", map[string]any{"type": "nonesuch"}), 7, "IPAM plugin nonesuch: not in CNI_PATH " + pathOf(r)},
		{"unknown version", field("cniVersion", "9.0.0"), 1, `cniVersion "9.0.0" is not supported`},
		{"k8s without a pod", field("policy", map[string]any{"type": "k8s"}), 7, "policy.type: it is k8s, and CNI_ARGS names no pod"},
		{"unknown command", with(func(c *lab.Call) { c.Verb = "FROB" }), 4, `unknown CNI_COMMAND "FROB"`},
		{"no command", with(func(c *lab.Call) { c.Verb = "" }), 4, "CNI_COMMAND is not set"},
		{"no container", with(func(c *lab.Call) { c.ContainerID, c.IfName = "", "" }), 4, "CNI_COMMAND ADD needs CNI_CONTAINERID, CNI_IFNAME"},
		{"bad container", with(func(c *lab.Call) { c.ContainerID = "a/b" }), 4, `CNI_CONTAINERID "a/b": invalid characters`},
		{"bad interface", with(func(c *lab.Call) { c.IfName = "an-interface-name" }), 4, `CNI_IFNAME "an-interface-name": interface name is too long`},
		{"pattern as interface", with(func(c *lab.Call) { c.IfName = "eth%d" }), 4, `CNI_IFNAME "eth%d": the kernel has no interface of that name`},
		{"long container", with(func(c *lab.Call) { c.ContainerID = strings.Repeat("x", 5000) }), 4,
			"the workload's name would be 5000 bytes long: at most 1024"},
		{"long container for calico-ipam", with(func(c *lab.Call) { c.Plugin, c.ContainerID = "calico-ipam", strings.Repeat("x", 1020) }), 4,
			"the handle would be 1030 bytes long: at most 1024"},
		{"long network", field("name", strings.Repeat("x", 944)), 7, "name: of 944 bytes: at most 943"},
		{"long network for calico-ipam", with(func(c *lab.Call) {
			c.Plugin, c.Stdin = "calico-ipam", r.conf(map[string]any{"name": strings.Repeat("x", 944)})
		}), 7, "name: of 944 bytes: at most 943"},
		{"an MTU too small for IPv6", field("mtu", 1279), 7, "mtu: IPv6 needs 1280 bytes, and it is 1279"},
		{"long node", field("nodename", strings.Repeat("x", 254)), 7, "nodename: host name of 254 characters: at most 253"},
		{"two nodes", field("nodename", "a\nb"), 7, `nodename: host name "a\nb": want letters, digits, '.', '-' and '_'`},
		{"MAC of many", with(func(c *lab.Call) { c.Args = "MAC=ff:ff:ff:ff:ff:ff" }), 4,
			"CNI_ARGS: MAC: MAC address ff:ff:ff:ff:ff:ff: want that of a single interface, like 02:00:00:00:00:01"},
		{"MAC of the host's end", with(func(c *lab.Call) { c.Args = "MAC=ee:ee:ee:ee:ee:ee" }), 4,
			"CNI_ARGS: MAC: ee:ee:ee:ee:ee:ee is the host's end's, by which a container with IPv6 has its gateway"},
		{"MAC of the host's end, by the runtime", field("runtimeConfig", map[string]any{"mac": "ee:ee:ee:ee:ee:ee"}), 7,
			"runtimeConfig.mac: ee:ee:ee:ee:ee:ee is the host's end's, by which a container with IPv6 has its gateway"},
		{"list of plugins", stdin(`{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`), 7,
			"plugins: this is a list of plugins: pass the configuration of one, with the name and the cniVersion of the list"},
		{"two wrong fields", stdin(`{"name": "n", "mtu": "x", "ipam": []}`), 7, "ipam: want an object, got list; mtu: want a whole number, got string"},
		{"bad arguments", with(func(c *lab.Call) { c.Args = "A=1" }), 4, "CNI_ARGS: unknown A: correct the name, or add IgnoreUnknown=1"},
		{"netns gone", with(func(c *lab.Call) { c.Netns = "/run/netns/gone" }), 4,
			"CNI_NETNS: open network namespace /run/netns/gone: file does not exist"},
		{"own netns", with(func(c *lab.Call) { c.Netns = r.host.Namespace().Path() }), 4,
			"CNI_NETNS " + r.host.Namespace().Path() + " is the host's own network namespace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rig{t, r.lab, r.host}
			r.fails(tt.call, tt.code, tt.msg)
		})
	}
	// Invalid values that concern a single container can't be corrected any more when it is deleted.
	for _, name := range []string{"all", "eth%d"} {
		refused := with(func(c *lab.Call) { c.IfName = name })
		r.failsLike(refused, 4, ".*the kernel has no interface of that name")
		r.must(verb("DEL", refused))
	}
	for name, value := range map[string]any{
		"runtimeConfig": map[string]any{"ips": []any{"192.168.005.5"}, "mac": "x"},
		"args":          map[string]any{"cni": map[string]any{"ips": "192.168.5.5"}},
		"prevResult":    []any{},
	} {
		refused := field(name, value)
		r.failsLike(refused, 7, name+".*want .*")
		r.must(verb("DEL", refused))
		refused.Plugin = "calico-ipam"
		r.must(verb("DEL", refused))
	}
	r.fails(verb("DEL", field("mtu", "x")), 7, "mtu: want a whole number, got string")
	// The longest names that go together.
	longest := field("name", strings.Repeat("n", 943))
	longest.ContainerID, longest.IfName = strings.Repeat("c", 64), "interface-name5"
	r.must(verb("STATUS", longest))
	r.must(longest)
	r.must(verb("DEL", longest))
	r.failsLike(with(func(c *lab.Call) { c.Netns = "/etc/hostname" }), 4, `CNI_NETNS: open network namespace: .*/etc/hostname.*: want a path like /run/netns/NAME.*`)
	r.empty()
}

func pathOf(r *rig) string {
	for _, e := range r.host.Env() {
		if p, ok := strings.CutPrefix(e, "CNI_PATH="); ok {
			return p
		}
	}
	return ""
}

// TestEveryFieldOfTheWrongType: the plugin's error names the field, the expected type and the actual one.
func TestEveryFieldOfTheWrongType(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	pod := r.pod("pod")
	values := []struct {
		kind  string
		value any
	}{
		{"string", "s"}, {"number", 1.5}, {"boolean", true}, {"list", []any{1}}, {"object", map[string]any{"a": 1}},
	}
	for _, fields := range []struct {
		want, kind string // what it says, and the type that it may have
		names      string
	}{
		{"a string", "string", `
			name cniVersion type log_level log_file_path agent_socket nodename nodename_file hostname
			etcd_endpoints etcd_ca_cert_file etcd_cert_file etcd_key_file etcd_discovery_srv etcd_authority etcd_scheme
			etcd_username etcd_password_file datastore_type ipam.type ipam.subnet ipam.gateway
			policy.type policy.k8s_api_root policy.k8s_auth_token policy.k8s_client_certificate policy.k8s_client_key
			policy.k8s_certificate_authority kubernetes.kubeconfig kubernetes.k8s_api_root kubernetes.node_name
			runtimeConfig.mac dns.domain`},
		{"true or false", "boolean", `
			nodename_file_optional container_settings.allow_ip_forwarding include_default_routes
			feature_control.ip_addrs_no_ipam feature_control.floating_ips isGateway isDefaultGateway`},
		{`true/false or "true"/"false"`, "boolean", "ipam.assign_ipv4 ipam.assign_ipv6"},
		{"a whole number", "number", `
			mtu log_file_max_size log_file_max_age log_file_max_count policy_setup_timeout_seconds datastore_timeout_seconds`},
		{"an object", "object", `
			ipam policy kubernetes container_settings feature_control runtimeConfig runtimeConfig.bandwidth runtimeConfig.dns dns args args.cni prevResult`},
		{"a list of strings", "list", `
			ipam.ipv4_pools ipam.ipv6_pools runtimeConfig.ips args.cni.ips runtimeConfig.dns.servers runtimeConfig.dns.searches
			runtimeConfig.dns.options dns.nameservers dns.search dns.options`},
		{"a list", "list", "cni.dev/valid-attachments"},
	} {
		for _, name := range strings.Fields(fields.names) {
			for _, v := range values {
				path, got := name, v.kind
				switch {
				case v.kind == fields.kind && fields.want == "a list of strings":
					path, got = name+"[0]", "number"
				case v.kind == fields.kind && fields.want == "a whole number":
					got = "1.5"
				case v.kind == fields.kind:
					continue
				case v.kind == "string" && strings.HasPrefix(name, "ipam.assign"):
					got = `"s"`
				}
				want := fields.want
				if path != name {
					want = "a string"
				}
				r.fails(call(pod, r.conf(under(name, v.value))), 7, path+": want "+want+", got "+got)
			}
		}
	}
	r.empty()
}

// under returns an object with the value at the path.
func under(path string, value any) map[string]any {
	parts := []string{path}
	if !strings.HasPrefix(path, "cni.dev/") {
		parts = strings.Split(path, ".")
	}
	for i := len(parts) - 1; i > 0; i-- {
		value = map[string]any{parts[i]: value}
	}
	if ipam, ok := value.(map[string]any); ok && parts[0] == "ipam" && ipam["type"] == nil {
		ipam["type"] = "calico-ipam" // other plugins' fields are their own
	}
	return map[string]any{parts[0]: value}
}
