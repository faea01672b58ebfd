// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An otherSetting is a setting of Calico's agents that ours don't have.
type otherSetting struct {
	only, reason string
	list         bool // the value is a list of one
}

// otherSettings maps these to the values that are taken: they say what is so anyway, and are mostly Calico's defaults. None is stored.
var otherSettings = func() map[string]otherSetting {
	all := map[string]otherSetting{}
	for reason, fields := range map[string]string{
		"there is no eBPF data path": `bpfEnabled=false bpfLogLevel=Off bpfDisableUnprivileged=true bpfConnectTimeLoadBalancing=TCP
			bpfConnectTimeLoadBalancingEnabled=true bpfHostNetworkedNATWithoutCTLB=Enabled bpfExternalServiceMode=Tunnel
			bpfKubeProxyIptablesCleanupEnabled=true bpfKubeProxyMinSyncPeriod=1s bpfPolicyDebugEnabled=true bpfEnforceRPF=Loose|Strict
			bpfHostConntrackBypass=false|true bpfRedirectToPeer=Enabled|L2Only bpfAttachType=TCX|Netkit bpfProfiling=Disabled bpfExtToServiceConnmark=0
			bpfDataIfacePattern bpfL3IfacePattern bpfCTLBLogFilter bpfConntrackLogLevel=Off bpfConntrackMode=Userspace|Auto bpfConntrackTimeouts
			bpfDSROptoutCIDRs=none bpfDisableGROForIfaces bpfExcludeCIDRsFromNAT=none bpfExportBufferSizeMB=1
			bpfForceTrackPacketsFromIfaces=[docker+] bpfIPFragTimeout bpfIPFragmentReassemblyEnabled=true bpfJITHardening=Auto|Strict
			bpfKubeProxyHealthzPort=10256 bpfLogFilters bpfMaglevMaxEndpointsPerService=100 bpfMaglevMaxServices=100
			bpfMapSizeConntrack=512000 bpfMapSizeConntrackCleanupQueue=100000 bpfMapSizeConntrackScaling=DoubleIfFull
			bpfMapSizeIPSets=1048576 bpfMapSizeIfState=1000 bpfMapSizeNATAffinity=65536 bpfMapSizeNATBackend=262144
			bpfMapSizeNATFrontend=65536 bpfMapSizePerCpuConntrack=0 bpfMapSizeRoute=262144 bpfOverlayHostSourceIP=TunnelAddress
			bpfPSNATPorts=20000:29999 cgroupV2Path xdpEnabled=true|false xdpRefreshInterval=90s genericXDPEnabled=false sidecarAccelerationEnabled=false`,
		"WireGuard is not supported": `wireguardEnabled=false wireguardEnabledV6=false wireguardHostEncryptionEnabled=false wireguardMTU=0
			wireguardMTUV6=0 wireguardKeepAlive=0s wireguardListeningPort=51820 wireguardListeningPortV6=51821 wireguardRoutingRulePriority=99
			wireguardInterfaceName=wireguard.cali wireguardInterfaceNameV6=wg-v6.cali wireguardThreadingEnabled=false`,
		"the firewall is that of nftables": `iptablesBackend=Auto|NFT nftablesMode=Disabled|Auto|Enabled iptablesFilterAllowAction=Accept
			iptablesMangleAllowAction=Accept iptablesFilterDenyAction=Drop nftablesFilterAllowAction=Accept nftablesMangleAllowAction=Accept
			nftablesFilterDenyAction=Drop iptablesLockFilePath=/run/xtables.lock iptablesLockTimeout=0s iptablesLockProbeInterval=50ms
			iptablesPostWriteCheckInterval=1s|5s iptablesMarkMask iptablesNATOutgoingInterfaceFilter
			maxIpsetSize=1048576 featureDetectOverride featureGates nftablesMarkMask`,
		"write nftablesRefreshInterval": "iptablesRefreshInterval=90s|180s ipsetsRefreshInterval=10s|90s",
		"the modes of the pools decide, and false is refused where a pool has such tunnels": "ipipEnabled=true|false vxlanEnabled=true|false",
		"invalid packets are always denied":                                                 "disableConntrackInvalidCheck=false",
		"there is one data path":                                                            "useInternalDataplaneDriver=true dataplaneDriver=calico-iptables-plugin",
		"write a FelixConfiguration node.<name> for each node":                              "nodeSelector",
		"every packet that a rule logs is logged, and replies are not":                      "logActionRateLimit logActionRateLimitBurst=5 logConnectionTransitions logConnectionTransitionsPrefix",
		"hosts answer no ARP for pods on their own links":                                   "localSubnetL2Reachability=Disabled localSubnetL2ReachabilityRefreshInterval=120s",
		"metrics are served without TLS":                                                    "prometheusMetricsCAFile prometheusMetricsCertFile prometheusMetricsKeyFile prometheusMetricsClientAuth=NoClientCert|RequireAndVerifyClientCert",
		"no profiles are served, and no trouble is simulated": `debugHost=localhost debugPort debugMemoryProfilePath debugDisableLogDropping=false
			debugSimulateCalcGraphHangAfter=0s debugSimulateDataplaneHangAfter=0s debugSimulateDataplaneApplyDelay=0s`,
		"IPv6 is always on":                                                                 "ipv6Support=true",
		"workloads send from their own addresses alone":                                     "workloadSourceSpoofing=Disabled",
		"the plugin's feature_control.floating_ips decides":                                 "floatingIPs=Disabled|Enabled",
		"addresses of services are not advertised":                                          "serviceLoopPrevention=Drop|Disabled",
		"kube-proxy in mode ipvs is not supported":                                          "kubeNodePortRanges=[30000:32767]",
		"the address and ports of NAT are the kernel's to choose":                           "natOutgoingAddress natPortRange",
		"packets to other hosts are translated as well":                                     "natOutgoingExclusions=IPPoolsOnly",
		"the agent keeps its routes apart by their protocol, and uses no tables of its own": "routeTableRange=* routeTableRanges=*",
		"not supported: routes are the agent's to choose": `routeSource=CalicoIPAM routeSyncDisabled=false
			deviceRouteSourceAddress deviceRouteSourceAddressIPv6 ipForwarding=Enabled
			netlinkTimeout=10s programClusterRoutes=Disabled ipv4NormalRoutePriority=1024 ipv6NormalRoutePriority=1024
			ipv4ElevatedRoutePriority=512 ipv6ElevatedRoutePriority=512 liveMigrationRouteConvergenceTime=30s`,
		"write routeRefreshInterval":                   "interfaceRefreshInterval=90s",
		"routes of others stay":                        "removeExternalRoutes=false",
		"the protocol of routes to workloads is fixed": "deviceRouteProtocol=80",
		"tunnels take packets from hosts of the cluster alone": `externalNodesList=none externalNodesCIDRList=none
			allowVXLANPacketsFromWorkloads=false allowIPIPPacketsFromWorkloads=false`,
		"the interfaces of host endpoints are theirs by name": "interfaceExclude=kube-ipvs0",
		"write uplinkMTU":                                   "mtuIfacePattern requireMTUFile=false",
		"set it in AWS":                                     "awsSrcDstCheck=DoNothing",
		"http needs a proxy: not supported":                 "policySyncPathPrefix istioAmbientMode=Disabled istioDSCPMark=23",
		"there is one region":                               "openstackRegion",
		"the agent watches itself":                          "healthTimeoutOverrides=none dataplaneWatchdogTimeout=90s",
		"write logSeverityFile and logFilePath":             "logSeveritySys=Info|None logDebugFilenameRegex",
		"no usage is reported to anyone":                    "usageReportingEnabled=true|false usageReportingInterval=86400s usageReportingInitialDelay=300s",
		"the agent serves all of its metrics":               "prometheusGoMetricsEnabled=true prometheusProcessMetricsEnabled=true prometheusWireGuardMetricsEnabled=true",
		"set GOGC, GOMEMLIMIT and GOMAXPROCS for the agent": "goGCThreshold=40 goMemoryLimitMB=-1 goMaxProcs=-1",
		"there are no flow logs: see nfLogGroup":            "flowLogsGoldmaneServer flowLogsLocalReporter=Disabled flowLogsFlushInterval=300s flowLogsPolicyEvaluationMode=Continuous flowLogsCollectorDebugTrace=false",
		"an ADD waits for the agent itself":                 "endpointStatusPathPrefix=/var/run/calico",
		"there are no nodes of Windows":                     "windowsManageFirewallRules=Disabled",
	} {
		for _, field := range strings.Fields(fields) {
			name, only, _ := strings.Cut(field, "=")
			all[name] = otherSetting{strings.Trim(only, "[]"), reason, strings.HasPrefix(only, "[")}
		}
	}
	return all
}()

