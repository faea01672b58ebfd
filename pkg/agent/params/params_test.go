// SPDX-License-Identifier: Apache-2.0

package params

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/beside"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/policy"
)

// defaults returns the parameters with no value set.
func defaults() Params {
	tcp := func(ports ...uint16) (all []policy.ProtoPort) {
		for _, p := range ports {
			all = append(all, policy.ProtoPort{Protocol: model.ProtocolTCP, Port: p})
		}
		return all
	}
	udp := func(port uint16) policy.ProtoPort { return policy.ProtoPort{Protocol: model.ProtocolUDP, Port: port} }
	return Params{
		InterfacePrefixes: []string{"cali"},
		RefreshInterval:   30 * time.Second,
		FirewallInterval:  10 * time.Second,
		LogLevel:          slog.LevelInfo,
		LogFileLevel:      slog.LevelInfo,
		EndpointToHost:    policy.ToHostDrop,
		FailsafeInbound:   append(tcp(22, 179, 2379, 2380, 6443), udp(68), udp(546)),
		MetricsPorts:      tcp(9094),
		FailsafeOutbound:  append(tcp(179, 2379, 2380, 6443), udp(53), udp(67), udp(547)),
		LogPrefix:         "calico-packet",
		MetadataPort:      8775,
		ChainInsertMode:   beside.Insert,

		UnreadyWhenBlocked: board.UnreadyAll,
		ProbePath:          true,

		ReportInterval:  30 * time.Second,
		ReportTTL:       90 * time.Second,
		ReportEndpoints: true,
		ReportDelay:     100 * time.Millisecond,
		Health:          serving.Address{Enabled: true, Host: "127.0.0.1", Port: 9099},
		Metrics:         serving.Address{Enabled: true, Port: 9091},
		RoutingParams: RoutingParams{
			VXLANPort: 4789, VXLANVNI: 4096, MTULiveUpdate: true,
			BGPPort: 179, HoldTime: 90 * time.Second, RestartTime: 2 * time.Minute, MaxPrefixes: 50000,
		},
	}
}

func sameParams() cmp.Option { return cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}) }

