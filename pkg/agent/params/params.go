// SPDX-License-Identifier: Apache-2.0

// Package params holds the agent's parameters: the table of their names and values, their resolution from the environment, the file, the
// flags and etcd, and their adoption, which logs what changes and what has no effect.
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

// Params are the agent's settings that users know by name. Each may be set in the environment, as FELIX_<NAME>, in the configuration file,
// or in etcd, for one host or for all; they win in this order. Table lists them.
type Params struct {
	// InterfacePrefixes are the prefixes of workload interfaces' names.
	InterfacePrefixes []string
	// RefreshInterval is how often the kernel's routes, neighbours and sysctls are read and repaired.
	RefreshInterval time.Duration
	// FirewallInterval is how often the kernel's nftables are read and repaired.
	FirewallInterval time.Duration

	// LogLevel is the level of the log on the screen.
	LogLevel slog.Level
	// LogFile is a file to log to as well, "" = none; LogFileLevel is its level.
	LogFile      string
	LogFileLevel slog.Level

	// EndpointToHost is what happens to a workload's packets for the host.
	EndpointToHost policy.EndpointToHost
	// EndpointDNS allows workloads' queries to the host's own DNS server nevertheless.
	EndpointDNS bool
	// MetadataAddr and MetadataPort are where virtual machines' requests for metadata go; "" = nowhere.
	MetadataAddr string
	MetadataPort uint16
	// FailsafeInbound and FailsafeOutbound are open on host endpoints, whatever policy says.
	FailsafeInbound, FailsafeOutbound []policy.ProtoPort
	// MetricsPorts are closed except for what a policy allows, and so is the agent's own metrics port.
	MetricsPorts []policy.ProtoPort
	// LogPrefix is the prefix of logging rules that have none.
	LogPrefix string
	// ChainInsertMode is where iptables' FORWARD chains let workloads through.
	ChainInsertMode beside.Mode
	// UnreadyWhenBlocked says when stopped packets of workloads make the host not ready.
	UnreadyWhenBlocked board.Unready
	// ProbePath enables the probe of the path of workloads' packets.
	ProbePath bool
	// FlowLogGroup is the NFLOG group of logging rules, 0 = only the kernel's log.
	FlowLogGroup uint16

	// MaxConnections is how many connections each workload may begin and have at a time, 0 = any number.
	MaxConnections int

	// ReportInterval is how often the agent reports in etcd that it is alive, 0 = never; ReportTTL is how long a report lasts.
	ReportInterval, ReportTTL time.Duration
	// ReportEndpoints enables writing each endpoint's status to etcd, ReportDelay after a change.
	ReportEndpoints bool
	ReportDelay     time.Duration

	Health, Metrics serving.Address

	RoutingParams
}

// Firewall returns the settings that concern packets.
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

// param is one setting: its name for users, its values, its default, and its effect.
type param struct {
	Name string
	// Aliases are former names; if one layer has both, Name wins.
	Aliases []string
	Values  values
	Initial string // the default, as users spell it
	// Local: etcd can't set it. Otherwise a writer there could make root open files, or serve pages on the network.
	Local  bool
	Effect string // when a change in etcd applies, in words
	Does   string // what it does, in sentences of Markdown
}

// Names returns all names that users may use.
func (p param) Names() []string { return append([]string{p.Name}, p.Aliases...) }

// mistake is a value that makes no sense, and its setting.
type mistake struct {
	Name  string // of the parameter
	Given string // the layer's spelling of the name
	Layer int    // index of the map it came from
	Text  string // the layer's value
	Err   error  // what is wrong with it
}

// layerDefault stands for a value that no map sets.
const layerDefault = -1

// choice is the value of a parameter, and its source.
type choice struct {
	Layer int    // index of the map that won, or layerDefault
	Given string // its spelling of the name
	Text  string
	Bad   bool // the layer's value makes no sense: Text is the default
}

// resolution is the result of all layers.
type resolution struct {
	Params  Params
	Choices map[string]choice // of each parameter, by its name in the table
	Wrong   []mistake         // in all layers, in the table's order
}

// Resolve computes the parameters. Layers map names, in any case, to texts, the strongest first; without any the result is the defaults.
func Resolve(layers ...map[string]string) resolution {
	return resolver{Layers: layers}.resolve()
}

// resolver computes parameters.
type resolver struct {
	Layers []map[string]string // the strongest first
	// Unread says why a layer's value can't be read: it is then a mistake, whatever its text.
	Unread map[unreadValue]error
	// Refuse returns why the parameter's value, which parses, can't be used here; a nil function refuses none.
	Refuse func(name string, p *Params) error
}

// unreadValue identifies a value in a layer.
type unreadValue struct {
	Layer int    // index of the map
	Given string // the layer's spelling of the name
}

// resolve lets the strongest layer that names a parameter, in any case, decide: by its value, or by the default if that makes no sense.
// Going on to the next layer would use a value that was not meant for this host. Mistakes in weaker layers, and in spellings of the name
// that lose, are found as well.
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
			panic(fmt.Sprintf("%s %q: %v", p.Name, chosen.Text, err)) // the text was parsed before, or is the default, which is tested
		}
		r.Choices[p.Name] = chosen
	}
	return r
}

// check returns what is wrong with a value.
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

// fold maps lower-case names to their spellings in a layer.
func fold(layer map[string]string) map[string][]string {
	folded := make(map[string][]string, len(layer))
	for _, name := range slices.Sorted(maps.Keys(layer)) {
		lower := strings.ToLower(name)
		folded[lower] = append(folded[lower], name)
	}
	return folded
}

// spellings returns the parameter's names in a layer, the winning one first: the name before its aliases, and among those that differ only
// in case the table's own, else the last.
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

// Environ returns the FELIX_ variables, by name without FELIX_, including those that name no parameter; empty ones count as not set.
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
