// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// Short for the paths of etcd.
const (
	web    = "/calico/v1/host/h1/workload/k8s/web/endpoint/eth0"
	db     = "/calico/v1/host/h1/workload/k8s/db/endpoint/eth0"
	remote = "/calico/v1/host/h2/workload/k8s/far/endpoint/eth0"
	uplink = "/calico/v1/host/h1/endpoint/uplink"
	star   = "/calico/v1/host/h1/endpoint/star"
	pol    = "/calico/v1/policy/tier/default/policy/"
	prof   = "/calico/v1/policy/profile/"
	netset = "/calico/v1/netset/"
)

// base is a host with two workloads, web and db; both may send, and web receive, by profile.
func base() map[string]string {
	return map[string]string{
		web: `{"state": "active", "name": "cali1", "mac": "02:00:00:00:00:01", "profile_ids": ["open"], "ipv4_nets": ["10.0.0.1/32"], "ipv6_nets": ["fd00::1/128"],
			"labels": {"role": "web"}, "ports": [{"name": "http", "protocol": "tcp", "port": 8080}]}`,
		db: `{"state": "active", "name": "cali2", "mac": "02:00:00:00:00:02", "profile_ids": ["send"], "ipv4_nets": ["10.0.0.2/32"], "ipv6_nets": ["fd00::2/128"],
			"labels": {"role": "db"}, "ports": [{"name": "sql", "protocol": "tcp", "port": 5432}]}`,
		remote:                                  `{"state": "active", "name": "cali1", "mac": "02:00:00:00:00:03", "profile_ids": ["open"], "ipv4_nets": ["10.0.1.3/32"], "labels": {"role": "far"}}`,
		prof + "open/rules":                     `{"inbound_rules": [{}], "outbound_rules": [{}]}`,
		prof + "open/tags":                      `["opened"]`,
		prof + "send/rules":                     `{"outbound_rules": [{"action": "allow"}]}`,
		"/calico/v1/ipam/v4/pool/10.0.0.0-8":    `{"cidr": "10.0.0.0/8", "masquerade": true}`,
		"/calico/v1/ipam/v4/pool/172.16.0.0-12": `{"cidr": "172.16.0.0/12"}`,
	}
}

// entryOf parses what stands at a path as the store does.
func entryOf(t *testing.T, path, value string) model.Entry {
	t.Helper()
	key, err := model.ParseKey(path)
	if err != nil {
		t.Fatal(err)
	}
	e := model.Entry{Path: path, Key: key, Revision: 1, Created: 1}
	if value == "" {
		e.Revision, e.Created = 0, 0
		return e
	}
	e.Value, e.Err = model.ParseValue(key, []byte(value))
	return e
}

// stateOf is what host h1 makes of base and some other objects; "" = not there.
func stateOf(t *testing.T, objects map[string]string) (*Engine, *State) {
	t.Helper()
	all := base()
	for path, value := range objects {
		all[path] = value
	}
	e := NewEngine("h1")
	e.SetPrefixes([]string{"cali"})
	e.SetInterfaces([]Interface{{"eth0", []netip.Addr{addr("192.0.2.10")}}, {"eth1", []netip.Addr{addr("198.51.100.10")}}})
	for path, value := range all {
		e.Update(entryOf(t, path, value))
	}
	st := &State{}
	if err := st.Apply(e.Flush()); err != nil {
		t.Fatal(err)
	}
	return e, st
}

