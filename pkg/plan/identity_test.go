// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

func hostLinks() []Link {
	prefixes := func(all ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, s := range all {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	return []Link{
		{Name: "lo", Up: true, Addrs: prefixes("127.0.0.1/8", "::1/128")},
		{Name: "docker0", Up: true, Addrs: prefixes("172.17.0.1/16")},
		{Name: "eth9", Addrs: prefixes("192.0.2.9/24")},
		{Name: "eth0", Up: true, Addrs: prefixes("169.254.3.3/16", "172.18.203.125/24", "172.18.204.125/24", "fe80::1/64")},
		{Name: "bond0", Up: true, Addrs: prefixes("10.65.3.1/16", "10.9.0.1/31", "fd18::125/64")},
	}
}

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		method  string
		v6      bool
		reached string
		want    string // link and address, or a part of the error
	}{
		{"", false, "", "eth0 172.18.203.125/24"},
		{"", true, "", " invalid Prefix"},
		{"autodetect", true, "", "bond0 fd18::125/64"},
		{"first-found", false, "", "eth0 172.18.203.125/24"},
		{"skip-interface=eth.*", false, "", "bond0 10.9.0.1/31"},
		{"skip-interface=eth.*,bond", false, "", `skip-interface=eth.*,bond finds no IPv4 address on a link that is up; there are: 172.17.0.1/16 on docker0`},
		{"interface=docker", false, "", "docker0 172.17.0.1/16"},
		{"interface=^bond0$", false, "", "bond0 10.65.3.1/16"},
		{"interface=eth9", false, "", "finds no IPv4 address"},
		{"interface=nothing,eth0", false, "", "eth0 172.18.203.125/24"},
		{"cidr=192.168.0.0/16, 172.18.204.0/24", false, "", "eth0 172.18.204.125/24"},
		{"cidr=fd18::/32", true, "", "bond0 fd18::125/64"},
		{"can-reach=8.8.8.8", false, "172.18.204.125", "eth0 172.18.204.125/24"},
		{"can-reach=tor.example", false, "", "no route of this host leads to tor.example"},
		{"can-reach=8.8.8.8", false, "127.0.0.1", "finds no IPv4 address"},
		{"172.18.204.125", false, "", "eth0 172.18.204.125/24"},
		{"172.18.204.125/20", false, "", "eth0 172.18.204.125/20"},
		{"192.0.2.9", false, "", "eth9 192.0.2.9/24"},
		{"198.51.100.7", false, "", " 198.51.100.7/32"},
		{"none", false, "", " invalid Prefix"},
	} {
		m, err := ParseMethod(tt.method, tt.v6)
		if err != nil {
			t.Errorf("%q: %v", tt.method, err)
			continue
		}
		var reached netip.Addr
		if tt.reached != "" {
			reached = netip.MustParseAddr(tt.reached)
		}
		id, err := m.Choose(Surroundings{Links: Links{Links: hostLinks()}, Pools: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/16")}, Reached: reached}, tt.v6)
		got := id.Link + " " + id.Addr.String()
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%q: %s, want %s", tt.method, got, tt.want)
		}
	}
	// A pool that overlaps the hosts' subnets doesn't leave the host without an address.
	all := []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("10.0.0.0/8")}
	for method, want := range map[string]string{"first-found": "172.18.203.125/24", "skip-interface=^eth0$": "10.65.3.1/16"} {
		m, err := ParseMethod(method, false)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := m.Choose(Surroundings{Links: Links{Links: hostLinks()}, Pools: all}, false); err != nil || id.Addr.String() != want {
			t.Errorf("%s, all in pools: %v, %v", method, id, err)
		}
	}
	if _, err := (Method{}).Choose(Surroundings{Links: Links{Links: hostLinks()}}, false); err == nil {
		t.Error("the zero Method finds an address")
	}
}

