// SPDX-License-Identifier: Apache-2.0

package params

import "strings"

// isForeign reports whether Calico knows a setting that this agent has no use for: it belongs to another program with settings in the same
// place, or to a data path that is not ours.
func isForeign(name string) bool {
	switch strings.ToLower(name) {
	case
		// of the cluster
		"clusterguid", "clustertype", "calicoversion", "marker", "nodeip",
		// of tunnels
		"ipinipenabled", "ipiniptunneladdr",
		"vxlanenabled", "vxlantunnelmacaddr", "ipv4vxlantunneladdr",
		"vxlantunnelmacaddrv6", "ipv6vxlantunneladdr",
		"wireguardenabled", "wireguardinterfaceaddr", "wireguardlisteningport", "wireguardmtu",
		// of iptables and ipset
		"iptablesbackend", "iptablesfilterallowaction", "iptableslockfilepath",
		"iptableslockprobeintervalmillis", "iptableslocktimeoutsecs", "iptablesmangleallowaction", "iptablesmarkmask",
		"iptablesnatoutgoinginterfacefilter", "iptablespostwritecheckintervalsecs", "ipsetsrefreshinterval", "maxipsetsize",
		"ignorelooserpf", "ipv6support",
		// of other logs, reports and places of data
		"logseveritysys", "logdebugfilenameregex", "debugmemoryprofilepath", "usagereportingenabled",
		"datastoretype", "felixhostname",
		"etcdaddr", "etcdcafile", "etcdcertfile", "etcdendpoints", "etcdkeyfile", "etcdscheme":
		return true
	}
	return false
}