// TestUnreadablePolicy denies those that a policy picked before it couldn't be read.
func TestUnreadablePolicy(t *testing.T) {
	valid := `{"selector": "role == 'web'", "order": 5, "inbound_rules": [{"action": "allow"}]}`
	e, st := stateOf(t, map[string]string{pol + "a": valid})
	entry := entryOf(t, pol+"a", strings.TrimSuffix(valid, "}"))
	for _, tt := range []struct {
		value any
		want  Verdict
	}{{entryOf(t, pol+"a", valid).Value, Drop}, {nil, Accept}} {
		entry.Value = tt.value
		e.Update(entry)
		if err := st.Apply(e.Flush()); err != nil {
			t.Fatal(err)
		}
		if r := Evaluate(testSettings, st, packet(t, fromOut)); r.Verdict != tt.want {
			t.Errorf("with %v known: %s, want %s: %v", tt.value, r.Verdict, tt.want, r.Trail)
		}
		if r := Evaluate(testSettings, st, packet(t, toOut)); r.Verdict != tt.want {
			t.Errorf("with %v known: %s, want %s: %v", tt.value, r.Verdict, tt.want, r.Trail)
		}
	}

	// So do labels and tags that can't be read: the profile denies.
	const from = pol + "from"
	e, _ = stateOf(t, map[string]string{prof + "send/labels": `{"bad": "yes"}`, from: `{"selector": "role == 'web'", "inbound_rules": [{"action": "deny", "src_selector": "has(bad)"}, {}]}`})
	entry = entryOf(t, prof+"send/labels", `{"bad": "yes"`)
	entry.Value = model.Labels{"bad": "yes"}
	e.Update(entry)
	if c := e.Flush(); len(c.Sets) > 0 || c.Rules[profileID("send")].Invalid == "" {
		t.Errorf("%+v", c)
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var testSettings = Settings{
	Prefixes: []string{"cali"}, EndpointToHost: ToHostDrop, LogPrefix: "calico-packet",
	FailsafeInbound:  []ProtoPort{{model.ProtocolTCP, 22}, {model.ProtocolUDP, 68}},
	FailsafeOutbound: []ProtoPort{{model.ProtocolTCP, 2379}, {model.ProtocolUDP, 53}},
}

// packet reads "in>out src>dst what", with - for the host itself and what like
// tcp:1234>80, icmp:8/0 or 47, and maybe a state of the connection, and its ends.
func packet(t *testing.T, text string) Packet {
	t.Helper()
	f := strings.Fields(text)
	pair := func(s string) (string, string) {
		a, b, ok := strings.Cut(s, ">")
		if !ok {
			t.Fatalf("packet %q", text)
		}
		return a, b
	}
	iface := func(s string) string { return strings.Trim(s, "-") }
	in, out := pair(f[0])
	src, dst := pair(f[1])
	p := Packet{In: iface(in), Out: iface(out), Src: addr(src), Dst: addr(dst)}
	name, detail, _ := strings.Cut(f[2], ":")
	proto, err := model.ParseProtocol(name)
	if err != nil {
		t.Fatal(err)
	}
	p.Protocol = proto
	number := func(s string) uint16 {
		port, err := model.ParsePort(s)
		if err != nil {
			t.Fatal(err)
		}
		return port.Min
	}
	if a, b, ok := strings.Cut(detail, ">"); ok {
		p.SrcPort, p.DstPort = number(a), number(b)
	} else if a, b, ok := strings.Cut(detail, "/"); ok {
		p.ICMPType, p.ICMPCode = uint8(number(a)), uint8(number(b))
	}
	if len(f) > 3 {
		p.Conn = Conn(f[3])
	}
	if len(f) > 4 {
		first, last := pair(f[4])
		p.Ends = [...]netip.Addr{addr(first), addr(last)}
	}
	return p
}

// An evaluateCase is a packet on base with some objects, and what its trail must tell.
type evaluateCase struct {
	objects map[string]string
	packet  string
	want    Verdict
	why     string
}

func checkCases(t *testing.T, s Settings, cases []evaluateCase) {
	t.Helper()
	for _, tt := range cases {
		_, st := stateOf(t, tt.objects)
		r := Evaluate(s, st, packet(t, tt.packet))
		told := slices.ContainsFunc(r.Trail, func(s Step) bool { return strings.Contains(s.String(), tt.why) })
		if r.Verdict != tt.want || !told {
			t.Errorf("%s with %v:\n%s, want %s with %q; the trail is", tt.packet, tt.objects, r.Verdict, tt.want, tt.why)
			for _, step := range r.Trail {
				t.Logf("\t%s", step)
			}
		}
	}
}

// The usual packets.
const (
	toDB      = "cali1>cali2 10.0.0.1>10.0.0.2 tcp:40000>5432"
	toDB6     = "cali1>cali2 fd00::1>fd00::2 tcp:40000>5432"
	fromOut   = "eth0>cali1 203.0.113.5>10.0.0.1 tcp:40000>80"
	toOut     = "cali1>eth0 10.0.0.1>203.0.113.5 tcp:40000>443"
	farToDB   = "eth0>cali2 10.0.1.3>10.0.0.2 tcp:40000>5432"
	pingDB    = "cali1>cali2 10.0.0.1>10.0.0.2 icmp:8/0"
	pingDB6   = "cali1>cali2 fd00::1>fd00::2 icmpv6:128/0"
	toHost    = "cali1>- 10.0.0.1>192.0.2.10 tcp:40000>80"
	sshToHost = "eth0>- 203.0.113.5>192.0.2.10 tcp:40000>22"
	webToHost = "eth0>- 203.0.113.5>192.0.2.10 tcp:40000>80"
)

func TestOutcome(t *testing.T) {
	allow := `{"selector": "role == 'db'", "inbound_rules": [{"action": "allow"}]}`
	checkCases(t, testSettings, []evaluateCase{
		// No policy applies: profiles in list order; none decides: dropped.
		{nil, toDB, Drop, "to endpoint " + db + ": no profile decides: drop"},
		{nil, fromOut, Accept, "profile open rule 0: allow"},
		{nil, toOut, Accept, "from endpoint " + web + ": profile open rule 0: allow"},
		{map[string]string{db: "", prof + "send/rules": ""}, toDB, Drop, "to workload interface cali2, which no endpoint has: drop"},
		// allow: accepted, nothing more is looked at; deny: dropped.
		{map[string]string{pol + "a": allow}, toDB, Accept, "to endpoint " + db + ": policy a rule 0: allow"},
		{map[string]string{pol + "a": `{"selector": "role == 'db'", "order": 1, "inbound_rules": [{"action": "deny"}]}`, pol + "b": allow}, toDB, Drop, "policy a rule 0: deny"},
		// By order ascending, none last, ties by name.
		{map[string]string{pol + "a": `{"selector": "", "order": 2, "inbound_rules": [{"action": "deny"}]}`, pol + "b": `{"selector": "", "order": 1, "inbound_rules": [{}], "outbound_rules": [{}]}`}, toDB, Accept, "policy b"},
		{map[string]string{pol + "a": `{"selector": "", "inbound_rules": [{"action": "deny"}]}`, pol + "b": `{"selector": "", "order": 1000, "inbound_rules": [{}], "outbound_rules": [{}]}`}, toDB, Accept, "policy b"},
		{map[string]string{pol + "a": `{"selector": "", "order": "default", "inbound_rules": [{"action": "deny"}], "types": ["inbound"]}`, pol + "b": allow}, toDB, Drop, "policy a"},
		{map[string]string{pol + "a": `{"selector": "", "order": -1, "inbound_rules": [{"action": "deny"}], "types": ["inbound"]}`, pol + "b": `{"selector": "", "order": 0, "inbound_rules": [{}], "outbound_rules": [{}]}`}, toDB, Drop, "policy a"},
		// At least one policy applies to this direction and none decides: dropped.
		{map[string]string{pol + "a": `{"selector": "role == 'web'", "inbound_rules": [{"protocol": "udp"}]}`}, fromOut, Drop, "policies apply and none decides: drop"},
		{map[string]string{pol + "a": `{"selector": "role == 'web'", "inbound_rules": [{}]}`}, toOut, Drop, "from endpoint " + web + ": end of tier default, policies apply and none decides: drop"},
		{map[string]string{pol + "a": `{"selector": "role == 'web'", "inbound_rules": [{}], "types": ["inbound"]}`}, toOut, Accept, "profile open"},
		// log: logged, goes on; next-tier: on to the profiles.
		{map[string]string{pol + "a": `{"selector": "role == 'db'", "inbound_rules": [{"action": "log"}, {"action": "allow"}]}`}, toDB, Accept, "policy a rule 1"},
		{map[string]string{pol + "a": `{"selector": "role == 'web'", "order": 1, "inbound_rules": [{"action": "next-tier"}]}`, pol + "b": `{"selector": "", "order": 2, "inbound_rules": [{"action": "deny"}]}`}, fromOut, Accept, "profile open"},
		{map[string]string{pol + "a": `{"selector": "role == 'db'", "inbound_rules": [{"action": "pass"}]}`}, toDB, Drop, "no profile decides"},
		// In a profile next-tier ends that one.
		{map[string]string{web: strings.Replace(base()[web], `["open"]`, `["p", "open"]`, 1), prof + "p/rules": `{"inbound_rules": [{"action": "next-tier"}, {"action": "deny"}]}`}, fromOut, Accept, "profile open"},
		{map[string]string{web: strings.Replace(base()[web], `["open"]`, `["p", "open"]`, 1), prof + "p/rules": `{"inbound_rules": [{"action": "deny"}]}`}, fromOut, Drop, "profile p rule 0: deny"},
		// Missing or invalid profile, invalid policy whose selector parses: deny.
		{map[string]string{web: strings.Replace(base()[web], `["open"]`, `["p", "open"]`, 1)}, fromOut, Drop, "profile p: deny: it does not exist"},
		{map[string]string{web: strings.Replace(base()[web], `["open"]`, `["p", "open"]`, 1), prof + "p/rules": `{"inbound_rules": 7}`}, fromOut, Drop, "profile p: deny: /calico/v1/policy/profile/p/rules: "},
		{map[string]string{web: strings.Replace(base()[web], `["open"]`, `["p", "open"]`, 1), prof + "p/rules": `{}`, prof + "p/tags": `{}`}, fromOut, Drop, "profile p: deny: /calico/v1/policy/profile/p/tags: "},
		{map[string]string{web: strings.Replace(base()[web], `["open"]`, `["p", "open"]`, 1), prof + "p/labels": `{}`}, fromOut, Accept, "profile open"}, // each key may be missing
		{map[string]string{pol + "z": `{"selector": "role == 'db'", "inbound_rules": [{"action": "fly"}]}`, pol + "a": `{"selector": "role == 'db'", "order": -5, "inbound_rules": [{}]}`}, toDB, Drop, "policy z: deny: "},
		{map[string]string{pol + "z": `{"selector": "role ==", "inbound_rules": [{}]}`, pol + "a": allow}, toDB, Accept, "policy a"},
		// An inactive endpoint: all dropped. What it was connected to has no route to
		// it, and its connections are deleted.
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, toOut, Drop, "cali1, which no endpoint has"},
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, fromOut, Drop, "cali1, which no endpoint has"},
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, fromOut + " established", Accept, "established connection: accept"},
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, fromOut + " invalid", Drop, "cali1, which no endpoint has"},
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, toOut + " established", Drop, "cali1, which no endpoint has"},
		{map[string]string{web: `{"state": "active"}`}, fromOut, Drop, "cali1, which no endpoint has"},
		// Bookended: a packet from elsewhere is checked here as well.
		{nil, farToDB, Drop, "to endpoint " + db},
	})
}