// TestParamValues gives every parameter valid and invalid values.
func TestParamValues(t *testing.T) {
	type good map[string]func(*Params)
	durations := func(field func(*Params) *time.Duration, texts map[string]time.Duration) good {
		g := good{}
		for text, d := range texts {
			g[text] = func(p *Params) { *field(p) = d }
		}
		return g
	}
	booleans := func(field func(*Params) *bool) good {
		g := good{}
		for text, b := range map[string]bool{"true": true, "TRUE": true, "yes": true, "1": true, " t\n": true, "false": false, "No": false, "0": false} {
			g[text] = func(p *Params) { *field(p) = b }
		}
		return g
	}
	severities := func(field func(*Params) *slog.Level) good {
		g := good{}
		for text, level := range map[string]slog.Level{
			"debug": slog.LevelDebug, "Info": slog.LevelInfo, "WARNING": slog.LevelWarn, "error\n": slog.LevelError,
			"CRITICAL": slog.LevelError + 4, "none": logfile.LevelNone,
		} {
			g[text] = func(p *Params) { *field(p) = level }
		}
		return g
	}
	failsafe := func(field func(*Params) *[]policy.ProtoPort) good {
		return good{
			"none":  func(p *Params) { *field(p) = nil },
			"None ": func(p *Params) { *field(p) = nil },
			"UDP:68, 22,tcp:80,tcp:22": func(p *Params) {
				*field(p) = []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 22}, {Protocol: model.ProtocolTCP, Port: 80}, {Protocol: model.ProtocolUDP, Port: 68}}
			},
		}
	}
	ports := func(field func(*Params) *uint16) good {
		return good{"1": func(p *Params) { *field(p) = 1 }, " 65535\n": func(p *Params) { *field(p) = 65535 }}
	}
	hosts := func(field func(*Params) *string) good {
		return good{
			"": func(p *Params) { *field(p) = "" }, "localhost": func(p *Params) { *field(p) = "localhost" },
			"192.0.2.1": func(p *Params) { *field(p) = "192.0.2.1" }, "2001:DB8::1": func(p *Params) { *field(p) = "2001:db8::1" },
			"fe80::1%eth0": func(p *Params) { *field(p) = "fe80::1%eth0" },
		}
	}
	badPorts := []string{"", ",", "tcp:", "tcp:0", "tcp:65536", "sctp:22", "tcp:22:23", "tcp:10.0.0.0/8:22", "22,none", "tcp:+1", "icmp"}
	badTimes := []string{"", "soon", "NaN", "Inf", "-1", "1e300", "-1e300", "0.000001", "9000h", "1 s"}
	badFlags := []string{"", "2", "on", "enabled"}
	badNumbers := []string{"", "-1", "65536", "1.5", "0x10", "+1"}
	mtus := func(field func(*Params) *int) good {
		return good{"0": func(p *Params) { *field(p) = 0 }, "68": func(p *Params) { *field(p) = 68 }, " 9000\n": func(p *Params) { *field(p) = 9000 }}
	}
	badMTUs := append(badNumbers, "67", "1")
	badHosts := []string{"node-1", "10.0.0.0/8", "127.0.0.1:80", "::1]", "*", "224.0.0.1", "ff02::1", "fe80::1"}
	tests := map[string]struct {
		good good
		bad  []string
	}{
		"InterfacePrefix": {good{
			"tap":            func(p *Params) { p.InterfacePrefixes = []string{"tap"} },
			" tap, cali,tap": func(p *Params) { p.InterfacePrefixes = []string{"cali", "tap"} },
			"a0,a1,a2,a3,a4,a5,a6,a7,a8,a9,b0,b1,b2,b3,b4,b5,b0": func(p *Params) {
				p.InterfacePrefixes = strings.Split("a0,a1,a2,a3,a4,a5,a6,a7,a8,a9,b0,b1,b2,b3,b4,b5", ",")
			},
		}, []string{"", ",", "tap,", "../all", "a/b", "a b", "sixteencharacters", "cali*", "cali+", `"cali"`, "l", "cali,lo", "a0,a1,a2,a3,a4,a5,a6,a7,a8,a9,b0,b1,b2,b3,b4,b5,b6"}},
		"RouteRefreshInterval": {durations(func(p *Params) *time.Duration { return &p.RefreshInterval },
			map[string]time.Duration{"1": time.Second, "1.5": 1500 * time.Millisecond, "2m": 2 * time.Minute, "3600": time.Hour}), append(badTimes, "0")},
		"NftablesRefreshInterval": {durations(func(p *Params) *time.Duration { return &p.FirewallInterval },
			map[string]time.Duration{"1": time.Second, "60s\n": time.Minute}), append(badTimes, "0")},
		"DefaultEndpointToHostAction": {good{
			"drop":     func(p *Params) { p.EndpointToHost = policy.ToHostDrop },
			"RETURN":   func(p *Params) { p.EndpointToHost = policy.ToHostReturn },
			"Accept\n": func(p *Params) { p.EndpointToHost = policy.ToHostAccept },
		}, []string{"", "allow", "deny", "DROP,ACCEPT"}},
		"ChainInsertMode": {good{
			"append": func(p *Params) { p.ChainInsertMode = beside.Append },
			"Insert": func(p *Params) { p.ChainInsertMode = beside.Insert },
			" OFF\n": func(p *Params) { p.ChainInsertMode = beside.Off },
		}, []string{"", "none", "Insert,Append"}},
		"UnreadyWhenBlocked": {good{
			"any":   func(p *Params) { p.UnreadyWhenBlocked = board.UnreadyAny },
			"NEVER": func(p *Params) { p.UnreadyWhenBlocked = board.UnreadyNever },
			"All\n": func(p *Params) { p.UnreadyWhenBlocked = board.UnreadyAll },
		}, []string{"", "true", "None"}},
		"ProbeWorkloadPath":            {booleans(func(p *Params) *bool { return &p.ProbePath }), badFlags},
		"AllowDNSPacketsFromWorkloads": {booleans(func(p *Params) *bool { return &p.EndpointDNS }), badFlags},
		"MetadataAddr": {good{
			"None\n": func(p *Params) { p.MetadataAddr = "" }, " 127.0.0.1": func(p *Params) { p.MetadataAddr = "127.0.0.1" },
		}, []string{"", "nova", "::1", "0.0.0.0", "224.0.0.1", "169.254.169.254", "127.0.0.1:8775"}},
		"MetadataPort":              {ports(func(p *Params) *uint16 { return &p.MetadataPort }), append(badNumbers, "0")},
		"FailsafeInboundHostPorts":  {failsafe(func(p *Params) *[]policy.ProtoPort { return &p.FailsafeInbound }), badPorts},
		"MetricsPorts":              {failsafe(func(p *Params) *[]policy.ProtoPort { return &p.MetricsPorts }), badPorts},
		"FailsafeOutboundHostPorts": {failsafe(func(p *Params) *[]policy.ProtoPort { return &p.FailsafeOutbound }), badPorts},
		"LogPrefix": {good{
			"a": func(p *Params) { p.LogPrefix = "a" }, "A_b:c-123456789012345678901\n": func(p *Params) { p.LogPrefix = "A_b:c-123456789012345678901" },
		}, []string{"", "two words", "1234567890123456789012345678", "ä", "%t", "a\x00"}},
		"NFLogGroup":                {good{"0": func(p *Params) { p.FlowLogGroup = 0 }, "65535": func(p *Params) { p.FlowLogGroup = 65535 }}, badNumbers},
		"MaxConnectionsPerEndpoint": {good{"0": func(p *Params) { p.MaxConnections = 0 }, "20000": func(p *Params) { p.MaxConnections = 20000 }}, []string{"", "-1", "many", "2147483648"}},
		"LogSeverityScreen":         {severities(func(p *Params) *slog.Level { return &p.LogLevel }), []string{"", "loud", "WARN ING"}},
		"LogFilePath": {good{
			"none": func(p *Params) { p.LogFile = "" }, "/var/log//calico.log\n": func(p *Params) { p.LogFile = "/var/log/calico.log" },
		}, []string{"", "calico.log", "/var/log/", "/a\x00b"}},
		"LogSeverityFile": {severities(func(p *Params) *slog.Level { return &p.LogFileLevel }), []string{"", "loud"}},
		"ReportingIntervalSecs": {durations(func(p *Params) *time.Duration { return &p.ReportInterval },
			map[string]time.Duration{"0": 0, "0s": 0, "1": time.Second, "3600": time.Hour}), badTimes},
		"ReportingTTLSecs": {durations(func(p *Params) *time.Duration { return &p.ReportTTL },
			map[string]time.Duration{"5": 5 * time.Second, "24h": 24 * time.Hour}), append(badTimes, "0", "4.9")},
		"EndpointReportingEnabled": {booleans(func(p *Params) *bool { return &p.ReportEndpoints }), badFlags},
		"EndpointReportingDelaySecs": {durations(func(p *Params) *time.Duration { return &p.ReportDelay },
			map[string]time.Duration{"0": 0, "0.001": time.Millisecond, "60": time.Minute}), append(badTimes, "61")},
		"HealthEnabled":            {booleans(func(p *Params) *bool { return &p.Health.Enabled }), badFlags},
		"HealthHost":               {hosts(func(p *Params) *string { return &p.Health.Host }), badHosts},
		"HealthPort":               {ports(func(p *Params) *uint16 { return &p.Health.Port }), append(badNumbers, "0")},
		"PrometheusMetricsEnabled": {booleans(func(p *Params) *bool { return &p.Metrics.Enabled }), badFlags},
		"PrometheusMetricsHost":    {hosts(func(p *Params) *string { return &p.Metrics.Host }), badHosts},
		"PrometheusMetricsPort":    {ports(func(p *Params) *uint16 { return &p.Metrics.Port }), append(badNumbers, "0")},
		"VXLANPort":                {ports(func(p *Params) *uint16 { return &p.VXLANPort }), append(badNumbers, "0")},
		"VXLANVNI": {good{"1": func(p *Params) { p.VXLANVNI = 1 }, "16777215": func(p *Params) { p.VXLANVNI = 1<<24 - 1 }},
			[]string{"", "0", "16777216", "-1", "+1", "4294967297", "99999999999999999999"}},
		"UplinkMTU":     {mtus(func(p *Params) *int { return &p.MTU }), badMTUs},
		"VXLANMTU":      {mtus(func(p *Params) *int { return &p.VXLANMTU }), badMTUs},
		"VXLANMTUV6":    {mtus(func(p *Params) *int { return &p.VXLANMTU6 }), badMTUs},
		"IpInIpMtu":     {mtus(func(p *Params) *int { return &p.IPIPMTU }), badMTUs},
		"MTULiveUpdate": {booleans(func(p *Params) *bool { return &p.MTULiveUpdate }), badFlags},
		"BGPListenAddresses": {good{
			" ": func(p *Params) { p.BGPListen = nil },
			"fd00::1, 192.0.2.1,fd00::1": func(p *Params) {
				p.BGPListen = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}
			},
		}, []string{",", "localhost", "192.0.2.1:179", "fe80::1%eth0", "::ffff:192.0.2.1", "224.0.0.1"}},
		"BGPListenPort": {ports(func(p *Params) *uint16 { return &p.BGPPort }), append(badNumbers, "0")},
		"BGPHoldTimeSecs": {durations(func(p *Params) *time.Duration { return &p.HoldTime },
			map[string]time.Duration{"3": 3 * time.Second, "65535": 65535 * time.Second}), append(badTimes, "0", "2", "65536")},
		"BGPKeepaliveTimeSecs": {durations(func(p *Params) *time.Duration { return &p.KeepaliveTime },
			map[string]time.Duration{"0": 0, "1": time.Second, "30s": 30 * time.Second}), append(badTimes, "0.5", "21846")},
		"BGPRestartTimeSecs": {durations(func(p *Params) *time.Duration { return &p.RestartTime },
			map[string]time.Duration{"0": 0, "1": time.Second, "4095": 4095 * time.Second}), append(badTimes, "4096")},
		"BGPCommunities": {good{
			"": func(p *Params) { p.Communities = nil },
			"10.1.0.0/16=64512:100, 10.1.0.0/16=1:2:4294967295,fd00::/8=0:0": func(p *Params) {
				p.Communities = []model.Community{
					{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Value: "64512:100"}, {CIDR: netip.MustParsePrefix("10.1.0.0/16"), Value: "1:2:4294967295"},
					{CIDR: netip.MustParsePrefix("fd00::/8"), Value: "0:0"},
				}
			},
		}, []string{"10.1.0.0/16", "10.1.0.1/16=1:2", "10.1.0.0/16=1:65536", "10.1.0.0/16=no-export", "10.1.0.0/16=1:02", "10.1.0.0/16=1:2:3:4", ","}},

		"BGPMaxPrefixes": {good{"1": func(p *Params) { p.MaxPrefixes = 1 }, "100000\n": func(p *Params) { p.MaxPrefixes = 100000 }},
			[]string{"", "0", "-1", "10000001", "1e5"}},
	}
	for _, p := range Table() {
		test, ok := tests[p.Name]
		if !ok {
			t.Errorf("%s is not tested", p.Name)
		}
		for _, name := range append(p.Names(), strings.ToUpper(p.Name)) {
			for text, change := range test.good {
				want := defaults()
				change(&want)
				r := Resolve(map[string]string{name: text})
				if diff := cmp.Diff(want, r.Params, sameParams()); diff != "" || len(r.Wrong) != 0 {
					t.Errorf("%s %q: %v (-want +got):\n%s", name, text, r.Wrong, diff)
				}
			}
			for _, text := range append(test.bad, strings.Repeat("*/\n", 1000)) {
				r := Resolve(map[string]string{name: text})
				if diff := cmp.Diff(defaults(), r.Params, sameParams()); diff != "" {
					t.Errorf("%s %q (-want +got):\n%s", name, text, diff)
				}
				if w := r.Wrong; len(w) == 1 && len(w[0].Err.Error()) > 300 { // what is wanted comes last, and what is shown is cut
					t.Errorf("%s: %d bytes about %d", name, len(w[0].Err.Error()), len(text))
				}
				if len(r.Wrong) != 1 || r.Wrong[0].Name != p.Name || r.Wrong[0].Given != name || r.Wrong[0].Err == nil {
					t.Errorf("%s %q: reported %v", name, text, r.Wrong)
				}
			}
		}
	}
}

