// SPDX-License-Identifier: Apache-2.0

// Package params holds the agent's parameters: a table of their names and values, the resolution of what the environment,
// the file, the flags and etcd say, and their adoption, which logs what changes and what has no effect.
package params

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/beside"
	"github.com/calico-go/calico/pkg/policy"
)

// Params are the settings of the agent that users know by name. Each stands in
// the environment, as FELIX_<NAME>, in the configuration file, or in etcd, for
// one host or for all; they win in this order. Table says what there is.
type Params struct {
	// InterfacePrefixes are what the names of workload interfaces begin with.
	InterfacePrefixes []string
	// RefreshInterval is how often the kernel's routes, neighbours and sysctls are
	// read and repaired.
	RefreshInterval time.Duration
	// FirewallInterval is how often the kernel's nftables are read and repaired.
	FirewallInterval time.Duration

	// LogLevel is that of the log on the screen.
	LogLevel slog.Level
	// LogFile is a file that the log goes to as well, "" = none; LogFileLevel is its level.
	LogFile      string
	LogFileLevel slog.Level

	// EndpointToHost is what happens to a workload's packets for the host.
	EndpointToHost policy.EndpointToHost
	// EndpointDNS lets workloads ask the host's own DNS server all the same.
	EndpointDNS bool
	// MetadataAddr and MetadataPort are where virtual machines find metadata; "" = nowhere.
	MetadataAddr string
	MetadataPort uint16
	// FailsafeInbound and FailsafeOutbound are open on host endpoints, whatever
	// policy says.
	FailsafeInbound, FailsafeOutbound []policy.ProtoPort
	// MetricsPorts are closed but for what a policy allows; the agent's own is one of them.
	MetricsPorts []policy.ProtoPort
	// LogPrefix is that of rules that log and say none.
	LogPrefix string
	// ChainInsertMode is where in iptables' FORWARD chains workloads are let through.
	ChainInsertMode beside.Mode
	// UnreadyWhenBlocked is where it makes the host not ready that something else stops workloads' packets.
	UnreadyWhenBlocked board.Unready
	// ProbePath has the path of workloads' packets tried.
	ProbePath bool
	// FlowLogGroup is the NFLOG group of rules that log, 0 = the kernel's log alone.
	FlowLogGroup uint16

	// MaxConnections is how many connections each workload may begin and have at a time, 0 = any number.
	MaxConnections int

	// ReportInterval is how often the agent says in etcd that it lives, 0 = never;
	// ReportTTL is how long that stays there without it.
	ReportInterval, ReportTTL time.Duration
	// ReportEndpoints has the status of each endpoint written to etcd,
	// ReportDelay after it changed.
	ReportEndpoints bool
	ReportDelay     time.Duration

	Health, Metrics serving.Address

	RoutingParams
}

// Firewall are the settings that bear on packets.
func (p Params) Firewall() policy.Settings {
	var metadata netip.AddrPort
	if a, err := netip.ParseAddr(p.MetadataAddr); err == nil {
		metadata = netip.AddrPortFrom(a, p.MetadataPort)
	}
	closed := slices.Clone(p.MetricsPorts)
	if own := (policy.ProtoPort{Protocol: model.ProtocolTCP, Port: p.Metrics.Port}); p.Metrics.Enabled && !slices.Contains(closed, own) {
		closed = append(closed, own)
	}
	return policy.Settings{
		MetricsPorts:     closed,
		Metadata:         metadata,
		Prefixes:         slices.Clone(p.InterfacePrefixes),
		EndpointToHost:   p.EndpointToHost,
		EndpointDNS:      p.EndpointDNS,
		FailsafeInbound:  slices.Clone(p.FailsafeInbound),
		FailsafeOutbound: slices.Clone(p.FailsafeOutbound),
		FlowLogGroup:     p.FlowLogGroup,
		LogPrefix:        p.LogPrefix,
		MaxConnections:   p.MaxConnections,
	}
}

// param is one setting: its name as users know it, what its values are, its
// default, and what it does.
type param struct {
	Name string
	// Aliases are names that it had; where both stand in one layer, Name wins.
	Aliases []string
	Values  values
	Initial string // the default, as users spell it
	// Local: etcd doesn't decide on it, as who writes there would have root open files, or pages to the network.
	Local  bool
	Effect string // when a change in etcd applies, in words
	Does   string // what it does, in sentences of Markdown
}

// Names are all that users may call it.
func (p param) Names() []string { return append([]string{p.Name}, p.Aliases...) }

// mistake is a setting that makes no sense, and which one.
type mistake struct {
	Name  string // of the parameter
	Given string // how the layer spells it
	Layer int    // index of the map it came from
	Text  string // what the layer says
	Err   error  // what is wrong with that
}

