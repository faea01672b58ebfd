// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"time"

	"github.com/calico-go/calico/pkg/policy"
)

// When a change in etcd applies. The environment, the file and the flags are
// read when the agent starts.
const (
	atOnce     = "at once"
	nextReport = "with the next report"
	// A BGP session in progress isn't ended for it.
	nextSession = "with each neighbour's next session"
)

// paramTable is every parameter of the agent. docs/configuration.md is made of it.
func paramTable() []param {
	return append([]param{
		{
			name: "InterfacePrefix", initial: "cali", effect: atOnce,
			values: interfacePrefixes(func(p *Params) *[]string { return &p.InterfacePrefixes }),
			does: "What the names of workload interfaces begin with. An interface that begins so and has no endpoint " +
				"passes nothing; all others are the host's own. A value makes no sense on a host where it covers one of these: the loopback, " +
				"a tunnel, or a link that has an address or leads to the default route. It stays refused there until it is changed or the agent starts anew. " +
				"One that covers the interface of no endpoint of a host that has some is used, and shown at `/debug/invalid`. " +
				"An interface that an endpoint of the host names and no prefix covers passes nothing, unless it is the host's own as above.",
		},
		{
			name: "RouteRefreshInterval", initial: "10", effect: atOnce,
			values: seconds(time.Second, time.Hour, func(p *Params) *time.Duration { return &p.RefreshInterval }),
			does: "How often the host's routes, neighbours and sysctls are read back from the kernel and repaired. " +
				"The kernel's own notices of a change are acted on at once, whatever this says.",
		},
		{
			name: "NftablesRefreshInterval", aliases: []string{"IptablesRefreshInterval"}, initial: "10", effect: atOnce,
			values: seconds(time.Second, time.Hour, func(p *Params) *time.Duration { return &p.FirewallInterval }),
			does:   "How often the firewall is read back from the kernel and repaired.",
		},
		{
			name: "DefaultEndpointToHostAction", initial: "DROP", effect: atOnce,
			values: endpointToHost(func(p *Params) *policy.EndpointToHost { return &p.EndpointToHost }),
			does: "What happens to a packet from a workload to the host itself that its policy lets out: DROP drops it, " +
				"ACCEPT accepts it, RETURN leaves it to the rest of the host's rules. DHCP, neighbour discovery and " +
				"multicast listener reports are let through before.",
		},
		{
			name: "AllowDNSPacketsFromWorkloads", initial: "false", effect: atOnce,
			values: boolean(func(p *Params) *bool { return &p.EndpointDNS }),
			does:   "Lets workloads ask a DNS server on the host, UDP and TCP port 53, whatever DefaultEndpointToHostAction says.",
		},
		{
			name:    "FailsafeInboundHostPorts",
			initial: "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:6443", effect: atOnce,
			values: protoPorts(func(p *Params) *[]policy.ProtoPort { return &p.FailsafeInbound }),
			does: "Ports of the host that stay open on host endpoints whatever policy says, so that a mistake in a policy " +
				"does not cut off the host. `none` closes them all.",
		},
		{
			name:    "FailsafeOutboundHostPorts",
			initial: "tcp:179,tcp:2379,tcp:2380,tcp:6443,udp:53,udp:67", effect: atOnce,
			values: protoPorts(func(p *Params) *[]policy.ProtoPort { return &p.FailsafeOutbound }),
			does:   "Ports elsewhere that the host may reach through host endpoints whatever policy says. `none` closes them all.",
		},
		{
			name: "LogPrefix", initial: "calico-packet", effect: atOnce,
			values: logPrefix(func(p *Params) *string { return &p.LogPrefix }),
			does:   "What the kernel's log says before a packet that a rule logs, where the rule has no `log_prefix` of its own.",
		},
		{
			name: "NFLogGroup", initial: "0", effect: atOnce,
			values: number(0, 65535, func(p *Params) *uint16 { return &p.FlowLogGroup }),
			does: "NFLOG group to which rules that log send their packets as well, for a program that collects flow logs. " +
				"0 is the kernel's log alone.",
		},
		{
			name: "LogSeverityScreen", initial: "INFO", effect: atOnce,
			values: severity(func(p *Params) *slog.Level { return &p.LogLevel }),
			does:   "The least severity that is written to standard error.",
		},
		{
			name: "LogFilePath", initial: "none", effect: atOnce,
			values: logFile(func(p *Params) *string { return &p.LogFile }),
			does: "A file to which the log is written as well. It is opened anew when it was renamed, so that it can be rotated. " +
				"Its directory is made where that is missing, and none above.",
		},
		{
			name: "LogSeverityFile", initial: "INFO", effect: atOnce,
			values: severity(func(p *Params) *slog.Level { return &p.LogFileLevel }),
			does:   "The least severity that is written to the file named by LogFilePath.",
		},
		{
			name: "ReportingIntervalSecs", initial: "30", effect: atOnce,
			values: secondsOrNever(time.Second, time.Hour, func(p *Params) *time.Duration { return &p.ReportInterval }),
			does: "How often the agent writes to etcd that it lives, below `/calico/felix/v1/host/<host>/`. " +
				"0 is never: what is there is deleted, and others take the host to live as long as it is registered. Then it isn't " +
				"noticed when another host has this one's name or address.",
		},
		{
			name: "ReportingTTLSecs", initial: "90", effect: nextReport,
			values: seconds(5*time.Second, 24*time.Hour, func(p *Params) *time.Duration { return &p.ReportTTL }),
			does: "How long the host's status stays in etcd after an agent that was stopped, killed or cut off: so long, and 5 s, others " +
				"take the host to live. An agent that runs keeps it alive by itself, even where this is less than ReportingIntervalSecs.",
		},
		{
			name: "EndpointReportingEnabled", initial: "true", effect: atOnce,
			values: boolean(func(p *Params) *bool { return &p.ReportEndpoints }),
			does:   "Whether the status of each endpoint is written to etcd. Turned off, what was written is deleted.",
		},
		{
			name: "EndpointReportingDelaySecs", initial: "0.1", effect: nextReport,
			values: secondsOrNever(time.Millisecond, time.Minute, func(p *Params) *time.Duration { return &p.ReportDelay }),
			does:   "How long changes of endpoints' status gather before they are written, so that a burst is a few writes.",
		},
		{
			name: "HealthEnabled", initial: "true", effect: atOnce,
			values: boolean(func(p *Params) *bool { return &p.Health.Enabled }),
			does:   "Whether /liveness, /readiness, /debug/state and /debug/invalid are served.",
		},
		{
			name: "HealthHost", initial: "127.0.0.1", effect: atOnce,
			values: listenHost(func(p *Params) *string { return &p.Health.Host }),
			does:   "Where they are served.",
		},
		{
			name: "HealthPort", initial: "9099", effect: atOnce,
			values: number(1, 65535, func(p *Params) *uint16 { return &p.Health.Port }),
			does:   "The TCP port of the same.",
		},
		{
			name: "PrometheusMetricsEnabled", initial: "true", effect: atOnce,
			values: boolean(func(p *Params) *bool { return &p.Metrics.Enabled }),
			does:   "Whether /metrics is served.",
		},
		{
			name: "PrometheusMetricsHost", initial: "", effect: atOnce,
			values: listenHost(func(p *Params) *string { return &p.Metrics.Host }),
			does:   "Where it is served.",
		},
		{
			name: "PrometheusMetricsPort", initial: "9091", effect: atOnce,
			values: number(1, 65535, func(p *Params) *uint16 { return &p.Metrics.Port }),
			does:   "The TCP port of the same.",
		},
	}, routingTable()...)
}
