// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestServices: a rule that names a service matches just what that leads to, each address at its own ports and protocols, and no selector
// picks it.
func TestServices(t *testing.T) {
	path := model.ServiceKey{Name: "shop/web"}.Path()
	const value = `{"endpoints": [
		{"nets": ["192.0.2.1", "2001:db8::1"], "ports": [{"name": "svc.shop.web", "protocol": "tcp", "port": 8080}, {"name": "svc.shop.web", "protocol": "udp", "port": 53}]},
		{"nets": ["192.0.2.2"], "ports": [{"name": "svc.shop.web", "protocol": "tcp", "port": 9090}]}]}`
	e, st := stateOf(t, map[string]string{
		path: value,
		pol + "a": `{"selector": "role == 'db'", "types": ["outbound"], "outbound_rules": [
			{"dst_ports": ["svc.shop.web"]}, {"dst_ports": ["svc.shop.other"]}, {"dst_selector": "!has(nothing)", "protocol": "sctp"}]}`,
	})
	type flow struct {
		dst      string
		protocol model.Protocol
		port     uint16
	}
	passes := func(what string, want map[flow]bool) {
		t.Helper()
		for f, pass := range want {
			p := Packet{In: "cali2", Out: "eth0", Src: addr("10.0.0.2"), Dst: addr(f.dst), Protocol: f.protocol, DstPort: f.port, Conn: ConnNew}
			if p.Dst.Is6() {
				p.Src = addr("fd00::2")
			}
			if r := Evaluate(Settings{Prefixes: []string{"cali"}}, st, p); (r.Verdict == Accept) != pass {
				t.Errorf("%s: %v: %s, %v", what, f, r.Verdict, r.Trail)
			}
		}
	}
	const tcp, udp, sctp = model.ProtocolTCP, model.ProtocolUDP, model.ProtocolSCTP
	passes("at first", map[flow]bool{
		{"192.0.2.1", tcp, 8080}: true, {"2001:db8::1", udp, 53}: true, {"192.0.2.2", tcp, 9090}: true, {"192.0.2.1", udp, 8080}: false,
		{"192.0.2.1", tcp, 9090}: false, {"192.0.2.2", tcp, 8080}: false, {"192.0.2.3", tcp, 8080}: false, {"192.0.2.1", sctp, 8080}: false,
	})
	e.Update(entryOf(t, path, `{"endpoints": [{"nets": ["192.0.2.3"], "ports": [{"name": "svc.shop.web", "protocol": "tcp", "port": 8080}]}]}`))
	st.Apply(e.Flush())
	passes("with another endpoint", map[flow]bool{{"192.0.2.1", tcp, 8080}: false, {"192.0.2.2", tcp, 9090}: false, {"192.0.2.3", tcp, 8080}: true})
	e.Update(model.Entry{Path: path, Key: model.ServiceKey{Name: "shop/web"}})
	st.Apply(e.Flush())
	passes("without the service", map[flow]bool{{"192.0.2.3", tcp, 8080}: false})
}