// layerDefault is the layer of a value that no map decides.
const layerDefault = -1

// choice is the value of a parameter, and where it came from.
type choice struct {
	Layer int    // index of the map that decided, or layerDefault
	Given string // how that spells the name
	Text  string
	Bad   bool // what the layer says makes no sense: Text is the default
}

// resolution is what follows from all layers.
type resolution struct {
	Params  Params
	Choices map[string]choice // of each parameter, by its name in the table
	Wrong   []mistake         // in all layers, in the table's order
}

// Resolve works the parameters out, wherever they are to be used. Layers have texts by name, in any case; the strongest
// comes first, and without any there are the defaults.
func Resolve(layers ...map[string]string) resolution {
	return resolver{Layers: layers}.resolve()
}

// resolver has what parameters are worked out of.
type resolver struct {
	Layers []map[string]string // the strongest first
	// Unread says why the value of a name in a layer can't be read: it is a mistake then, whatever its text.
	Unread map[unreadValue]error
	// Refuse says why the parameter's value, which parses, can't be used here; nil
	// function = it always can.
	Refuse func(name string, p *Params) error
}

// unreadValue names a value in a layer.
type unreadValue struct {
	Layer int    // index of the map
	Given string // how the layer spells the name
}

// resolve has the strongest layer that names a parameter, in any case, decide on
// it: by its value, and where that makes no sense by the default. To go on to the
// next layer then would be a value that nobody chose for this host. What makes no
// sense in weaker layers is found as well, and in spellings of the name that don't count.
func (x resolver) resolve() resolution {
	r := resolution{Choices: map[string]choice{}}
	folded := make([]map[string][]string, len(x.Layers)) // lower-case name to its spellings
	for i, layer := range x.Layers {
		folded[i] = fold(layer)
	}
	for _, p := range Table() {
		chosen := choice{Layer: layerDefault, Text: p.Initial}
		for i, layer := range x.Layers {
			for _, given := range p.spellings(folded[i]) {
				text := layer[given]
				err := x.check(p, unreadValue{i, given}, text)
				if err != nil {
					r.Wrong = append(r.Wrong, mistake{p.Name, given, i, text, err})
				}
				switch {
				case chosen.Layer != layerDefault:
				case err != nil:
					chosen.Layer, chosen.Given, chosen.Bad = i, given, true
				default:
					chosen.Layer, chosen.Given, chosen.Text = i, given, text
				}
			}
		}
		if err := p.Values.set(&r.Params, chosen.Text); err != nil {
			panic(fmt.Sprintf("%s %q: %v", p.Name, chosen.Text, err)) // it was read before, or is the default, which is tested
		}
		r.Choices[p.Name] = chosen
	}
	return r
}

// check says what is wrong with a value.
func (x resolver) check(p param, at unreadValue, text string) error {
	if err := x.Unread[at]; err != nil {
		return err
	}
	if p.Local && at.Layer >= layerHost && !strings.EqualFold(strings.TrimSpace(text), p.Initial) {
		return fmt.Errorf("it names a file or an address to listen at, which isn't taken from etcd: set FELIX_%s in the agent's environment, or %s in its file, and delete this", strings.ToUpper(p.Name), p.Name)
	}
	var scratch Params
	err := p.Values.set(&scratch, text)
	if err == nil && x.Refuse != nil {
		err = x.Refuse(p.Name, &scratch)
	}
	return err
}

// fold finds names whatever their case.
func fold(layer map[string]string) map[string][]string {
	folded := make(map[string][]string, len(layer))
	for _, name := range slices.Sorted(maps.Keys(layer)) {
		lower := strings.ToLower(name)
		folded[lower] = append(folded[lower], name)
	}
	return folded
}

// spellings are those of the parameter's names that a layer has, the one that counts first: its name before
// what else it was called, and of several that differ in case alone the table's own, else the last.
func (p param) spellings(folded map[string][]string) []string {
	var all []string
	for _, name := range p.Names() {
		given := slices.Clone(folded[strings.ToLower(name)])
		slices.SortFunc(given, func(a, b string) int {
			switch {
			case a == name:
				return -1
			case b == name:
				return 1
			}
			return cmp.Compare(b, a)
		})
		all = append(all, given...)
	}
	return all
}

// Environ picks the FELIX_ variables, by name without FELIX_, also those that name no
// parameter; an empty one is not set.
func Environ(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		param, ok := cutPrefixFold(name, "FELIX_")
		if ok && value != "" && !isForeign(param) { // a manifest written for Calico sets some
			out[param] = value
		}
	}
	return out
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