func TestConnections(t *testing.T) {
	checkCases(t, testSettings, []evaluateCase{
		{nil, toDB + " established", Accept, "established connection: accept"},
		// An error is from one of the ends, or from a router, which no workload is.
		{nil, toDB + " related 10.0.0.1>10.0.0.2", Accept, "related connection: accept"},
		{nil, toDB + " related 10.0.0.2>10.0.0.1", Accept, "related connection: accept"},
		{nil, toDB6 + " related fd00::1>fd00::2", Accept, "related connection: accept"},
		{nil, toDB + " related 10.0.0.3>10.0.0.2", Drop, "cali1, about a connection of others: drop"},
		{nil, toHost + " related 192.0.2.10>10.0.0.1", Accept, "related connection: accept"},
		{nil, toHost + " related 192.0.2.10>192.0.2.11", Drop, "cali1, about a connection of others: drop"},
		{nil, fromOut + " related 10.0.0.1>203.0.113.9", Accept, "related connection: accept"},
		{nil, fromOut + " invalid", Drop, "invalid: drop"},
		{nil, toHost + " established", Accept, "established"},
		{nil, toHost + " invalid", Drop, "invalid"},
		// Spoofed packets of foreign connections don't pass.
		{nil, "cali1>cali2 10.0.0.9>10.0.0.2 tcp:1>2 established", Drop, "not an address of the endpoint"},
		// What doesn't concern us is left alone.
		{nil, "eth0>eth1 203.0.113.5>198.51.100.7 tcp:1>2 invalid", Accept, "no endpoints: accept"},
		{nil, "eth0>- 203.0.113.5>192.0.2.10 tcp:1>2 invalid", Accept, "no host endpoint there: accept"},
		{nil, "->eth0 192.0.2.10>203.0.113.5 tcp:1>2 invalid", Accept, "no host endpoint there: accept"},
		{nil, "->- 127.0.0.1>127.0.0.1 tcp:1>2", Accept, "to itself"},
	})
}

