// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// defaults are the parameters where nobody sets one.
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
		RefreshInterval:   10 * time.Second,
		FirewallInterval:  10 * time.Second,
		LogLevel:          slog.LevelInfo,
		LogFileLevel:      slog.LevelInfo,
		EndpointToHost:    policy.ToHostDrop,
		FailsafeInbound:   append(tcp(22, 179, 2379, 2380, 6443), udp(68)),
		FailsafeOutbound:  append(tcp(179, 2379, 2380, 6443), udp(53), udp(67)),
		LogPrefix:         "calico-packet",
		ReportInterval:    30 * time.Second,
		ReportTTL:         90 * time.Second,
		ReportEndpoints:   true,
		ReportDelay:       100 * time.Millisecond,
		Health:            Serving{Enabled: true, Host: "127.0.0.1", Port: 9099},
		Metrics:           Serving{Enabled: true, Port: 9091},
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
			with(func(p *Params) { p.InterfacePrefixes, p.LogLevel = []string{"tap"}, levelNone }), nil},
		{"several, one twice", []layer{{"interfaceprefix": "tap, cali,tap"}}, with(func(p *Params) { p.InterfacePrefixes = []string{"cali", "tap"} }), nil},
		{"what makes no sense is passed over", []layer{{"interfaceprefix": ""}, {"interfaceprefix": "tap,,"}, {"interfaceprefix": "tap"}},
			with(func(p *Params) { p.InterfacePrefixes = []string{"tap"} }), []string{"InterfacePrefix 0", "InterfacePrefix 1"}},
		{"a path", []layer{{"interfaceprefix": "../all"}}, base, []string{"InterfacePrefix 0"}},
		{"times", []layer{{"routerefreshinterval": "0.5"}, {"routerefreshinterval": "2m"}}, with(func(p *Params) { p.RefreshInterval = 2 * time.Minute }), []string{"RouteRefreshInterval 0"}},
		{"not a number", []layer{{"routerefreshinterval": "NaN"}, {"routerefreshinterval": "1e300"}, {"logseverityscreen": "loud"}}, base,
			[]string{"RouteRefreshInterval 0", "RouteRefreshInterval 1", "LogSeverityScreen 2"}},
	}
	for _, test := range tests {
		r := resolve(test.layers...)
		got, wrong := r.params, r.wrong
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		var names []string
		for _, w := range wrong {
			names = append(names, w.name+" "+string(rune('0'+w.layer)))
		}
		if diff := cmp.Diff(test.wrong, names); diff != "" {
			t.Errorf("%s: wrong (-want +got):\n%s", test.name, diff)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("cali,tap", "INFO", "10")
	f.Add(",", "loud", "NaN")
	f.Fuzz(func(t *testing.T, prefix, severity, interval string) {
		p := resolve(map[string]string{"interfaceprefix": prefix, "logseverityscreen": severity, "routerefreshinterval": interval}).params
		for _, s := range p.InterfacePrefixes {
			if err := checkInterface(s); err != nil {
				t.Errorf("prefix: %v", err)
			}
		}
		if len(p.InterfacePrefixes) == 0 || p.RefreshInterval < time.Second || p.RefreshInterval > time.Hour {
			t.Errorf("%+v", p)
		}
	})
}
