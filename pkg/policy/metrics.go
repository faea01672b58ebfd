// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/calico-go/calico/pkg/model"

// The metrics ports of a host are a host endpoint that is not in etcd: its interface has a name that no link can have,
// and policies select it by a label. It has no profiles, so what no policy allows is dropped.
const (
	MetricsPath      = "metrics ports"
	MetricsInterface = "/metrics"
	metricsLabel     = "projectcalico.org/serves"
)

// DefaultMetricsPorts are the ports of our other programs, which run on some hosts. The agent knows its own.
const DefaultMetricsPorts = "tcp:9094"

// CloseMetrics sets whether the host has the endpoint of its metrics ports.
func (e *Engine) CloseMetrics(on bool) {
	if on == (e.locals.byPath[MetricsPath] != nil) {
		return
	}
	key := model.HostEndpointKey{Host: e.host, Endpoint: "metrics"}
	entry := model.Entry{Path: MetricsPath, Key: key}
	if on {
		entry.Revision, entry.Created = 1, 1
		entry.Value = model.HostEndpoint{Name: MetricsInterface, Labels: map[string]string{metricsLabel: "metrics"}}
	}
	e.judged = nil
	e.updateHost(key, entry)
}

// services applies what step 5 says about the agent's own servers. It returns false for a dropped packet.
func (e *evaluation) services() bool {
	if e.p.Conn == ConnEstablished || e.p.Conn == ConnRelated {
		return true
	}
	if e.st.Tunnels.BGP.refuses(&e.p) {
		e.note("BGP from no peer: drop")
		return false
	}
	ep := e.st.Endpoints[MetricsPath]
	if ep == nil || !e.hasPort(e.s.MetricsPorts, e.p.DstPort) || e.hasPort(e.s.FailsafeInbound, e.p.DstPort) {
		return true
	}
	return e.asks(ep, model.Inbound, ep.Inbound)
}
