// SPDX-License-Identifier: Apache-2.0

package params

import (
	"log/slog"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/nft/beside"
	"github.com/calico-go/calico/pkg/policy"
)

// These say when a change in etcd applies. The environment, the file and the flags are read when the agent starts.
const (
	atOnce     = "at once"
	atStart    = "at the next start: etcd does not decide on it"
	nextReport = "with the next report"
	// A present BGP session isn't ended for it.
	nextSession = "with each neighbour's next session"
)

// Table returns every parameter of the agent. docs/configuration.md is generated from it.
func Table() []param {
	return append([]param{
		{
			Name: "InterfacePrefix", Initial: "cali", Effect: atOnce,
			Values: interfacePrefixes(func(p *Params) *[]string { return &p.InterfacePrefixes }),
			Does: "What the names of workload interfaces begin with. An interface that begins so and has no endpoint " +
				"passes nothing; all others are the host's own. A value makes no sense on a host where it covers one of these: the loopback, " +
				"a tunnel, or a link that has an address or leads to the default route. It stays refused there until it is changed or the agent starts anew. " +
				"One that covers the interface of no endpoint of a host that has some is used, and shown at `/debug/invalid`. " +
				"An interface that an endpoint of the host names and no prefix covers passes nothing, unless it is the host's own as above.",
		},
		{
			Name: "RouteRefreshInterval", Initial: "30", Effect: atOnce,
			Values: seconds(time.Second, time.Hour, func(p *Params) *time.Duration { return &p.RefreshInterval }),
			Does: "How often the host's routes, neighbours and sysctls are read back from the kernel and repaired. " +
				"The kernel's own notices of a change are acted on at once, whatever this says.",
		},
		{
			Name: "NftablesRefreshInterval", Aliases: []string{"IptablesRefreshInterval"}, Initial: "10", Effect: atOnce,
			Values: seconds(time.Second, time.Hour, func(p *Params) *time.Duration { return &p.FirewallInterval }),
			Does:   "How often the firewall is read back from the kernel and repaired.",
		},
		{
			Name: "DefaultEndpointToHostAction", Initial: "DROP", Effect: atOnce,
			Values: endpointToHost(func(p *Params) *policy.EndpointToHost { return &p.EndpointToHost }),
			Does: "What happens to a packet from a workload to the host itself that its policy lets out: DROP drops it, " +
				"ACCEPT accepts it, RETURN leaves it to the rest of the host's rules. DHCP, neighbour discovery and " +
				"multicast listener reports are let through before.",
		},
		{
			Name: "AllowDNSPacketsFromWorkloads", Initial: "false", Effect: atOnce,
			Values: boolean(func(p *Params) *bool { return &p.EndpointDNS }),
			Does:   "Lets workloads ask a DNS server on the host, UDP and TCP port 53, whatever DefaultEndpointToHostAction says.",
		},
		{
			Name: "MetadataAddr", Initial: "none", Effect: atOnce,
			Values: read("address", "`none` or an IPv4 address", func(p *Params) *string { return &p.MetadataAddr }, parseMetadata),
			Does: "Where what virtual machines ask of 169.254.169.254, TCP port 80, goes, whatever policy says: 127.0.0.1, or another host. With a loopback address `route_localnet` is 1 on their interfaces, and else 0. The server sees the machine's own address. " +
				"With `none` they are refused at once. Pods, whose interfaces begin with `cali`, have no part in it.",
		},
		{
			Name: "MetadataPort", Initial: "8775", Effect: atOnce,
			Values: number(1, 65535, func(p *Params) *uint16 { return &p.MetadataPort }),
			Does:   "The port of MetadataAddr.",
		},
		{
			Name: "ChainInsertMode", Initial: "Insert", Effect: atOnce,
			Values: oneOf("mode", func(p *Params) *beside.Mode { return &p.ChainInsertMode }, beside.Insert, beside.Append, beside.Off),
			Does: "Where in iptables' FORWARD chains (tables `ip filter` and `ip6 filter`) packets from and to workload interfaces are " +
				"accepted, if they would all be dropped there, as by `iptables -P FORWARD DROP`: Insert at the head, Append at the end, Off " +
				"nowhere. What policy denies is dropped whatever these chains say.",
		},
		{
			Name: "UnreadyWhenBlocked", Initial: "All", Effect: atOnce,
			Values: oneOf("extent", func(p *Params) *board.Unready { return &p.UnreadyWhenBlocked }, board.UnreadyAll, board.UnreadyAny, board.UnreadyNever),
			Does: "Where the host counts as not ready because chains of other tables, sysctls, or rules of routing stop workloads' packets: All where no " +
				"workload of the host can send, or be sent anything, or where rules lead away all packets of IPv4 or of IPv6; Any where some are stopped; Never. All that is found is at `/debug/invalid` and on the readiness page, whatever this says.",
		},
		{
			Name: "ProbeWorkloadPath", Initial: "true", Effect: atOnce,
			Values: boolean(func(p *Params) *bool { return &p.ProbePath }),
			Does: "Tries every 10 seconds whether packets of workloads pass on this host, with two workloads of the agent's own, whose interfaces are " +
				"`<InterfacePrefix>probe0` and `probe1` and whose addresses are in no pool (169.254.1.2, 169.254.1.3; fdca:11c0::2, fdca:11c0::3). " +
				"They are there while the host has workloads, for the families of addresses that these have. What fails twice is told as for UnreadyWhenBlocked.",
		},
		{
			Name:    "FailsafeInboundHostPorts",
			Initial: policy.DefaultFailsafeInbound, Effect: atOnce,
			Values: protoPorts(func(p *Params) *[]policy.ProtoPort { return &p.FailsafeInbound }),
			Does: "Ports of the host that stay open on host endpoints whatever policy says, so that a mistake in a policy " +
				"does not cut off the host. `none` closes them all.",
		},
		{
			Name:    "FailsafeOutboundHostPorts",
			Initial: policy.DefaultFailsafeOutbound, Effect: atOnce,
			Values: protoPorts(func(p *Params) *[]policy.ProtoPort { return &p.FailsafeOutbound }),
			Does:   "Ports elsewhere that the host may reach through host endpoints whatever policy says. `none` closes them all.",
		},
		{
			Name: "MetricsPorts", Initial: policy.DefaultMetricsPorts, Effect: atOnce,
			Values: protoPorts(func(p *Params) *[]policy.ProtoPort { return &p.MetricsPorts }),
			Does: "Ports of the host that are closed to all but the host itself and those that a policy lets in which selects " +
				"`projectcalico.org/serves == 'metrics'`, beside PrometheusMetricsPort. The default is that of calico-controllers.",
		},
		{
			Name: "LogPrefix", Initial: "calico-packet", Effect: atOnce,
			Values: logPrefix(func(p *Params) *string { return &p.LogPrefix }),
			Does:   "What the kernel's log says before a packet that a rule logs, where the rule has no `log_prefix` of its own.",
		},
		{
			Name: "NFLogGroup", Initial: "0", Effect: atOnce,
			Values: number(0, 65535, func(p *Params) *uint16 { return &p.FlowLogGroup }),
			Does: "NFLOG group to which rules that log send their packets as well, for a program that collects flow logs. " +
				"0 is the kernel's log alone.",
		},
		{
			Name: "MaxConnectionsPerEndpoint", Initial: "0", Effect: atOnce,
			Values: number(0, 1<<30, func(p *Params) *int { return &p.MaxConnections }),
			Does: "How many connections a workload may begin and have at a time: what begins one more is dropped, and those that there are go on. From 1,600 on one in 16 is counted, and the bound is kept to within some percent. So none fills the host's table of " +
				"connections, which is one for all. A pod that has come to it of late has an event `TooManyConnections`, is listed at `/debug/invalid`, and counted in `calico_node_firewall_connections_reached`; with NFLogGroup " +
				"one such packet a second is sent there. Connections from before the bound was set, or changed, don't count. 0 is any number, and costs nothing.",
		},
		{
			Name: "LogSeverityScreen", Initial: "INFO", Effect: atOnce,
			Values: severity(func(p *Params) *slog.Level { return &p.LogLevel }),
			Does:   "The least severity that is written to standard error.",
		},
		{
			Name: "LogFilePath", Initial: "none", Effect: atStart, Local: true,
			Values: logFile(func(p *Params) *string { return &p.LogFile }),
			Does: "A file to which the log is written as well. It is opened anew when it was renamed, so that it can be rotated. " +
				"Its directory is made where that is missing, and none above.",
		},
		{
			Name: "LogSeverityFile", Initial: "INFO", Effect: atOnce,
			Values: severity(func(p *Params) *slog.Level { return &p.LogFileLevel }),
			Does:   "The least severity that is written to the file named by LogFilePath.",
		},
		{
			Name: "ReportingIntervalSecs", Initial: "30", Effect: atOnce,
			Values: secondsOrNever(time.Second, time.Hour, func(p *Params) *time.Duration { return &p.ReportInterval }),
			Does: "How often the agent writes to etcd that it lives, below `/calico/felix/v1/host/<host>/`. " +
				"0 is never: what is there is deleted, and others take the host to live as long as it is registered. Then it isn't " +
				"noticed when another host has this one's name or address.",
		},
		{
			Name: "ReportingTTLSecs", Initial: "90", Effect: nextReport,
			Values: seconds(5*time.Second, 24*time.Hour, func(p *Params) *time.Duration { return &p.ReportTTL }),
			Does: "How long the host's status stays in etcd after an agent that was stopped, killed or cut off: so long, and 5 s, others " +
				"take the host to live. An agent that runs keeps it alive by itself, even where this is less than ReportingIntervalSecs.",
		},
		{
			Name: "EndpointReportingEnabled", Initial: "true", Effect: atOnce,
			Values: boolean(func(p *Params) *bool { return &p.ReportEndpoints }),
			Does:   "Whether the status of each endpoint is written to etcd. Turned off, what was written is deleted.",
		},
		{
			Name: "EndpointReportingDelaySecs", Initial: "0.1", Effect: nextReport,
			Values: secondsOrNever(time.Millisecond, time.Minute, func(p *Params) *time.Duration { return &p.ReportDelay }),
			Does:   "How long changes of endpoints' status gather before they are written, so that a burst is a few writes.",
		},
		{
			Name: "HealthEnabled", Initial: "true", Effect: atOnce,
			Values: boolean(func(p *Params) *bool { return &p.Health.Enabled }),
			Does:   "Whether /liveness, /readiness, /debug/state and /debug/invalid are served.",
		},
		{
			Name: "HealthHost", Initial: "127.0.0.1", Effect: atStart, Local: true,
			Values: listenHost(func(p *Params) *string { return &p.Health.Host }),
			Does:   "Where they are served.",
		},
		{
			Name: "HealthPort", Initial: "9099", Effect: atOnce,
			Values: number(1, 65535, func(p *Params) *uint16 { return &p.Health.Port }),
			Does:   "The TCP port of the same.",
		},
		{
			Name: "PrometheusMetricsEnabled", Initial: "true", Effect: atOnce,
			Values: boolean(func(p *Params) *bool { return &p.Metrics.Enabled }),
			Does:   "Whether /metrics is served.",
		},
		{
			Name: "PrometheusMetricsHost", Initial: "", Effect: atStart, Local: true,
			Values: listenHost(func(p *Params) *string { return &p.Metrics.Host }),
			Does:   "Where it is served.",
		},
		{
			Name: "PrometheusMetricsPort", Initial: "9091", Effect: atOnce,
			Values: number(1, 65535, func(p *Params) *uint16 { return &p.Metrics.Port }),
			Does:   "The TCP port of the same. Where it is HealthPort, that counts: /metrics stays where it was served before, or is not served.",
		},
	}, routingTable()...)
}