func TestFirewall(t *testing.T) {
	p := Resolve(map[string]string{
		"InterfacePrefix": "tap", "DefaultEndpointToHostAction": "RETURN", "AllowDNSPacketsFromWorkloads": "true", "NFLogGroup": "7",
		"FailsafeInboundHostPorts": "22", "FailsafeOutboundHostPorts": "none", "MetricsPorts": "80", "LogPrefix": "x", "MetadataAddr": "127.0.0.1", "MetadataPort": "80",
	}).Params
	want := policy.Settings{
		Prefixes: []string{"tap"}, EndpointToHost: policy.ToHostReturn, EndpointDNS: true, FlowLogGroup: 7,
		FailsafeInbound: []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 22}}, LogPrefix: "x",
		MetricsPorts: []policy.ProtoPort{{Protocol: model.ProtocolTCP, Port: 80}, {Protocol: model.ProtocolTCP, Port: 9091}},
		Metadata:     netip.MustParseAddrPort("127.0.0.1:80"),
	}
	if diff := cmp.Diff(want, p.Firewall(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRouting: how the settings reach the plan.
func TestRouting(t *testing.T) {
	defaulted := plan.Settings{
		VXLANPort: 4789, VXLANVNI: 4096, ListenPort: 179, HoldTime: 90 * time.Second, RestartTime: 2 * time.Minute, MaxPrefixes: 50000,
	}
	with := func(change func(*plan.Settings)) plan.Settings {
		s := defaulted
		change(&s)
		return s
	}
	for name, tt := range map[string]struct {
		given map[string]string
		want  plan.Settings
	}{
		"nothing": {nil, defaulted},
		"tunnels": {map[string]string{"VXLANPORT": "8472", "vxlanvni": "7", "VXLANMTU": "1400", "VXLANMTUV6": "1380", "IPINIPMTU": "1480", "UplinkMTU": "1500"},
			with(func(s *plan.Settings) {
				s.VXLANPort, s.VXLANVNI, s.MTU = 8472, 7, 1500
				s.TunnelMTU = map[plan.TunnelKind]int{plan.VXLAN4: 1400, plan.VXLAN6: 1380, plan.IPIP: 1480}
			})},
		"BGP": {map[string]string{"BGPListenAddresses": "192.0.2.1", "BGPListenPort": "1179", "BGPHoldTimeSecs": "30", "BGPKeepaliveTimeSecs": "5", "BGPMaxPrefixes": "9"},
			with(func(s *plan.Settings) {
				s.Listen, s.ListenPort = []netip.Addr{netip.MustParseAddr("192.0.2.1")}, 1179
				s.HoldTime, s.KeepaliveTime, s.MaxPrefixes = 30*time.Second, 5*time.Second, 9
			})},
		"no graceful restart": {map[string]string{"BGPRestartTimeSecs": "0"}, with(func(s *plan.Settings) { s.RestartTime = -1 })},
		"keepalives that are too rare": {map[string]string{"BGPHoldTimeSecs": "9", "BGPKeepaliveTimeSecs": "4"},
			with(func(s *plan.Settings) { s.HoldTime = 9 * time.Second })},
	} {
		if diff := cmp.Diff(tt.want, Resolve(tt.given).Params.Routing(), sameParams()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestResolve(t *testing.T) {
	base := defaults()
	with := func(change func(*Params)) Params {
		p := base
		change(&p)
		return p
	}
	type layer = map[string]string
	tests := []struct {
		name   string
		layers []layer
		want   Params
		wrong  []string
	}{
		{"nothing", nil, base, nil},
		{"the first wins", []layer{{}, {"interfaceprefix": "tap"}, {"interfaceprefix": "veth", "logseverityscreen": "none"}},
			with(func(p *Params) { p.InterfacePrefixes, p.LogLevel = []string{"tap"}, logfile.LevelNone }), nil},
		{"several, one twice", []layer{{"interfaceprefix": "tap, cali,tap"}}, with(func(p *Params) { p.InterfacePrefixes = []string{"cali", "tap"} }), nil},
		{"what makes no sense is the default, and not what a weaker layer says", []layer{{"interfaceprefix": ""}, {"interfaceprefix": "tap,,"}, {"interfaceprefix": "tap"}},
			base, []string{"InterfacePrefix 0", "InterfacePrefix 1"}},
		{"a mistake in a weaker layer is found", []layer{{"interfaceprefix": "tap"}, {"interfaceprefix": "tap,,"}},
			with(func(p *Params) { p.InterfacePrefixes = []string{"tap"} }), []string{"InterfacePrefix 1"}},
		{"a bad name stands before a good alias", []layer{{"NftablesRefreshInterval": "often", "IptablesRefreshInterval": "4"}}, base, []string{"NftablesRefreshInterval 0"}},
		{"a mistake in a spelling that doesn't count is found", []layer{{"NftablesRefreshInterval": "4", "IptablesRefreshInterval": "often", "NFTABLESREFRESHINTERVAL": "never"}},
			with(func(p *Params) { p.FirewallInterval = 4 * time.Second }), []string{"NftablesRefreshInterval 0", "NftablesRefreshInterval 0"}},
		{"the table's spelling wins over others, and the name over its alias",
			[]layer{{"ROUTEREFRESHINTERVAL": "1", "RouteRefreshInterval": "2", "routerefreshinterval": "3", "IptablesRefreshInterval": "4", "NFTABLESREFRESHINTERVAL": "5"}},
			with(func(p *Params) { p.RefreshInterval, p.FirewallInterval = 2*time.Second, 5*time.Second }), nil},
		{"a stronger layer's alias wins", []layer{{"iptablesrefreshinterval": "4"}, {"NftablesRefreshInterval": "5"}},
			with(func(p *Params) { p.FirewallInterval = 4 * time.Second }), nil},
		{"a path", []layer{{"interfaceprefix": "../all"}}, base, []string{"InterfacePrefix 0"}},
		{"times", []layer{{"routerefreshinterval": "0.5"}, {"routerefreshinterval": "2m"}}, base, []string{"RouteRefreshInterval 0"}},
		{"not a number", []layer{{"routerefreshinterval": "NaN"}, {"routerefreshinterval": "1e300"}, {"logseverityscreen": "loud"}}, base,
			[]string{"RouteRefreshInterval 0", "RouteRefreshInterval 1", "LogSeverityScreen 2"}},
	}
	for _, test := range tests {
		r := Resolve(test.layers...)
		got, wrong := r.Params, r.Wrong
		if diff := cmp.Diff(test.want, got, sameParams()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		var names []string
		for _, w := range wrong {
			names = append(names, w.Name+" "+string(rune('0'+w.Layer)))
		}
		if diff := cmp.Diff(test.wrong, names); diff != "" {
			t.Errorf("%s: wrong (-want +got):\n%s", test.name, diff)
		}
	}
}

func FuzzResolve(f *testing.F) {
	for i, p := range Table() {
		f.Add(uint8(i), p.Initial, "")
	}
	f.Add(uint8(0), ",", "NaN")
	f.Fuzz(func(t *testing.T, index uint8, strong, weak string) {
		table := Table()
		p := table[int(index)%len(table)]
		r := Resolve(map[string]string{p.Name: strong}, map[string]string{p.Name: weak})
		// What was chosen reads the same again, and it is what the strong layer says, or the default.
		c := r.Choices[p.Name]
		if again := Resolve(map[string]string{p.Name: c.Text}); len(again.Wrong) != 0 || !cmp.Equal(again.Params, r.Params, sameParams()) {
			t.Errorf("%s %q: %v, then %v", p.Name, c.Text, r.Params, again.Params)
		}
		want := choice{0, p.Name, strong, false}
		if slices.ContainsFunc(r.Wrong, func(w mistake) bool { return w.Layer == 0 }) {
			want = choice{0, p.Name, p.Initial, true}
		}
		if c != want {
			t.Errorf("%s %q, %q: %+v, want %+v", p.Name, strong, weak, c, want)
		}
		for _, prefix := range r.Params.InterfacePrefixes {
			if err := checkInterface(prefix); err != nil {
				t.Errorf("prefix: %v", err)
			}
		}
		if len(r.Params.InterfacePrefixes) == 0 || len(r.Params.LogPrefix) == 0 || len(r.Params.LogPrefix) > maxLogPrefix {
			t.Errorf("%+v", r.Params)
		}
		for _, d := range []time.Duration{r.Params.RefreshInterval, r.Params.FirewallInterval} {
			if d < time.Second || d > time.Hour {
				t.Errorf("%+v", r.Params)
			}
		}
	})
}

// TestParamTable checks the table itself.
func TestParamTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Table() {
		for _, name := range p.Names() {
			if lower := strings.ToLower(name); seen[lower] || isForeign(lower) {
				t.Errorf("%s is there twice", name)
			} else {
				seen[lower] = true
			}
		}
		if err := p.Values.set(new(Params), p.Initial); err != nil {
			t.Errorf("default of %s: %v", p.Name, err)
		}
		if !strings.HasSuffix(p.Does, ".") || p.Effect == "" || p.Values.Allowed == "" {
			t.Errorf("%s is not described", p.Name)
		}
	}
	if diff := cmp.Diff(defaults(), Resolve().Params); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// TestEnviron: a manifest written for Calico may set variables that don't exist here.
func TestEnviron(t *testing.T) {
	got := Environ([]string{
		"FELIX_InterfacePrefix=tap", "felix_LOGSEVERITYSCREEN=debug", "FELIX_BOGUS=1", "FELIX_IPV6SUPPORT=false", "FELIX_DatastoreType=etcdv3", "FELIX_LogPrefix=", "PATH=/bin",
	})
	if diff := cmp.Diff(map[string]string{"InterfacePrefix": "tap", "LOGSEVERITYSCREEN": "debug", "BOGUS": "1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