// TestChooseTheWay: on a fresh host the link by which etcd is reached comes first, then that of the default route.
func TestChooseTheWay(t *testing.T) {
	link := func(name string, addrs ...string) Link {
		l := Link{Name: name, Up: true}
		for _, a := range addrs {
			l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
		}
		return l
	}
	uplink := link("eth0", "172.31.0.11/24", "172.31.0.12/24", "fd31::12/64", "fd31::11/64")
	byDefault := func(device string) []HostRoute {
		return []HostRoute{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("172.31.0.1"), Device: device},
			{Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fe80::1"), Device: device},
		}
	}
	for name, tt := range map[string]struct {
		method, former, pool string
		v6                   bool
		first                Link
		routes               []HostRoute
		reached              string
		want                 string
	}{
		"podman":                   {first: link("podman0", "10.88.0.1/16"), routes: byDefault("eth0"), want: "eth0 172.31.0.11/24"},
		"tailscale":                {first: link("tailscale0", "100.64.0.9/32"), routes: byDefault("eth0"), want: "eth0 172.31.0.11/24"},
		"WireGuard":                {first: link("wg0", "10.7.0.2/24"), routes: byDefault("eth0"), want: "eth0 172.31.0.11/24"},
		"a management card":        {first: link("idrac", "192.168.120.1/24"), routes: byDefault("eth0"), want: "eth0 172.31.0.11/24"},
		"IPv6":                     {method: "autodetect", v6: true, first: link("wt0", "fd00:88::1/64"), routes: byDefault("eth0"), want: "eth0 fd31::12/64"},
		"etcd by the other link":   {first: link("eth1", "10.1.0.5/24"), routes: byDefault("eth0"), reached: "10.1.0.5", want: "eth1 10.1.0.5/24"},
		"etcd from one address":    {first: link("podman0", "10.88.0.1/16"), routes: byDefault("eth0"), reached: "172.31.0.12", want: "eth0 172.31.0.12/24"},
		"etcd on the host itself":  {first: link("podman0", "10.88.0.1/16"), reached: "172.31.0.11", want: "eth0 172.31.0.11/24"},
		"etcd by a skipped link":   {method: "skip-interface=eth1", first: link("eth1", "10.1.0.5/24"), routes: byDefault("eth0"), reached: "10.1.0.5", want: "eth0 172.31.0.11/24"},
		"a pool over the LAN":      {pool: "172.31.0.0/16", first: link("podman0", "10.88.0.1/16"), routes: byDefault("eth0"), want: "eth0 172.31.0.11/24"},
		"the former stays":         {former: "10.88.0.1", first: link("podman0", "10.88.0.1/16"), routes: byDefault("eth0"), reached: "172.31.0.11", want: "podman0 10.88.0.1/16"},
		"an interface was chosen":  {method: "interface=podman", first: link("podman0", "10.88.0.1/16"), routes: byDefault("eth0"), want: "podman0 10.88.0.1/16"},
		"nothing says which it is": {first: link("eth9", "10.1.0.5/24"), want: "eth9 10.1.0.5/24"},
	} {
		m, err := ParseMethod(tt.method, tt.v6)
		if err != nil {
			t.Fatal(err)
		}
		s := Surroundings{Links: Links{Links: []Link{tt.first, uplink}, Routes: tt.routes}}
		s.Reached, _ = netip.ParseAddr(tt.reached)
		s.Former, _ = netip.ParseAddr(tt.former)
		if tt.pool != "" {
			s.Pools = []netip.Prefix{netip.MustParsePrefix(tt.pool)}
		}
		id, err := m.Choose(s, tt.v6)
		if got := id.Link + " " + id.Addr.String(); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
}

// TestChooseAmongIPv6: the newest address, which the kernel names first, moves no host,
// one that the kernel doesn't use yet or at all is none, and what stays comes before
// what passes.
func TestChooseAmongIPv6(t *testing.T) {
	link := func(name string, addrs ...string) (l Link) {
		l = Link{Name: name, Up: true}
		for _, text := range addrs {
			kind, addr, marked := strings.Cut(text, ":")
			if len(kind) != 1 || !marked {
				kind, addr = "", text
			}
			p := netip.MustParsePrefix(addr)
			switch kind {
			case "R":
				l.Refused = append(l.Refused, p)
				continue
			case "P":
				l.Pending = append(l.Pending, p.Addr())
			case "T":
				l.Passing = append(l.Passing, p.Addr())
			}
			l.Addrs = append(l.Addrs, p)
		}
		return l
	}
	down := link("eth9", "fd19::1/64")
	down.Up = false
	for name, tt := range map[string]struct {
		method, former string
		links          []Link
		want           string
	}{
		"the first":                       {"first-found", "", []Link{link("eth0", "fd18::99/64", "fd18::1/64")}, "fd18::99/64"},
		"the former":                      {"first-found", "fd18::1", []Link{link("eth0", "fd18::99/64", "fd18::1/64")}, "fd18::1/64"},
		"the former on another link":      {"first-found", "fd18::1", []Link{link("eth0", "fd18::99/64"), link("eth1", "fd18::1/64")}, "fd18::1/64"},
		"the former, which passes":        {"first-found", "fd18::1", []Link{link("eth0", "fd18::99/64", "T:fd18::1/64")}, "fd18::1/64"},
		"the former is on no link":        {"first-found", "fd18::1", []Link{link("eth0", "fd18::99/64")}, "fd18::99/64"},
		"its link is down":                {"first-found", "fd19::1", []Link{link("eth0", "fd18::99/64"), down}, "fd18::99/64"},
		"it isn't allowed any more":       {"cidr=fd18::/64", "fd17::1", []Link{link("eth0", "fd17::1/64", "fd18::1/64")}, "fd18::1/64"},
		"it is refused":                   {"first-found", "fd18::1", []Link{link("eth0", "fd18::99/64", "R:fd18::1/64")}, "fd18::99/64"},
		"refused":                         {"first-found", "", []Link{link("eth0", "R:fd18::99/64", "fd18::1/64")}, "fd18::1/64"},
		"pending":                         {"first-found", "", []Link{link("eth0", "P:fd18::99/64", "fd18::1/64")}, "fd18::1/64"},
		"temporary":                       {"interface=eth0", "", []Link{link("eth0", "T:fd18::99/64", "fd18::1/64")}, "fd18::1/64"},
		"temporary, the other in a pool":  {"first-found", "", []Link{link("eth0", "T:fd18::99/64", "fd65::1/64")}, "fd18::99/64"},
		"nothing but temporary":           {"first-found", "", []Link{link("eth0", "T:fd18::99/64")}, "fd18::99/64"},
		"a given one is used as it is":    {"fd18::1", "", []Link{link("eth0", "P:fd18::1/64")}, "fd18::1/64"},
		"nothing but refused and pending": {"first-found", "", []Link{link("eth0", "R:fd18::99/64", "P:fd18::1/64")}, "there are: fd18::1 on eth0, of which the kernel has yet to find out whether another host has it, fd18::99/64 on eth0, which another host there has"},
	} {
		m, err := ParseMethod(tt.method, true)
		if err != nil {
			t.Fatal(err)
		}
		s := Surroundings{Links: Links{Links: tt.links}, Pools: []netip.Prefix{netip.MustParsePrefix("fd65::/16")}}
		if tt.former != "" {
			s.Former = netip.MustParseAddr(tt.former)
		}
		id, err := m.Choose(s, true)
		got := id.Addr.String()
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestParseMethodRefuses(t *testing.T) {
	for _, tt := range []struct {
		method string
		v6     bool
		want   string
	}{
		{"nonsense", false, "want an address, none, autodetect"},
		{"autodetect=yes", false, "want an address, none, autodetect"},
		{"can-reach=", false, "want an address or a name to reach"},
		{"can-reach=::1", false, "::1: want IPv4"},
		{"interface=", false, "want regular expressions"},
		{"interface=eth[", false, "missing closing ]"},
		{"skip-interface=,", false, "want regular expressions"},
		{"cidr=10.0.0.0", false, "want a CIDR"},
		{"cidr=fd00::/8", false, "want IPv4"},
		{"127.0.0.1", false, "want an IPv4 address that other hosts can reach"},
		{"fe80::1", true, "want an IPv6 address that other hosts can reach"},
		{"172.18.0.1", true, "want an IPv6 address"},
		{"::ffff:172.18.0.1", true, "want an IPv6 address"},
	} {
		if _, err := ParseMethod(tt.method, tt.v6); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.method, err, tt.want)
		}
	}
}

func FuzzParseMethod(f *testing.F) {
	for _, s := range []string{"", "can-reach=a", "interface=eth.*,b", "skip-interface=x", "cidr=10.0.0.0/8,1.0.0.0/8", "10.0.0.1/24", "fd00::1"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, s string, v6 bool) {
		m, err := ParseMethod(s, v6)
		if err != nil {
			return
		}
		again, err := ParseMethod(m.String(), v6)
		if err != nil || again.Kind != m.Kind || again.Target != m.Target {
			t.Fatalf("%q reads as %+v, and %q as %+v, %v", s, m, m, again, err)
		}
		id, err := m.Choose(Surroundings{Links: Links{Links: hostLinks()}, Reached: netip.MustParseAddr("172.18.204.125")}, v6)
		if err == nil && m.Kind != MethodNone && !suits(id.Addr.Addr(), v6) {
			t.Fatalf("%q chooses %+v", s, id)
		}
	})
}