// A hostPort is a port as Calico writes it in lists of them.
type hostPort struct {
	Protocol string `json:"protocol,omitempty" doc:"TCP, the default, or UDP."`
	Port     int    `json:"port" range:"1,65535" doc:"Its number."`
	Net      string `json:"net,omitempty" only:"0.0.0.0/0|::/0" refused:"such a port is open to all addresses: leave it out"`
}

// setting decodes a setting that is no single value. A list becomes its elements, joined by commas, or none if it is empty.
func (d *decoder) setting(n *yaml.Node, field string, s *Setting) {
	name := field[strings.LastIndex(field, ".")+1:]
	_, other := otherSettings[name]
	ports := strings.HasSuffix(name, "Ports")
	if n.Kind != yaml.SequenceNode || !other && !ports {
		if *s = Setting(textOf(n)); !other {
			d.fail(n, field, "want one value, have %s", kindOf(n))
		}
		return
	}
	var list []string
	for i, element := range n.Content {
		text := textOf(element)
		if ports && element.Kind == yaml.MappingNode {
			var p hostPort
			d.into(element, field+"["+strconv.Itoa(i)+"]", reflect.ValueOf(&p).Elem())
			text = strings.ToLower(cmp.Or(p.Protocol, "tcp")) + ":" + strconv.Itoa(p.Port)
		}
		list = append(list, text)
	}
	*s = Setting(cmp.Or(strings.Join(list, ","), "none"))
}
