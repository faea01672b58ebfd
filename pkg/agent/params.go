// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/policy"
)

// Params are the settings of the agent that users know by name. Each stands in
// the environment, as FELIX_<NAME>, in the configuration file, or in etcd, for
// one host or for all; they win in this order. paramTable says what there is.
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
	// FailsafeInbound and FailsafeOutbound are open on host endpoints, whatever
	// policy says.
	FailsafeInbound, FailsafeOutbound []policy.ProtoPort
	// LogPrefix is that of rules that log and say none.
	LogPrefix string
	// FlowLogGroup is the NFLOG group of rules that log, 0 = the kernel's log alone.
	FlowLogGroup uint16

	// ReportInterval is how often the agent says in etcd that it lives, 0 = never;
	// ReportTTL is how long that stays there without it.
	ReportInterval, ReportTTL time.Duration
	// ReportEndpoints has the status of each endpoint written to etcd,
	// ReportDelay after it changed.
	ReportEndpoints bool
	ReportDelay     time.Duration

	Health, Metrics Serving

	RoutingParams
}

// Serving says whether and where something is served over HTTP.
type Serving struct {
	Enabled bool
	Host    string // "" = all addresses
	Port    uint16
}

// Firewall are the settings that bear on packets.
func (p Params) Firewall() policy.Settings {
	return policy.Settings{
		Prefixes:         slices.Clone(p.InterfacePrefixes),
		EndpointToHost:   p.EndpointToHost,
		EndpointDNS:      p.EndpointDNS,
		FailsafeInbound:  slices.Clone(p.FailsafeInbound),
		FailsafeOutbound: slices.Clone(p.FailsafeOutbound),
		FlowLogGroup:     p.FlowLogGroup,
		LogPrefix:        p.LogPrefix,
	}
}

// param is one setting: its name as users know it, what its values are, its
// default, and what it does.
type param struct {
	name string
	// aliases are names that it had; where both stand in one layer, name wins.
	aliases []string
	values  values
	initial string
	effect  string // when a change in etcd applies
	does    string
}

// names are all that users may call it.
func (p param) names() []string { return append([]string{p.name}, p.aliases...) }

// paramError is a setting that makes no sense, and which one.
type paramError struct {
	name  string // of the parameter
	given string // how the layer spells it
	layer int    // index of the map it came from
	text  string
	err   error
}

// choice is the value of a parameter, and where it came from.
type choice struct {
	layer int // index of the map that decided, or layerDefault
	text  string
	bad   bool // what the layer says makes no sense: text is the default
}

// resolution is what follows from all layers.
type resolution struct {
	params  Params
	choices map[string]choice // by parameter
	wrong   []paramError
}

// resolve works the parameters out, wherever they are to be used.
func resolve(layers ...map[string]string) resolution {
	return resolver{layers: layers}.resolve()
}

// resolver has what parameters are worked out of.
type resolver struct {
	layers []map[string]string // the strongest first
	// unread says why the value of a name in a layer can't be read.
	unread map[unreadValue]error
	// refuse says why the parameter's value, which parses, can't be used here; nil
	// function = it always can.
	refuse func(name string, p *Params) error
}

type unreadValue struct {
	layer int
	given string
}

// resolve has the strongest layer that names a parameter, in any case, decide on
// it: by its value, and where that makes no sense by the default. To go on to the
// next layer then would be a value that nobody chose for this host. What makes no
// sense in weaker layers is found as well.
func (x resolver) resolve() resolution {
	r := resolution{choices: map[string]choice{}}
	folded := make([]map[string]string, len(x.layers)) // lower-case name to the spelling that counts
	for i, layer := range x.layers {
		folded[i] = fold(layer)
	}
	for _, p := range paramTable() {
		chosen := choice{layer: layerDefault, text: p.initial}
		for i, layer := range x.layers {
			given, text, ok := p.find(layer, folded[i])
			if !ok {
				continue
			}
			err := x.check(p, unreadValue{i, given}, text)
			if err != nil {
				r.wrong = append(r.wrong, paramError{p.name, given, i, text, err})
			}
			switch {
			case chosen.layer != layerDefault:
			case err != nil:
				chosen.layer, chosen.bad = i, true
			default:
				chosen.layer, chosen.text = i, text
			}
		}
		if err := p.values.set(&r.params, chosen.text); err != nil {
			panic(fmt.Sprintf("%s %q: %v", p.name, chosen.text, err)) // it was read before, or is the default, which is tested
		}
		r.choices[p.name] = chosen
	}
	return r
}

// check says what is wrong with a value.
func (x resolver) check(p param, at unreadValue, text string) error {
	if err := x.unread[at]; err != nil {
		return err
	}
	var scratch Params
	err := p.values.set(&scratch, text)
	if err == nil && x.refuse != nil {
		err = x.refuse(p.name, &scratch)
	}
	return err
}

// fold finds names whatever their case. Of several that differ in case alone,
// the one in the table's own spelling counts, else the last.
func fold(layer map[string]string) map[string]string {
	folded := make(map[string]string, len(layer))
	for _, name := range slices.Sorted(maps.Keys(layer)) {
		folded[strings.ToLower(name)] = name
	}
	return folded
}

// find looks a parameter up in a layer, by all of its names.
func (p param) find(layer, folded map[string]string) (given, text string, ok bool) {
	for _, name := range p.names() {
		for _, spelled := range []string{name, folded[strings.ToLower(name)]} {
			if text, ok := layer[spelled]; ok {
				return spelled, text, true
			}
		}
	}
	return "", "", false
}

// felixEnviron picks the FELIX_ variables, by name without FELIX_; an
// empty one is not set. unknown are the variables that name no parameter of ours.
func felixEnviron(environ []string) (known map[string]string, unknown []string) {
	known = map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		param, ok := cutPrefixFold(name, "FELIX_")
		switch {
		case !ok || value == "":
		case isParam(param):
			known[param] = value
		default:
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return known, unknown
}

func isParam(name string) bool {
	return slices.ContainsFunc(paramTable(), func(p param) bool {
		return slices.ContainsFunc(p.names(), func(n string) bool { return strings.EqualFold(n, name) })
	})
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// comparePorts orders by protocol, then by port.
func comparePorts(a, b policy.ProtoPort) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}