func TestSpoofing(t *testing.T) {
	checkCases(t, testSettings, []evaluateCase{
		{nil, "cali1>eth0 10.0.0.2>203.0.113.5 tcp:1>2", Drop, "source 10.0.0.2 is not an address of the endpoint: drop"},
		{nil, "cali1>eth0 fd00::1>2001:db8::1 tcp:1>2", Accept, "profile open"},
		{nil, "cali1>eth0 fd00::2>2001:db8::1 tcp:1>2", Drop, "not an address of the endpoint"},
		{nil, "cali9>eth0 10.0.0.1>203.0.113.5 tcp:1>2", Drop, "from workload interface cali9, which no endpoint has"},
		// DHCP asks before there is an endpoint, and only the host.
		{nil, "cali9>- 0.0.0.0>255.255.255.255 udp:68>67", Accept, "DHCP"},
		{nil, "cali9>- fe80::1>ff02::1:2 udp:546>547", Drop, "which no endpoint has"},
		{nil, "cali9>eth0 10.0.0.1>203.0.113.5 udp:68>67", Drop, "which no endpoint has"},
		{nil, "cali9>cali1 10.0.0.9>10.0.0.1 udp:68>67", Drop, "which no endpoint has"},
		{nil, "cali9>- 0.0.0.0>255.255.255.255 udp:67>68", Drop, "which no endpoint has"},
		{nil, "cali9>- fe80::1>ff02::1:ff00:1 icmpv6:135/0", Drop, "which no endpoint has"},
		{nil, "->cali9 192.0.2.10>255.255.255.255 udp:67>68", Accept, "DHCP's answer"},
		{nil, "->cali9 fe80::2>fe80::1 udp:547>546", Drop, "which no endpoint has"},
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, "cali1>- 0.0.0.0>255.255.255.255 udp:68>67", Drop, "cali1, which no endpoint has"},
		{map[string]string{web: strings.Replace(base()[web], "active", "inactive", 1)}, "->cali1 192.0.2.10>10.0.0.1 udp:67>68", Drop, "cali1, which no endpoint has"},
		{nil, "->cali9 192.0.2.10>10.0.0.9 udp:68>67", Drop, "which no endpoint has"},
		{nil, "eth0>cali9 203.0.113.5>10.0.0.9 udp:67>68", Drop, "which no endpoint has"},
		// DHCP and neighbour discovery are exempt first.
		{nil, "cali1>- 0.0.0.0>255.255.255.255 udp:68>67", Accept, "DHCP"},
		{nil, "cali1>- fe80::1>ff02::1:2 udp:546>547", Accept, "DHCP"},
		{nil, "cali1>- fe80::1>2001:db8::a udp:546>547", Accept, "DHCP"},
		{nil, "cali1>- fe80::1>ff02::1 udp:546>547", Drop, "not an address"},
		{nil, "cali1>eth0 fe80::1>2001:db8::1 udp:546>547", Drop, "not an address"},
		{nil, "cali1>- 0.0.0.0>255.255.255.255 udp:67>68", Drop, "not an address"},
		// But not from another's address.
		{nil, "cali1>- fd00::2>ff02::1:2 udp:546>547", Drop, "not an address"},
		{nil, "cali1>- fd00::2>2001:db8::a udp:546>547", Drop, "not an address"},
		{nil, "cali1>- 10.0.0.2>255.255.255.255 udp:68>67", Drop, "not an address"},
		{nil, "cali1>- fd00::1>2001:db8::a udp:546>547", Accept, "DHCP or neighbour discovery to the host"},
		{nil, "cali9>- 10.0.0.1>255.255.255.255 udp:68>67", Drop, "which no endpoint has"},
		{nil, "cali1>- fe80::1>ff02::1:2 udp:68>67", Drop, "not an address"},
		{nil, "cali1>- 10.0.0.1>192.0.2.10 udp:546>547", Drop, "endpoint to host action"},
		{nil, "cali1>- fe80::1>ff02::1:ff00:1 icmpv6:135/0", Accept, "neighbour discovery"},
		{nil, "cali1>- fd00::7>ff02::1:ff00:1 icmpv6:135/0", Drop, "not an address of the endpoint"},
		{nil, "cali1>- ::>ff02::16 icmpv6:143/0", Accept, "neighbour discovery"},
		{nil, "cali1>- fe80::1>ff02::1 icmpv6:134/0", Drop, "not an address"},
		{nil, "cali1>- fe80::1>ff02::2 icmpv6:133/0", Accept, "neighbour discovery"},
		{nil, "cali1>- fe80::1>fe80::2 icmpv6:128/0", Drop, "not an address"},
		// NAT addresses are not the endpoint's own.
		{map[string]string{web: natted}, "cali1>eth0 192.0.2.77>203.0.113.5 tcp:1>2", Drop, "not an address"},
	})
	_, st := stateOf(t, nil)
	p := packet(t, toOut)
	for _, tt := range []struct {
		mac  model.MAC
		want Verdict
	}{{model.MAC{2, 0, 0, 0, 0, 1}, Accept}, {model.MAC{2, 0, 0, 0, 0, 2}, Drop}, {model.MAC{}, Accept}} {
		if p.MAC = tt.mac; Evaluate(testSettings, st, p).Verdict != tt.want {
			t.Errorf("from %s: want %s", tt.mac, tt.want)
		}
	}
}

