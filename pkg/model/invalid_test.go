// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// rule is the error of one inbound rule. names are those of ports, from one to before another.
func names(from, to int) string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%q", fmt.Sprint("p", i)))
	}
	return strings.Join(out, ",")
}

func repeated(n int, s string) string { return strings.Repeat(s+",", n-1) + s }

const inRule = "inbound_rules[0]"

func TestInvalidValues(t *testing.T) {
	big := strings.Repeat("x", 3<<19)
	var sets strings.Builder // 1,003 different ones
	for i := range 334 {
		fmt.Fprintf(&sets, `{"protocol": "tcp", "src_selector": "a == '%d'", "!dst_tag": "%d", "dst_ports": ["http", "p%d"]},`, i, i, i)
	}
	many := strings.TrimSuffix(sets.String(), ",")
	nulls := strings.Repeat("null,", 7) + "null"
	for _, tt := range []struct{ dir, value, want string }{
		// What is not JSON, or not the right kind of JSON.
		{"policy", ``, "empty value: want JSON"},
		{"policy", ` `, "empty value: want JSON"},
		{"policy", `{`, "not JSON: at byte 1: unexpected end of JSON input"},
		{"policy", `{"untracked": tru`, "not JSON: at byte 17: unexpected end of JSON input"},
		{"policy", `{"untracked": trux`, "not JSON: at byte 18: invalid character 'x' in literal true (expecting 'e')"},
		{"policy", `{"selector": "\u00`, "not JSON: at byte 18: unexpected end of JSON input"},
		{"policy", `{"selector": all()}`, "not JSON: at byte 14: invalid character 'a' looking for beginning of value"},
		{"policy", `{} {}`, "not JSON: at byte 4: invalid character '{' after top-level value"},
		{"policy", "{\"selector\": \"\xff\"}", "not JSON: not UTF-8"},
		{"policy", strings.Repeat("[", 20000), "not JSON: at byte 10001: invalid character '[' exceeded max depth"},
		{"policy", `null`, "want an object, have null"},
		{"policy", `[]`, "want an object, have a list"},
		{"policy", `"x"`, "want an object, have a string"},
		{"policy", `1`, "want an object, have a number"},
		{"policy", `true`, "want an object, have a boolean"},
		{"policy", `{"selector": "` + big + `"}`, "value of " + strconv.Itoa(len(big)+16) + " bytes: at most 1572864"},
		{"profile-tags", "[" + strings.Repeat(`"a",`, 1<<14) + `"a"]`, "16385 entries: at most 16384"},
		{"profile-rules", `{"outbound_rules": [` + strings.Repeat(`{},`, 500000) + `{}]}`, "outbound_rules: 16385 entries: at most 16384"},
		{"profile-rules", `{"inbound_rules": [` + many + `]}`, "its rules name 1003 different selectors, tags and ports: at most 1000; pick by labels that many endpoints have"},
		{"policy", `{"selector": "", "inbound_rules": [` + many + `], "outbound_rules": [` + many + `]}`, "its rules name 1003 different selectors, tags and ports: at most 1000; pick by labels that many endpoints have"},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": [` + strings.Repeat(`"10.0.0.1",`, 1024) + `"10.0.0.1"]}`, "ipv4_nets: 1025 entries: at most 1024"},
		{"config", big + "x", "value of 1572865 bytes: at most 1572864"},
		{"host-metadata", `{"labels": {"a b": 1}}`, `labels."a b": want a string, have a number`},
		{"host-metadata", `{"labels": {"a": "1", "a": "2"}}`, `labels.a: given twice`},
		{"host-metadata", `{"labels": {"": null}}`, `labels."": want a string, have null`},

		{"ready", ``, `"": want true or false`},
		{"ready", `"true"`, `"\"true\"": want true or false`},
		{"bird-ip", `x`, `"x": want an IP address`},
		{"bird-ip", `::1`, `::1: want IPv4`},
		{"bgp-as", `x`, `"x": want an AS number like 65000 or 1.10`},
		{"bgp-host-ipv4", `fd00::1`, `fd00::1: want IPv4`},
		{"bgp-host-ipv6", `10.0.0.1`, `10.0.0.1: want IPv6`},
		{"bgp-host-as", `4294967296`, `"4294967296": want an AS number like 65000 or 1.10`},
		{"bgp-host-network", `10.0.0.1/33`, `"10.0.0.1/33": want a CIDR like 10.0.0.0/8 or fd00::/8`},
		{"bgp-host-network", `fd00::/8`, `fd00::: want IPv4`},
		{"bgp-host-reflector", `1`, `"1": want an IP address`},
		{"bgp-host-reflector", `0.0.0.0`, `0.0.0.0: want any other number, in the form of an IPv4 address`},

		{"workload-endpoint", `{}`, "state: missing"},
		{"workload-endpoint", `{"state": null}`, "state: want a string, have null"},
		{"workload-endpoint", `{"state": "up", "name": "x"}`, `state: "up": want active or inactive`},
		{"workload-endpoint", `{"state": "Active", "name": "x"}`, `state: "Active": want active or inactive`},
		{"workload-endpoint", `{"STATE": "active", "name": "x"}`, `state: missing`},
		{"workload-endpoint", `{"state": "active"}`, "name: missing"},
		{"workload-endpoint", `{"state": "active", "name": "a23456789012345b"}`, `name: "a23456789012345b": an interface's name has at most 15 bytes`},
		{"workload-endpoint", `{"state": "active", "name": "a/b"}`, `name: "a/b": not an interface's name`},
		{"workload-endpoint", `{"state": "active", "name": ".."}`, `name: "..": not an interface's name`},
		{"workload-endpoint", `{"state": "active", "name": "*"}`, `name: "*": not an interface's name`},
		{"workload-endpoint", `{"state": "active", "name": "a%d"}`, `name: "a%d": not an interface's name`},
		{"workload-endpoint", `{"state": "active", "name": "a\u0000"}`, `name: "a\x00": not an interface's name`},
		{"workload-endpoint", `{"state": "active", "name": "a", "mac": 5}`, `mac: want a string, have a number`},
		{"workload-endpoint", `{"state": "active", "name": "a", "mac": "x"}`, `mac: MAC address "x": want six bytes like 02:00:00:00:00:01`},
		{"workload-endpoint", `{"state": "active", "name": "a", "profile_ids": "p"}`, `profile_ids: want a list, have a string`},
		{"workload-endpoint", `{"state": "active", "name": "a", "profile_ids": ["p", null]}`, `profile_ids[1]: want a string, have null`},
		{"workload-endpoint", `{"state": "active", "name": "a", "profile_ids": ["p", ""]}`, `profile_ids[1]: empty`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["10.0.0.0/24"]}`, `ipv4_nets[0]: 10.0.0.0/24: want one address, /32`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["10.0.0.1/33"]}`, `ipv4_nets[0]: "10.0.0.1/33": want a CIDR like 10.0.0.0/8 or fd00::/8`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["10.0.0.1/32", "fd00::1/128"]}`, `ipv4_nets[1]: fd00::1: want IPv4`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["0.0.0.0/32"]}`, `ipv4_nets[0]: 0.0.0.0: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["127.0.0.1/32"]}`, `ipv4_nets[0]: 127.0.0.1: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv6_nets": ["ff02::1/128"]}`, `ipv6_nets[0]: ff02::1: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv6_nets": ["fe80::1/128"]}`, `ipv6_nets[0]: fe80::1: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["169.254.1.1/32"]}`, `ipv4_nets[0]: 169.254.1.1: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["255.255.255.255/32"]}`, `ipv4_nets[0]: 255.255.255.255: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nets": ["10.0.0.1/32"], "ipv4_nat": [{"int_ip": "10.0.0.1", "ext_ip": "169.254.7.7"}]}`, `ipv4_nat[0].ext_ip: 169.254.7.7: not an address that an endpoint can have: want a unicast address that can be routed to`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv6_nets": ["10.0.0.1"]}`, `ipv6_nets[0]: 10.0.0.1: want IPv6`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv6_nets": ["fd00::/64"]}`, `ipv6_nets[0]: fd00::/64: want one address, /128`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv6_nets": ["::ffff:10.0.0.1/128"]}`, `ipv6_nets[0]: ::ffff:10.0.0.1: write the IPv4 address as 10.0.0.1`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nat": [{"int_ip": "10.0.0.1"}]}`, `ipv4_nat[0].ext_ip: missing`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nat": [{"ext_ip": "10.0.0.1"}]}`, `ipv4_nat[0].int_ip: missing`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_nat": [{"int_ip": "10.0.0.1", "ext_ip": "10.0.0.2"}]}`, `ipv4_nat[0].int_ip: 10.0.0.1: not an address of this endpoint`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv6_nat": [{"int_ip": "10.0.0.1", "ext_ip": "10.0.0.2"}]}`, `ipv6_nat[0].int_ip: 10.0.0.1: want IPv6`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ipv4_gateway": "fd00::1"}`, `ipv4_gateway: fd00::1: want IPv4`},
		{"workload-endpoint", `{"state": "active", "name": "a", "labels": []}`, `labels: want an object, have a list`},
		{"workload-endpoint", `{"state": "active", "name": "a", "labels": {"a": true}}`, `labels.a: want a string, have a boolean`},
		{"workload-endpoint", `{"state": "active", "name": "a", "mtu": 65536}`, `mtu: 65536: want 0 to 65535`},
		{"workload-endpoint", `{"state": "active", "name": "a", "mtu": 1500.0}`, `mtu: 1500.0: want a whole number from 0 to 65535`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ports": [{"name": "x"}]}`, `ports[0].protocol: want tcp, udp, sctp or udplite: other protocols have no ports`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ports": [{"name": "80", "protocol": "tcp", "port": 1}]}`, `ports[0].name: "80": not the name of a port`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ports": [{"name": "x", "protocol": "tcp", "port": 0}]}`, `ports[0].port: 0: want 1 to 65535`},
		{"workload-endpoint", `{"state": "active", "name": "a", "ports": [{"name": "x", "protocol": "tcp"}]}`, `ports[0].port: 0: want 1 to 65535`},

		{"host-endpoint", `{}`, "want name, or at least one of expected_ipv4_addrs and expected_ipv6_addrs"},
		{"host-endpoint", `{"name": ""}`, "want name, or at least one of expected_ipv4_addrs and expected_ipv6_addrs"},
		{"host-endpoint", `{"name": "a b"}`, `name: "a b": not an interface's name`},
		{"host-endpoint", `{"expected_ipv4_addrs": ["10.0.0.1", ""]}`, `expected_ipv4_addrs[1]: "": want an IP address`},
		{"host-endpoint", `{"expected_ipv6_addrs": ["fe80::1%eth0"]}`, `expected_ipv6_addrs[0]: fe80::1%eth0: an address here has no zone`},

		{"profile-rules", `{"inbound_rules": {}}`, `inbound_rules: want a list, have an object`},
		{"profile-rules", `{"inbound_rules": [null]}`, inRule + `: want an object, have null`},
		{"profile-rules", `{"inbound_rules": [{"action": "accept"}]}`, inRule + `.action: "accept": want allow, deny, log or next-tier`},
		{"profile-rules", `{"inbound_rules": [{"action": ""}]}`, inRule + `.action: "": want allow, deny, log or next-tier`},
		{"profile-rules", `{"inbound_rules": [{"action": null}]}`, inRule + `.action: null: leave the field out to match anything`},
		{"profile-rules", `{"inbound_rules": [{"src_net": null}]}`, inRule + `.src_net: null: leave the field out to match anything`},
		{"profile-rules", `{"inbound_rules": [{"src_nets": []}]}`, inRule + `.src_nets: empty list: leave the field out to match anything`},
		{"profile-rules", `{"inbound_rules": [{"src_nets": ["10.0.0.0/8", "x"]}]}`, inRule + `.src_nets[1]: "x": want a CIDR like 10.0.0.0/8 or fd00::/8`},
		{"profile-rules", `{"inbound_rules": [{"source_net": "10.0.0.0/8"}]}`, inRule + `.source_net: unknown: a rule with a field that is not understood is not applied`},
		{"profile-rules", `{"inbound_rules": [{"!action": "deny"}]}`, inRule + `.!action: unknown: a rule with a field that is not understood is not applied`},
		{"profile-rules", `{"inbound_rules": [{"src_net": "10.0.0.0/8", "src_net": "0.0.0.0/0"}]}`, inRule + `.src_net: given twice`},
		{"profile-rules", `{"inbound_rules": [{"src_tag": ""}]}`, inRule + `.src_tag: empty`},
		{"profile-rules", `{"inbound_rules": [{}, {}, {"protocol": "tcp", "src_ports": ["x:y"]}]}`, `inbound_rules[2].src_ports[0]: "x:y": want a range of ports like 8000:8099`},
		{"profile-rules", `{"outbound_rules": [{"protocol": "tcp", "!dst_ports": [1, "2:1"]}]}`, `outbound_rules[0].!dst_ports[1]: "2:1": the range ends before it begins`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [65536]}]}`, inRule + `.dst_ports[0]: 65536: want 0 to 65535`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": ["65536"]}]}`, inRule + `.dst_ports[0]: "65536": want a port from 1 to 65535, a range like 8000:8099 or a name`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [-1]}]}`, inRule + `.dst_ports[0]: -1: want 0 to 65535`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [99999999999999999999]}]}`, inRule + `.dst_ports[0]: 99999999999999999999: want a whole number from 0 to 65535`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": ["-http"]}]}`, inRule + `.dst_ports[0]: "-http": want a port from 1 to 65535, a range like 8000:8099 or a name`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [true]}]}`, inRule + `.dst_ports[0]: want a string, have a boolean`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": 80}]}`, inRule + `.dst_ports: want a list, have a number`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": []}]}`, inRule + `.dst_ports: empty list: leave the field out to match anything`},
		{"profile-rules", `{"inbound_rules": [{"dst_ports": [80]}]}`, inRule + `.dst_ports: needs protocol tcp, udp, sctp or udplite`},
		{"profile-rules", `{"inbound_rules": [{"!protocol": "tcp", "!src_ports": [80]}]}`, inRule + `.!src_ports: needs protocol tcp, udp, sctp or udplite`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "icmp", "src_ports": [80]}]}`, inRule + `.src_ports: needs protocol tcp, udp, sctp or udplite`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "gre"}]}`, inRule + `.protocol: "gre": want tcp, udp, icmp, icmpv6, sctp, udplite or a number from 1 to 255`},
		{"profile-rules", `{"inbound_rules": [{"protocol": 0}]}`, inRule + `.protocol: 0: want 1 to 255`},
		{"profile-rules", `{"inbound_rules": [{"protocol": 43}]}`, inRule + `.protocol: 43 is an extension header of IPv6, which no packet has for its protocol: want that of what follows such headers`},
		{"profile-rules", `{"inbound_rules": [{"!protocol": "60"}]}`, inRule + `.!protocol: 60 is an extension header of IPv6, which no packet has for its protocol: want that of what follows such headers`},
		{"profile-rules", `{"inbound_rules": [{"!protocol": 256}]}`, inRule + `.!protocol: 256: want 1 to 255`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "icmp", "icmp_type": 255}]}`, inRule + `.icmp_type: 255: want 0 to 254`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "icmp", "icmp_type": 3, "icmp_code": 256}]}`, inRule + `.icmp_code: 256: want 0 to 255`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "icmp", "icmp_code": 1}]}`, inRule + `.icmp_code: needs icmp_type`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "icmp", "icmp_type": 3, "!icmp_code": 1}]}`, inRule + `.!icmp_code: needs !icmp_type`},
		{"profile-rules", `{"inbound_rules": [{"icmp_type": 8}]}`, inRule + `.icmp_type: needs protocol icmp or icmpv6`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "!icmp_type": 8}]}`, inRule + `.!icmp_type: needs protocol icmp or icmpv6`},
		{"profile-rules", `{"inbound_rules": [{"ip_version": 5}]}`, inRule + `.ip_version: 5: want 4 or 6`},
		{"profile-rules", `{"inbound_rules": [{"src_selector": "a = 'b'"}]}`, inRule + `.src_selector: at byte 2: want ==, !=, in, not in, contains, starts with or ends with, have '='`},
		{"profile-rules", `{"inbound_rules": [{"!dst_selector": "("}]}`, inRule + `.!dst_selector: at byte 1: want a label, has(), all(), global(), ! or (, have the end`},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "!src_ports": [` + names(0, 16) + `], "!dst_ports": [` + names(0, 17) + `]}]}`,
			inRule + ": !src_ports and !dst_ports: 33 names of ports: at most 32; make rules of fewer, or write numbers"},
		{"profile-rules", `{"inbound_rules": [{"action": "log", "protocol": "tcp", "dst_ports": [` + names(0, 20) + `], "!dst_ports": [` + names(20, 33) + `]}]}`,
			inRule + ": ports of a rule that logs: 33 names of ports: at most 32; make rules of fewer, or write numbers"},
		{"profile-rules", `{"inbound_rules": [{"protocol": "tcp", "src_ports": [1, 2, ` + names(0, 15) + `], "dst_ports": [` + names(0, 17) + `]}]}`,
			inRule + ": src_ports and dst_ports: 272 combinations of names of ports: at most 256; make rules of fewer, or write numbers"},
		{"profile-rules", `{"inbound_rules": [` + repeated(2049, `{"protocol": "tcp", "src_ports": [1, 3, 5, 7], "dst_ports": [1, 3, 5, 7, 9, 11, 13, 15]}`) + `]}`,
			"its rules come to 65568 in the kernel, one for each value of a list with each of the others: at most 65536; make policies of fewer rules, or rules of shorter lists"},
		{"profile-rules", `{"inbound_rules": [` + repeated(257, `{"protocol": "tcp", "src_ports": [`+names(0, 16)+`], "dst_ports": [`+names(0, 16)+`]}`) + `]}`,
			"its rules come to 65792 in the kernel, one for each value of a list with each of the others: at most 65536; make policies of fewer rules, or rules of shorter lists"},
		{"profile-rules", `{"inbound_rules": [` + repeated(2049, `{"!src_nets": [`+repeated(23, `"10.0.0.0/8"`)+`]}`) + `]}`,
			"its rules come to 65568 in the kernel, one for each value of a list with each of the others: at most 65536; make policies of fewer rules, or rules of shorter lists"},
		{"profile-tags", `{}`, `want a list, have an object`},
		{"profile-tags", `["a", ""]`, `[1]: empty`},
		{"profile-tags", `["a", 1]`, `[1]: want a string, have a number`},
		{"profile-labels", `{"a": null}`, `a: want a string, have null`},
		{"tier", `{"order": "first"}`, `order: want a number or "default"`},
		{"tier", `{"default_action": "Pass"}`, `default_action: "Pass": want deny or pass`},
		{"network-set", `[]`, "want an object, have a list"},
		{"network-set", `{"nets": ["10.0.0.0/8", "10.0.0.0/33"]}`, `nets[1]: "10.0.0.0/33": want a CIDR like 10.0.0.0/8 or fd00::/8`},
		{"network-set", `{"nets": [""]}`, `nets[0]: "": want a CIDR like 10.0.0.0/8 or fd00::/8`},
		{"network-set", `{"nets": ["fe80::1%eth0"]}`, `nets[0]: fe80::1%eth0: an address here has no zone`},
		{"network-set", `{"nets": ["::ffff:10.0.0.1"]}`, "nets[0]: ::ffff:10.0.0.1: write the IPv4 address as 10.0.0.1"},
		{"network-set", `{"nets": [` + strings.Repeat(`"10.0.0.0/8",`, 16384) + `"10.0.0.0/8"]}`, "nets: 16385 entries: at most 16384"},
		{"network-set", `{"labels": {"a": 1}}`, "labels.a: want a string, have a number"},
		{"tier", `{"default_action": 1}`, `default_action: want a string, have a number`},

		{"policy", `{}`, `selector: missing: "" and "all()" pick every endpoint`},
		{"policy", `{"selector": null}`, "selector: want a string, have null"},
		{"policy", `{"selector": "a =="}`, "selector: at byte 4: want a string in quotes, have the end"},
		{"policy", `{"selector": "` + strings.Repeat(" ", 1<<20) + `"}`, "selector: at byte 65536: 1048576 bytes long: at most 65536"},
		{"policy", `{"selector": "all()", "selector": "has(a)"}`, "selector: given twice"},
		{"policy", `{"selector": "", "order": "10"}`, `order: want a number or "default"`},
		{"policy", `{"selector": "", "order": 1e999}`, `order: 1e999: number out of range`},
		{"policy", `{"selector": "", "order": true}`, `order: want a number or "default"`},
		{"policy", `{"selector": "", "order": 1, "order": 2}`, `order: given twice`},
		{"policy", `{"selector": "", "untracked": "yes"}`, `untracked: want true or false, have a string`},
		{"policy", `{"selector": "", "types": "inbound"}`, `types: want a list, have a string`},
		{"policy", `{"selector": "", "types": ["inbound", "ingress"]}`, `types[1]: "ingress": want inbound or outbound`},

		{"pool-v4", `{"cidr": "10.1.0.0/16"}`, "cidr: 10.1.0.0/16, but the key says 10.0.0.0/16"},
		{"pool-v4", `{"cidr": null}`, "cidr: want a string, have null"},
		{"pool-v4", `{"ipip": true}`, "ipip: want a string, have a boolean"},
		{"pool-v4", `{"ipip": "a/b"}`, `ipip: "a/b": not an interface's name`},
		{"pool-v4", `{"ipip": "tunl0", "ipip_mode": "never"}`, `ipip_mode: "never": want always or cross-subnet`},
		{"pool-v4", `{"vxlan_mode": "Always"}`, `vxlan_mode: "Always": want always or cross-subnet`},
		{"pool-v4", `{"ipip": "tunl0", "vxlan_mode": "always"}`, `vxlan_mode: a pool has ipip or vxlan_mode, not both`},
		{"pool-v4", `{"masquerade": "true"}`, `masquerade: want true or false, have a string`},
		{"pool-v4", `{"block_size": 19}`, `block_size: 19: want 20 to 32`},
		{"pool-v4", `{"block_size": 33}`, `block_size: 33: want 20 to 32`},
		{"pool-v4", `{"block_size": "26"}`, `block_size: want a whole number, have a string`},
		{"pool-v4", `{"namespace_selector": "x"}`, `namespace_selector: at byte 1: want ==, !=, in, not in, contains, starts with or ends with, have the end`},
		{"pool-v4", `{"assignment_mode": "manual"}`, `assignment_mode: "manual": want Automatic or Manual`},
		{"pool-v4", `{"assignment_mode": true}`, `assignment_mode: want a string, have a boolean`},
		{"reservation", `{"cidrs": "10.0.0.0/28"}`, `cidrs: want a list, have a string`},
		{"reservation", `{"cidrs": ["10.0.0.0/28", "10.0.0.0/33"]}`, `cidrs[1]: "10.0.0.0/33": want a CIDR like 10.0.0.0/8 or fd00::/8`},
		{"pool-v4", `{"node_selector": "x"}`, `node_selector: at byte 1: want ==, !=, in, not in, contains, starts with or ends with, have the end`},
		{"pool-small", `{"block_size": 26}`, `block_size: 26: a block is larger than the pool 10.9.0.0/28`},
		{"pool-v6", `{"ipip": "tunl0"}`, `ipip: IPIP is for IPv4 pools only`},
		{"pool-v6", `{"block_size": 64}`, `block_size: 64: want 116 to 128`},

		{"block-v4", `{}`, "allocations: 0 entries for 8 addresses"},
		{"block-v4", `{"cidr": "10.0.0.8/29"}`, "cidr: 10.0.0.8/29, but the key says 10.0.0.0/29"},
		{"block-v4", `{"allocations": null}`, "allocations: want a list, have null"},
		{"block-v4", `{"allocations": [null]}`, "allocations: 1 entries for 8 addresses"},
		{"block-v4", `{"allocations": [` + nulls + `,null]}`, "allocations[8]: more entries than the block's 8 addresses"},
		{"block-v4", `{"allocations": [0,` + nulls[5:] + `]}`, "allocations[0]: 0: there are 0 attributes"},
		{"block-v4", `{"allocations": [-1,` + nulls[5:] + `]}`, "allocations[0]: -1: want 0 to 64"},
		{"block-v4", `{"allocations": [1,` + nulls[5:] + `], "attributes": [{}]}`, "allocations[0]: 1: there are 1 attributes"},
		{"block-v4", `{"allocations": ["0",` + nulls[5:] + `], "attributes": [{}]}`, "allocations[0]: want a whole number, have a string"},
		{"block-v4", `{"allocations": [` + nulls + `], "unallocated": [0,1,2,3,4,5,6]}`, "unallocated: 7 ordinals for 8 free addresses"},
		{"block-v4", `{"allocations": [` + nulls + `], "unallocated": [0,1,2,3,4,5,6,6]}`, "unallocated[7]: 6 is there twice"},
		{"block-v4", `{"allocations": [` + nulls + `], "unallocated": [8,1,2,3,4,5,6,7]}`, "unallocated[0]: 8: want 0 to 7"},
		{"block-v4", `{"allocations": [` + nulls + `], "unallocated": [0,1,2,3,4,5,6,7,0]}`, "unallocated[8]: more entries than the block's 8 addresses"},
		{"block-v4", `{"allocations": [0,` + nulls[5:] + `], "attributes": [{}], "unallocated": [0,1,2,3,4,5,6]}`, "unallocated[0]: 0 is allocated"},
		{"block-v4", `{"allocations": [` + nulls + `], "unallocated": [null]}`, "unallocated[0]: want a whole number, have null"},
		{"block-v4", `{"allocations": [` + nulls + `], "affinity": "a"}`, `affinity: "a": want host:<name> or nothing`},
		{"block-v4", `{"allocations": [` + nulls + `], "affinity": "host:"}`, `affinity: "host:": want host:<name> or nothing`},
		{"block-v4", `{"allocations": [` + nulls + `], "affinity": "host:a", "hostAffinity": "b"}`, `hostAffinity: "b", but affinity is "host:a"`},
		{"block-v4", `{"allocations": [` + nulls + `], "attributes": [{"handle_id": 1}]}`, `attributes[0].handle_id: want a string, have a number`},
		{"block-v4", `{"allocations": [` + nulls + `], "attributes": [{"handle_id": "a", "primary": "b"}]}`, `attributes[0].primary: "b", but handle_id is "a"`},
		{"block-v4", `{"allocations": [` + nulls + `], "attributes": [{"secondary": {"a": 1}}]}`, `attributes[0].secondary.a: want a string, have a number`},
		{"block-v4", `{"allocations": [` + nulls + `], "emptySince": "yesterday"}`, `emptySince: "yesterday": want a time like 2026-01-02T15:04:05Z`},

		{"handle", `{"id": "other"}`, `id: "other", but the key says "net.0a1b.eth0"`},
		{"handle", `{"block": []}`, `block: want an object, have a list`},
		{"handle", `{"block": {"x": 1}}`, `block.x: not a CIDR`},
		{"handle", `{"block": {"10.0.0.1/26": 1}}`, `block."10.0.0.1/26": 10.0.0.1/26 has host bits set: write 10.0.0.0/26`},
		{"handle", `{"block": {"10.0.0.0/8": 1}}`, `block."10.0.0.0/8": 10.0.0.0/8: a block is /20 at the largest`},
		{"handle", `{"block": {"10.0.0.0/26": -1}}`, `block."10.0.0.0/26": -1: want 0 to 64`},
		{"handle", `{"block": {"10.0.0.0/26": 65}}`, `block."10.0.0.0/26": 65: want 0 to 64`},
		{"handle", `{"block": {"fd00::/122": 1, "FD00::/122": 1}}`, `block.FD00::/122: given twice`},
		{"ipam-config", `{"strict_affinity": false, "auto_allocate_blocks": false}`, `strict_affinity and auto_allocate_blocks cannot both be false`},
		{"ipam-config", `{"strict_affinity": 1}`, `strict_affinity: want true or false, have a number`},

		{"bgp-mesh", `{}`, `enabled: missing`},
		{"bgp-mesh", `{"enabled": null}`, `enabled: want true or false, have null`},
		{"bgp-peer-v4", `{}`, `as_num: missing`},
		{"bgp-peer-v4", `{"as_num": null}`, `as_num: want a string, have null`},
		{"bgp-peer-v4", `{"as_num": 0}`, `as_num: "0": want an AS number like 65000 or 1.10`},
		{"bgp-peer-v4", `{"as_num": "1.65536"}`, `as_num: "1.65536": want an AS number like 65000 or 1.10`},
		{"bgp-peer-v4", `{"as_num": 6.5e4}`, `as_num: "6.5e4": want an AS number like 65000 or 1.10`},
		{"bgp-peer-v4", `{"as_num": 1, "ip": "192.0.2.2"}`, `ip: 192.0.2.2, but the key says 192.0.2.1`},
		{"bgp-peer-v4", `{"as_num": 1, "ebgp_multihop": 256}`, `ebgp_multihop: 256: want 0 to 255`},
		{"bgp-peer-v4", `{"as_num": 1, "num_allowed_local_as_numbers": 11}`, `num_allowed_local_as_numbers: 11: want 0 to 10`},
		{"bgp-peer-v4", `{"as_num": 1, "hold_time": 2}`, `hold_time: 2: want 3 to 65535`},
		{"bgp-peer-v4", `{"as_num": 1, "source_address": "fd00::1"}`, `source_address: fd00::1 is not of the family of the peer, 192.0.2.1`},
		{"bgp-peer-v4", `{"as_num": 1, "source_address": "any"}`, `source_address: "any": want UseNodeIP, None, or an address of the host`},
		{"bgp-peer-v4", `{"as_num": 1, "next_hop_mode": "peer"}`, `next_hop_mode: "peer": want Auto, Self or Keep`},
		{"bgp-peer-v4", `{"as_num": 1, "ttl_security": 1, "ebgp_multihop": 2}`, `ttl_security: not beside ebgp_multihop: it says how many hops there may be as well`},
		{"bgp-peer-v4", `{"as_num": 1, "node_selector": "a == 'b'"}`, `only a peer at /calico/bgp/v1/peer/<name> has node, node_selector, peer_selector or reverse_peering`},
		{"bgp-peer-v4", `{"as_num": 1, "filters": ["a", ""]}`, `filters[1]: want the name of a BGPFilter`},
		{"bgp-peer-named", `{"as_num": 1}`, `ip: missing`},
		{"bgp-peer-named", `{"ip": "192.0.2.1"}`, `as_num: missing`},
		{"bgp-peer-named", `{"ip": "fe80::1", "as_num": 1}`, `ip: fe80::1 is link-local, which the address of a BGP peer can't be`},
		{"bgp-peer-named", `{"ip": "224.0.0.1", "as_num": 1}`, `ip: 224.0.0.1 is nobody's address, so it can't be that of a BGP peer`},
		{"bgp-peer-named", `{"ip": "192.0.2.1", "as_num": 1, "node": "a", "node_selector": "b"}`, `node_selector: a peer has node or node_selector, not both`},
		{"bgp-peer-named", `{"ip": "192.0.2.1", "as_num": 1, "node_selector": "b ="}`, `node_selector: at byte 2: want ==, !=, in, not in, contains, starts with or ends with, have '='`},
		{"bgp-peer-named", `{"ip": "192.0.2.1", "as_num": 1, "reverse_peering": "Manual"}`, `reverse_peering: only beside peer_selector`},
		{"bgp-peer-named", `{"peer_selector": "all()", "reverse_peering": "no"}`, `reverse_peering: "no": want Auto or Manual`},
		{"bgp-peer-named", `{"ip": "192.0.2.1", "peer_selector": "all()"}`, `ip: not beside peer_selector: the nodes say it`},
		{"bgp-peer-named", `{"as_num": 1, "peer_selector": "all()"}`, `as_num: not beside peer_selector: the nodes say it`},
		{"bgp-peer-named", `{"local_as": 1, "peer_selector": "all()"}`, `local_as: not beside peer_selector: the nodes say it`},
		{"bgp-peer-named", `{"source_address": "192.0.2.1", "peer_selector": "all()"}`, `source_address: not beside peer_selector: the nodes say it`},
		{"bgp-peer-named", `{"peer_selector": "all("}`, `peer_selector: at byte 4: want ), have the end`},
		{"bgp-filter", `{"import_v4": [{}]}`, `import_v4[0].action: missing`},
		{"bgp-filter", `{"import_v4": [{"action": "Deny"}]}`, `import_v4[0].action: "deny": want Accept or Reject`},
		{"bgp-filter", `{"import_v4": [{"action": "Accept", "interface": "eth0"}]}`, `import_v4[0].interface: unknown, and it may decide`},
		{"bgp-filter", `{"import_v4": [{"action": "Accept", "source": "RemotePeers"}]}`, `import_v4[0].source: every route that is imported is of a peer: leave it out`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "source": "x"}]}`, `export_v4[0].source: "x": want RemotePeers`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "10.0.0.0/8"}]}`, `export_v4[0].match_operator: missing`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "match_operator": "In"}]}`, `export_v4[0].cidr: missing`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "10.0.0.0/8", "match_operator": "in"}]}`, `export_v4[0].match_operator: "in": want Equal, NotEqual, In or NotIn`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "fd00::/8", "match_operator": "In"}]}`, `export_v4[0].cidr: fd00::: want IPv4`},
		{"bgp-filter", `{"export_v6": [{"action": "Accept", "cidr": "10.0.0.0/8", "match_operator": "In"}]}`, `export_v6[0].cidr: 10.0.0.0: want IPv6`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "10.0.0.0/8", "match_operator": "In", "prefix_length": {"max": 7}}]}`, `export_v4[0].prefix_length: 8 to 7: want lengths from 8 to 32`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "10.0.0.0/8", "match_operator": "In", "prefix_length": {"max": 33}}]}`, `export_v4[0].prefix_length: 8 to 33: want lengths from 8 to 32`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "10.0.0.0/8", "match_operator": "In", "prefix_length": {"max": 0}}]}`, `export_v4[0].prefix_length.max: 0: want 1 to 128`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "cidr": "10.0.0.0/8", "match_operator": "Equal", "prefix_length": {"max": 9}}]}`, `export_v4[0].prefix_length: only beside In or NotIn`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "prefix_length": {"min": 9}}]}`, `export_v4[0].prefix_length: only beside In or NotIn`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "peer_type": "ebgp"}]}`, `export_v4[0].peer_type: "ebgp": want eBGP or iBGP`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "communities": {"values": ["1:2", "1:3"]}}]}`, `export_v4[0].communities.values: 2 values: want one, and a rule for each`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "communities": {"values": ["no"]}}]}`, `export_v4[0].communities: community "no": want two numbers to 65535, as 64512:100, or three to 4294967295`},
		{"bgp-filter", `{"export_v4": [{"action": "Accept", "as_path_prefix": [0]}]}`, `export_v4[0].as_path_prefix[0]: "0": want an AS number like 65000 or 1.10`},
		{"bgp-peer-v4", `{"as_num": 1, "import": [{"cidr": "10.0.0.0/8"}]}`, `import[0].action: missing`},
		{"bgp-peer-v4", `{"as_num": 1, "import": [{"action": "accept"}]}`, `import[0].cidr: missing`},
		{"bgp-peer-v4", `{"as_num": 1, "export": [{"action": "drop", "cidr": "::/0"}]}`, `export[0].action: "drop": want accept or reject`},
		{"bgp-peer-v4", `{"as_num": 1, "export": [{"action": "accept", "cidr": "::/0", "le": 24}]}`, `export[0].le: unknown: a filter has cidr and action`},

		{"status", `{}`, `time: missing`},
		{"status", `{"time": "1 o'clock"}`, `time: "1 o'clock": want a time like 2026-01-02T15:04:05Z`},
		{"status", `{"time": 1}`, `time: want a string, have a number`},
		{"status", `{"time": "2026-01-02T15:04:05Z", "uptime": -1}`, `uptime: -1: want seconds`},
		{"status", `{"time": "2026-01-02T15:04:05Z", "uptime": "1"}`, `uptime: want a number, have a string`},
		{"endpoint-status", `{}`, `status: missing`},
		{"endpoint-status", `{"status": "UP"}`, `status: "UP": want up, down or error`},
		{"controllers-config", `{"disabled": ["node", "loadbalancer"]}`, `disabled[1]: "loadbalancer": want one of node, policy, workloadendpoint, serviceaccount, namespace`},
		{"controllers-config", `{"log_severity_screen": "fatal"}`, `log_severity_screen: "fatal": want debug, info, warning, error`},
		{"controllers-config", `{"prometheus_metrics_port": 65536}`, `prometheus_metrics_port: 65536: want 0 to 65535`},
		{"garbage-brake", `{"hosts": -1}`, `hosts: -1: want 0 to 2147483647`},
		{"garbage-brake", `{"addresses": {"x": 1}}`, `addresses.x: not a CIDR`},
		{"subnet-v4", `{}`, `cidr: missing`},
		{"subnet-v4", `{"cidr": "10.0.0.0/24"}`, `gateway_ip: missing`},
		{"subnet-v4", `{"cidr": "10.0.0.0/24", "gateway_ip": "fd00::1"}`, `gateway_ip: fd00::1: want IPv4`},
		{"subnet-v4", `{"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1", "dns_servers": ["x"]}`, `dns_servers[0]: "x": want an IP address`},
		{"subnet-v4", `{"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1", "dns_servers": ["fd00::1"]}`, `dns_servers[0]: fd00::1: want IPv4`},
		{"subnet-v4", `{"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1", "host_routes": [{"destination": "0.0.0.0/0"}]}`, `host_routes[0].nexthop: missing`},
		{"subnet-v4", `{"cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1", "host_routes": [{"nexthop": "10.0.0.1"}]}`, `host_routes[0].destination: missing`},
	} {
		v, err := model.ParseValue(sampleKey(t, tt.dir), []byte(tt.value))
		if err == nil {
			t.Errorf("%s %.200s: %#v, want the error %s", tt.dir, tt.value, v, tt.want)
		} else if err.Error() != tt.want || v != nil {
			t.Errorf("%s %.200s: %#v and the error\n%v, want\n%s", tt.dir, tt.value, v, err, tt.want)
		}
	}
}

func TestFieldError(t *testing.T) {
	_, err := model.ParseValue(model.ProfileRulesKey{"p"}, []byte(`{"inbound_rules": [{}, {"protocol": "x"}]}`))
	var fe *model.FieldError
	if !errors.As(err, &fe) || fe.Field != "inbound_rules[1].protocol" {
		t.Errorf("%v is at %+v", err, fe)
	}
}

// TestInvalidPolicy tells the selector of a policy in which something else is
// wrong, and no selector where it cannot be known.
func TestInvalidPolicy(t *testing.T) {
	for _, tt := range []struct {
		value    string
		known    bool
		selector string
		forward  bool
	}{
		{`{"order": true, "selector": "has(a)"}`, true, "has(a)", false},
		{`{"selector": "has(a)", "inbound_rules": [{"x": 1}]}`, true, "has(a)", false},
		{`{"selector": "", "order": 1, "order": 2}`, true, "", false},
		{`{"selector": "has(", "order": true}`, false, "", false},
		{`{"selector": "has(a)", "selector": "has(b)", "order": true}`, false, "", false},
		{`{"selector": 5, "order": true}`, false, "", false},
		{`{"order": true}`, false, "", false},
		{`{"selector": "has(a)", `, false, "", false},
		// What is unknown may decide.
		{`{"selector": "has(a)", "staged": true}`, true, "has(a)", true},
		{`{"namespace_selector": "x == 'y'", "selector": "has(a)"}`, true, "has(a)", true},
		{`{"selector": "has(a)", "order": true, "meta": {"x": 1}, "staged": false}`, true, "has(a)", false},
		{`{"selector": "has(a)", "pre_dnat": "yes"}`, true, "has(a)", true},
		{`{"selector": "has(a)", "pre_dnat": true, "untracked": true}`, true, "has(a)", true},
		{`{"selector": "has(a)", "pre_dnat": true, "outbound_rules": [{}]}`, true, "has(a)", true},
		{`{"selector": "has(a)", "pre_dnat": true, "types": ["outbound"]}`, true, "has(a)", true},
		{`{"selector": "has(a)", "apply_on_forward": 1}`, true, "has(a)", true},
	} {
		_, err := model.ParseValue(model.PolicyKey{"default", "p"}, []byte(tt.value))
		var invalid *model.InvalidPolicyError
		if err == nil || errors.As(err, &invalid) != tt.known {
			t.Errorf("%s: %v, want an InvalidPolicyError: %v", tt.value, err, tt.known)
		} else if tt.known && (invalid.Selector != tt.selector || invalid.Forward != tt.forward) {
			t.Errorf("%s: selector %q, of forwarded packets %t, want %q, %t", tt.value, invalid.Selector, invalid.Forward, tt.selector, tt.forward)
		}
	}
}

// TestInvalidHostEndpoint tells what a host endpoint is on in which something else is wrong.
func TestInvalidHostEndpoint(t *testing.T) {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for _, tt := range []struct {
		value  string
		known  bool
		on     model.HostEndpoint
		partly bool
	}{
		{`{"name": "eth0", "labels": {"a": 1}, "profile_ids": ["p"]}`, true, model.HostEndpoint{Name: "eth0"}, false},
		{`{"labels": {"a": 1}, "name": "*"}`, true, model.HostEndpoint{Name: "*"}, false},
		{`{"labels": {"a": "b"}, "labels": {}, "name": "eth0"}`, true, model.HostEndpoint{Name: "eth0"}, false},
		{`{"name": "eth0", "expected_ipv4_addrs": "192.0.2.1"}`, true, model.HostEndpoint{Name: "eth0"}, false},
		{`{"expected_ipv4_addrs": ["192.0.2.1", "x", 5, "fd00::1"], "expected_ipv6_addrs": ["fd00::1"]}`, true,
			model.HostEndpoint{ExpectedIPv4Addrs: addrs("192.0.2.1"), ExpectedIPv6Addrs: addrs("fd00::1")}, true},
		{`{"expected_ipv4_addrs": ["192.0.2.1O", "192.0.2.99"]}`, true, model.HostEndpoint{ExpectedIPv4Addrs: addrs("192.0.2.99")}, true},
		{`{"expected_ipv4_addrs": "192.0.2.10", "expected_ipv6_addrs": ["fd00::1"]}`, true, model.HostEndpoint{ExpectedIPv6Addrs: addrs("fd00::1")}, true},
		{`{"expected_ipv4_addrs": null, "expected_ipv6_addrs": ["fd00::1"], "labels": 5}`, true, model.HostEndpoint{ExpectedIPv6Addrs: addrs("fd00::1")}, false},
		{`{"name": null, "profile_ids": 5, "expected_ipv4_addrs": ["192.0.2.1"]}`, true, model.HostEndpoint{ExpectedIPv4Addrs: addrs("192.0.2.1")}, false},
		{`{"expected_ipv4_addrs": ["192.0.2"]}`, false, model.HostEndpoint{}, false},
		{`{"name": 5, "expected_ipv4_addrs": ["192.0.2.1"]}`, false, model.HostEndpoint{}, false},
		{`{"name": "eth0", "name": "eth1"}`, false, model.HostEndpoint{}, false},
		{`{"name": "a/b", "labels": 5}`, false, model.HostEndpoint{}, false},
		{`{"labels": 5}`, false, model.HostEndpoint{}, false},
		{`["eth0"]`, false, model.HostEndpoint{}, false},
		{`{"name": "eth0", `, false, model.HostEndpoint{}, false},
	} {
		_, err := model.ParseValue(model.HostEndpointKey{Host: "h", Endpoint: "e"}, []byte(tt.value))
		var invalid *model.InvalidHostEndpointError
		if err == nil || errors.As(err, &invalid) != tt.known {
			t.Errorf("%s: %v, want an InvalidHostEndpointError: %v", tt.value, err, tt.known)
		} else if tt.known && (invalid.Partly != tt.partly || !cmp.Equal(invalid.On, tt.on, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }))) {
			t.Errorf("%s: on %+v, partly: %v; want %+v, %v", tt.value, invalid.On, invalid.Partly, tt.on, tt.partly)
		}
	}
}

// TestFormatErrors: what would not be read is not written.
func TestFormatErrors(t *testing.T) {
	endpoint := func(edit func(*model.WorkloadEndpoint)) model.WorkloadEndpoint {
		e := model.WorkloadEndpoint{State: model.StateActive, Name: "cali1", IPv4Nets: []netip.Prefix{cidr("10.0.0.1/32")}}
		edit(&e)
		return e
	}
	one := uint8(1)
	for _, tt := range []struct {
		value any
		want  string
	}{
		{nil, "format <nil>: not a value of the data model"},
		{"text", "format string: not a value of the data model"},
		{model.Text(strings.Repeat("x", 3<<19+1)), "format model.Text: value of 1572865 bytes: at most 1572864"},
		{model.Labels{"a": strings.Repeat("x", 3<<19)}, "format model.Labels: value of 1572872 bytes: at most 1572864"},
		{model.WorkloadEndpoint{}, "format model.WorkloadEndpoint: state: missing"},
		{endpoint(func(e *model.WorkloadEndpoint) { e.Name = "" }), "format model.WorkloadEndpoint: name: missing"},
		{endpoint(func(e *model.WorkloadEndpoint) { e.IPv4Nets[0] = cidr("10.0.0.0/8") }), "format model.WorkloadEndpoint: ipv4_nets[0]: 10.0.0.0/8: want one address, /32"},
		{endpoint(func(e *model.WorkloadEndpoint) { e.IPv4Nets[0] = netip.Prefix{} }), "format model.WorkloadEndpoint: ipv4_nets[0]: missing"},
		{endpoint(func(e *model.WorkloadEndpoint) { e.IPv6Gateway = ip("10.0.0.1") }), "format model.WorkloadEndpoint: ipv6_gateway: 10.0.0.1: want IPv6"},
		{model.Service{Endpoints: []model.ServiceEndpoints{{Nets: []netip.Prefix{cidr("10.0.0.0/24")}}}}, "format model.Service: endpoints[0].nets[0]: want a single address"},
		{model.Service{Endpoints: []model.ServiceEndpoints{{Nets: make([]netip.Prefix, 300), Ports: make([]model.EndpointPort, 300)}}}, "format model.Service: endpoints: 90000 addresses with a port: at most 65536"},
		{model.Service{Endpoints: []model.ServiceEndpoints{{Ports: make([]model.EndpointPort, 1)}}}, `format model.Service: endpoints[0].ports[0].name: "": not the name of a port`},
		{model.NetworkSet{Nets: make([]netip.Prefix, 1)}, "format model.NetworkSet: nets[0]: missing"},
		{model.NetworkSet{Nets: []netip.Prefix{cidr("::ffff:10.0.0.0/104")}}, "format model.NetworkSet: nets[0]: ::ffff:10.0.0.0: write the IPv4 address as 10.0.0.0"},
		{model.HostEndpoint{}, "format model.HostEndpoint: want name, or at least one of expected_ipv4_addrs and expected_ipv6_addrs"},
		{model.Tier{DefaultAction: "deny"}, `format model.Tier: default_action: "deny": want deny or pass`},
		{model.Rules{Inbound: []model.Rule{{}}}, `format model.Rules: inbound_rules[0].action: "": want allow, deny, log or next-tier`},
		{model.Rules{Outbound: []model.Rule{{Action: model.ActionDeny, Not: model.Match{ICMPCode: &one}}}}, `format model.Rules: outbound_rules[0].!icmp_code: needs !icmp_type`},
		{model.Tags{""}, "format model.Tags: [0]: empty"},
		{model.Tags(slices.Repeat([]string{"a"}, 1<<14+1)), "format model.Tags: 16385 entries: at most 16384"},
		{model.Policy{Selector: "x"}, "format model.Policy: selector: at byte 1: want ==, !=, in, not in, contains, starts with or ends with, have the end"},
		{model.Policy{Types: []model.Direction{"in"}}, `format model.Policy: types[0]: "in": want inbound or outbound`},
		{model.Pool{}, "format model.Pool: cidr: missing"},
		{model.Pool{CIDR: cidr("10.0.0.1/16")}, "format model.Pool: cidr: 10.0.0.1/16 has host bits set: write 10.0.0.0/16"},
		{model.Block{}, "format model.Block: cidr: missing"},
		{model.Block{CIDR: cidr("10.0.0.0/30"), Allocations: []int{0, 0, 0, 0}}, "format model.Block: allocations[0]: 0: there are 0 attributes"},
		{model.Block{CIDR: cidr("10.0.0.0/31"), Allocations: []int{-2, model.Free}}, "format model.Block: allocations[0]: -2: there are 0 attributes"},
		{model.Block{CIDR: cidr("10.0.0.0/31"), Allocations: []int{model.Free, model.Free}}, "format model.Block: unallocated: 0 ordinals for 2 free addresses"},
		{model.Handle{}, "format model.Handle: id: missing"},
		{model.Handle{ID: "h", Blocks: map[netip.Prefix]int{cidr("10.0.0.0/26"): -1}}, "format model.Handle: block.\"10.0.0.0/26\": count -1"},
		{model.Handle{ID: "h", Blocks: map[netip.Prefix]int{{}: 1}}, "format model.Handle: block: missing"},
		{model.IPAMConfig{}, "format model.IPAMConfig: strict_affinity and auto_allocate_blocks cannot both be false"},
		{model.BGPPeer{IP: ip("192.0.2.1")}, "format model.BGPPeer: as_num: missing"},
		{model.BGPPeer{AS: 1}, "format model.BGPPeer: ip: missing"},
		{model.Status{}, "format model.Status: time: missing"},
		{model.Status{Time: time.Unix(1, 0), Uptime: -time.Second}, "format model.Status: uptime: -1s: out of range"},
		{model.EndpointStatus("x"), `format model.EndpointStatus: status: "x": want up, down or error`},
		{model.Subnet{CIDR: cidr("10.0.0.0/24")}, "format model.Subnet: gateway_ip: missing"},
	} {
		data, err := model.FormatValue(tt.value)
		if err == nil {
			t.Errorf("%#v: %s, want the error %s", tt.value, data, tt.want)
		} else if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("%.200v:\n%s", tt.value, diff)
		}
	}
}

// TestParseValueOfBadKeys: a key that was not parsed is no reason to panic.
func TestParseValueOfBadKeys(t *testing.T) {
	for _, k := range []model.Key{
		nil, model.BlockKey{}, model.BlockKey{cidr("0.0.0.0/0")}, model.BlockKey{cidr("::/0")}, model.PoolKey{},
		model.BGPPeerKey{}, model.BGPHostKey{}, model.HandleKey{},
	} {
		for _, data := range []string{"", "{}", `{"as_num": 1, "allocations": [], "cidr": "10.0.0.0/8"}`, "x"} {
			v, err := model.ParseValue(k, []byte(data))
			if err == nil {
				if _, err := model.FormatValue(v); err == nil && data == "x" {
					t.Errorf("%#v: %q is %#v", k, data, v)
				}
			}
		}
	}
}