func TestConflict(t *testing.T) {
	a1, a2 := netip.MustParseAddr("172.18.203.125"), netip.MustParseAddr("172.18.203.126")
	c := &cluster{}
	address := func(host string, a netip.Addr) model.Entry {
		return c.entry(model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, model.Text(a.String()))
	}
	lease := func(host string) model.Entry { return c.entry(model.StatusKey{Host: host}, model.Status{}) }
	other := c.entry(model.HostMetadataKey{Host: "host-2"}, model.HostMetadata{})
	for name, tt := range map[string]struct {
		told []model.Entry
		own  netip.Addr
		said []netip.Addr
		want string // "" = none
	}{
		"nobody else":                    {nil, a1, nil, ""},
		"own, after a restart":           {[]model.Entry{address("host-1", a1), lease("host-1")}, a1, nil, ""},
		"another's":                      {[]model.Entry{other, address("host-2", a1), lease("host-2")}, a1, nil, "address 172.18.203.125 is that of host host-2, which lives: give one of them another address; if host-2 is a former name of this machine, its status in etcd ends ReportingTTLSecs after its agent"},
		"another's, although we said so": {[]model.Entry{other, address("host-1", a1), address("host-2", a1), lease("host-2")}, a1, nil, "host-2"},
		"another's, which is dead":       {[]model.Entry{other, address("host-2", a1)}, a1, nil, ""},
		"another came later":             {[]model.Entry{other, address("host-1", a1), address("host-2", a1), lease("host-2")}, a1, []netip.Addr{a1}, ""},
		"another came first":             {[]model.Entry{other, address("host-2", a1), lease("host-2"), address("host-1", a1)}, a1, []netip.Addr{a1}, "host-2"},
		"own, of before a change":        {[]model.Entry{address("host-1", a2), lease("host-1")}, a1, []netip.Addr{a2}, ""},
		"none of IPv6":                   {nil, netip.Addr{}, nil, ""},
	} {
		e := newEngine("host-1", Settings{})
		e.SetLinks(Links{Links: []Link{{Name: "eth0", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.18.203.125/24")}}}})
		e.Update(tt.told...)
		e.compute()
		err := e.Conflict([]netip.Addr{tt.own, {}}, tt.said)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