var natted = strings.Replace(base()[web], `"labels"`, `"ipv4_nat": [{"int_ip": "10.0.0.1", "ext_ip": "192.0.2.77"}, {"int_ip": "10.0.0.1", "ext_ip": "192.0.2.66"}], "labels"`, 1)

func TestToHost(t *testing.T) {
	settings := func(a EndpointToHost, dns bool) Settings {
		s := testSettings
		s.EndpointToHost, s.EndpointDNS = a, dns
		return s
	}
	dns := "cali1>- 10.0.0.1>192.0.2.10 udp:40000>53"
	checkCases(t, testSettings, []evaluateCase{
		{nil, toHost, Drop, "endpoint to host action DROP: drop"},
		{nil, dns, Drop, "endpoint to host action DROP: drop"},
		// Host to own workload: allowed, whatever its policy.
		{nil, "->cali2 192.0.2.10>10.0.0.2 tcp:1>5432", Accept, "from its own host: accept"},
		{nil, "->cali9 192.0.2.10>10.0.0.2 tcp:1>5432", Drop, "no endpoint has"},
	})
	checkCases(t, settings("", false), []evaluateCase{{nil, toHost, Drop, "action DROP"}})
	checkCases(t, settings(ToHostAccept, false), []evaluateCase{
		{nil, toHost, Accept, "action ACCEPT: accept"},
		// The workload's own policy is asked first.
		{map[string]string{prof + "open/rules": `{}`}, toHost, Drop, "no profile decides"},
	})
	checkCases(t, settings(ToHostReturn, true), []evaluateCase{
		{nil, toHost, Accept, "action RETURN: accept"},
		{map[string]string{prof + "open/rules": `{}`}, dns, Accept, "DNS"},
		{map[string]string{prof + "open/rules": `{}`}, strings.Replace(dns, "udp", "tcp", 1), Accept, "DNS"},
		{map[string]string{prof + "open/rules": `{}`}, strings.Replace(dns, "udp", "sctp", 1), Drop, "no profile decides"},
	})
}

func TestTrailAndLog(t *testing.T) {
	_, st := stateOf(t, map[string]string{
		pol + "a": `{"selector": "role == 'db'", "inbound_rules": [{"action": "log"}, {"action": "log", "log_prefix": "to db: straße, and more of it than fits"}, {"action": "allow", "log_prefix": "ok"}]}`,
	})
	r := Evaluate(testSettings, st, packet(t, toDB))
	if diff := cmp.Diff([]string{"calico-packet", "to_db:_stra__e__and_more_of", "ok"}, r.Logged); diff != "" {
		t.Error(diff)
	}
	var got []string
	for _, s := range r.Trail {
		got = append(got, s.String())
	}
	want := []string{
		"from endpoint " + web + ": profile open rule 0: allow",
		"to endpoint " + db + ": policy a rule 0: log as calico-packet",
		"to endpoint " + db + ": policy a rule 1: log as to_db:_stra__e__and_more_of",
		"to endpoint " + db + ": policy a rule 2: allow, logged as ok",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
