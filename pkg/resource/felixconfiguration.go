// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// A Setting is the value of a parameter, as text.
type Setting string

// UnmarshalText accepts any value.
func (s *Setting) UnmarshalText(text []byte) error { *s = Setting(text); return nil }

// FelixConfiguration maps parameters of the agents to their values. The keys are the names in docs/configuration.md with a
// lower-case first letter.
type FelixConfiguration map[string]Setting

// MarshalJSON encodes the values as their schemas say.
func (c FelixConfiguration) MarshalJSON() ([]byte, error) {
	all := make(map[string]any, len(c))
	for field, value := range c {
		all[field] = settings[parameters[field]].value(string(value))
	}
	return json.Marshal(all)
}

// settingFields are the field names that aren't their parameter's name with a lower-case beginning.
var settingFields = map[string]string{
	"reportingInterval": "ReportingIntervalSecs", "reportingTTL": "ReportingTTLSecs", "endpointReportingDelay": "EndpointReportingDelaySecs",
	"ipipMTU": "IpInIpMtu", "vxlanMTU": "VXLANMTU", "vxlanMTUV6": "VXLANMTUV6", "vxlanVNI": "VXLANVNI",
}

func fieldOf(parameter string) string {
	for field, name := range settingFields {
		if name == parameter {
			return field
		}
	}
	n := 1 // VXLANPort becomes vxlanPort, MTULiveUpdate mtuLiveUpdate
	for n < len(parameter) && parameter[n] >= 'A' && parameter[n] <= 'Z' && (n+1 == len(parameter) || parameter[n+1] >= 'A' && parameter[n+1] <= 'Z') {
		n++
	}
	return strings.ToLower(parameter[:n]) + parameter[n:]
}

// A setting describes a parameter of the agents.
type setting struct {
	schema Schema
	check  func(string) error
	local  bool // etcd doesn't decide on it
}

// booleans are the words of a boolean, those of false first.
var booleans = []string{"false", "no", "0", "true", "yes", "1"}

// value returns a value as the schema has it. One that makes no sense stays text.
func (s setting) value(text string) any {
	list, _ := s.schema.Type.([]string)
	switch i := slices.Index(booleans, strings.ToLower(text)); {
	case s.schema.Type == "boolean" && i >= 0:
		return i >= 3
	case s.schema.Type == "string":
		return text
	case slices.Contains(list, "array"):
		if ports, err := policy.ParseProtoPorts(text); err == nil {
			return append([]hostPort{}, converted(ports, func(p policy.ProtoPort) hostPort {
				return hostPort{Protocol: protocolNames[p.Protocol], Port: int(p.Port)}
			})...)
		}
	case text == "true" || text == "false":
		return text == "true"
	}
	if n, err := strconv.Atoi(text); err == nil && (s.schema.Type == "integer" || strconv.Itoa(n) == text) {
		return n
	}
	return text
}

// durations are numbers of seconds, or numbers with units.
var durations = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$|^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)

// settings maps the agents' parameters to their descriptions.
var settings = func() map[string]setting {
	text := func(check func(string) error) setting { return setting{schema: Schema{Type: "string"}, check: check} }
	boolean := setting{schema: Schema{Type: "boolean"}, check: func(s string) error {
		return wants(slices.Contains(booleans, strings.ToLower(s)), s, "true or false")
	}}
	number := func(low, high int) setting {
		return setting{schema: Schema{Type: "integer", Minimum: &low, Maximum: &high}, check: func(s string) error {
			n, err := strconv.Atoi(s)
			return wants(err == nil && n >= low && n <= high, s, fmt.Sprintf("%d to %d", low, high))
		}}
	}
	seconds := func(low, high float64) setting {
		schema := Schema{Type: []string{"integer", "string"}, Pattern: durations.String(), Minimum: new(int(math.Ceil(low))), Maximum: new(int(high))}
		return setting{schema: schema, check: func(s string) error {
			f, err := strconv.ParseFloat(s, 64)
			if d, bad := time.ParseDuration(s); bad == nil {
				f, err = d.Seconds(), nil
			}
			return wants(durations.MatchString(s) && err == nil && f >= low && f <= high, s, fmt.Sprintf("seconds, %v to %v", low, high))
		}}
	}
	orZero := func(of setting) setting {
		check, low := of.check, *of.schema.Minimum
		if of.schema.Minimum = new(int); low > 1 {
			of.schema.Validations = []Validation{{fmt.Sprintf("self == 0 || self >= %d", low), fmt.Sprintf("want 0, or %d to %d", low, *of.schema.Maximum)}}
		}
		of.check = func(s string) error {
			if s == "0" || s == "0s" && of.schema.Type != "integer" {
				return nil
			}
			return check(s)
		}
		return of
	}
	oneOf := func(words ...string) setting { // in any case, so that an enum won't do
		return setting{schema: Schema{Type: "string", Pattern: "(?i)^(" + strings.Join(words, "|") + ")$"}, check: func(s string) error {
			return wants(slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, s) }), s, strings.Join(words, ", "))
		}}
	}
	local := func(only string) setting {
		const reason = "etcd doesn't decide on it: set it in the environment or the felix.cfg of each node's agent"
		schema := Schema{Type: "string", Description: "Only " + cmp.Or(only, "empty") + ": " + reason + ".", Validations: []Validation{{"self == '" + only + "'", reason}}}
		return setting{local: true, schema: schema, check: func(s string) error {
			if strings.EqualFold(s, only) {
				return nil
			}
			return wantOnly(s, only, reason)
		}}
	}
	ports := setting{schema: Schema{Type: []string{"array", "string"}}, check: func(s string) error {
		_, err := policy.ParseProtoPorts(s)
		return wants(err == nil, s, "none, or a comma list as tcp:22,udp:68")
	}}
	severity := oneOf("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "NONE")
	mtu := orZero(number(68, 65535))
	logPrefix := regexp.MustCompile(`^[A-Za-z0-9_:-]{1,27}$`)
	return map[string]setting{
		"InterfacePrefix": text(func(s string) error {
			for p := range strings.SplitSeq(s, ",") {
				if p = strings.TrimSpace(p); p == "" || len(p) > 15 {
					return wants(false, s, "a comma list of beginnings of interface names")
				}
			}
			return nil
		}),
		"RouteRefreshInterval": seconds(1, 3600), "NftablesRefreshInterval": seconds(1, 3600),
		"DefaultEndpointToHostAction": oneOf("DROP", "RETURN", "ACCEPT"), "AllowDNSPacketsFromWorkloads": boolean,
		"ChainInsertMode": oneOf("Insert", "Append", "Off"), "UnreadyWhenBlocked": oneOf("All", "Any", "Never"), "ProbeWorkloadPath": boolean,
		"MetadataAddr": text(func(s string) error {
			a, err := netip.ParseAddr(s)
			return wants(strings.EqualFold(s, "none") || err == nil && a.Is4(), s, "none, or an IPv4 address")
		}),
		"MetadataPort":             number(1, 65535),
		"FailsafeInboundHostPorts": ports, "FailsafeOutboundHostPorts": ports, "MetricsPorts": ports,
		"LogPrefix": {schema: Schema{Type: "string", Pattern: logPrefix.String()}, check: func(s string) error {
			return wants(logPrefix.MatchString(s), s, "1 to 27 of A-Z a-z 0-9 _ : -")
		}},
		"MaxConnectionsPerEndpoint": number(0, 1<<30), "NFLogGroup": number(0, 65535), "LogSeverityScreen": severity, "LogSeverityFile": severity,
		"LogFilePath": local("none"), "HealthHost": local("127.0.0.1"), "PrometheusMetricsHost": local(""), "BGPListenAddresses": local(""),
		"ReportingIntervalSecs": orZero(seconds(1, 3600)), "ReportingTTLSecs": seconds(5, 86400), "EndpointReportingEnabled": boolean,
		"EndpointReportingDelaySecs": orZero(seconds(0.001, 60)), "HealthEnabled": boolean, "HealthPort": number(1, 65535),
		"PrometheusMetricsEnabled": boolean, "PrometheusMetricsPort": number(1, 65535),
		"VXLANPort": number(1, 65535), "VXLANVNI": number(1, 16777215), "UplinkMTU": mtu, "VXLANMTU": mtu, "VXLANMTUV6": mtu, "IpInIpMtu": mtu,
		"MTULiveUpdate": boolean, "BGPListenPort": number(1, 65535), "BGPHoldTimeSecs": seconds(3, 65535),
		"BGPKeepaliveTimeSecs": orZero(seconds(1, 21845)), "BGPRestartTimeSecs": orZero(seconds(1, 4095)), "BGPMaxPrefixes": number(1, 10000000),
		"BGPCommunities": text(func(s string) error {
			return wants(s == "" || advertisementsOf(s) != nil, s, "a comma list of PREFIX=COMMUNITY")
		}),
	}
}()

// parameters maps fields to parameters.
var parameters = func() map[string]string {
	all := map[string]string{}
	for name := range settings {
		all[fieldOf(name)] = name
	}
	return all
}()

func wants(ok bool, have, want string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%.64q: want %s", have, want)
}

func checkSetting(name, value string) error {
	if check := settings[name].check; check != nil {
		return check(value)
	}
	return nil
}

// Parameters returns the names of the agents' parameters that resources can set, sorted.
func Parameters() []string { return slices.Sorted(maps.Keys(settings)) }

// DropUnknown removes the fields that are no parameter of the agents, or one on which etcd doesn't decide, and returns their names.
func (c FelixConfiguration) DropUnknown() []string {
	var dropped []string
	for _, field := range slices.Sorted(maps.Keys(c)) {
		if name := parameters[field]; name == "" || settings[name].local {
			dropped = append(dropped, field)
			delete(c, field)
		}
	}
	return dropped
}

var felixConfigurationKind = newKind(readFelix, writeFelix, Kind{
	Name: "FelixConfiguration", Plural: "FelixConfigurations", apart: true, Aliases: []string{"felixconfig", "felixconfigs"},
	newSpec: func() any { return &FelixConfiguration{} }, // not nil, which is null in JSON
	ranges:  prefix(model.ConfigPrefix(), model.HostPrefix("")), of: felixOf,
	custom: &custom{rules: defaultOrNode},
	always: func(name string) bool { return name == "default" || strings.HasPrefix(name, "node.") },
	narrow: func(r Resource) []model.Range {
		if host, isNode := strings.CutPrefix(r.Metadata.Name, "node."); isNode {
			return prefix(model.HostPrefix(host)+"config/", model.PoolPrefix())
		}
		return prefix(model.ConfigPrefix(), model.PoolPrefix())
	},
})

func felixOf(e model.Entry) string {
	switch k := e.Key.(type) {
	case model.GlobalConfigKey:
		if settings[k.Name].check != nil && !isBGPSetting(k.Name) {
			return "default"
		}
	case model.HostConfigKey:
		if settings[k.Name].check != nil {
			return "node." + k.Host
		}
	}
	return ""
}

func readFelix(name string, s *Stored) *FelixConfiguration {
	spec := FelixConfiguration{}
	s.Metadata.Name = name
	for _, e := range s.Entries {
		if text, ok := parsed[model.Text](e); ok {
			spec[fieldOf(path.Base(e.Path))] = Setting(text) // a key ends with the parameter's name
		}
	}
	return &spec
}

func writeFelix(r writing[FelixConfiguration]) (keys, error) {
	host, isNode := strings.CutPrefix(r.Metadata.Name, "node.")
	if !isNode && r.Metadata.Name != "default" || isNode && host == "" {
		return keys{}, r.at("metadata.name", "%q: want default, or node.<name>", r.Metadata.Name)
	}
	key := func(name string) model.Key {
		if isNode {
			return model.HostConfigKey{Host: host, Name: name}
		}
		return model.GlobalConfigKey{Name: name}
	}
	names := slices.DeleteFunc(Parameters(), func(name string) bool { return !isNode && isBGPSetting(name) })
	var k keys
	var errs []error
	spec, was := *r.spec, *r.was
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		name := parameters[field]
		ok := slices.Contains(names, name)
		if other, is := otherSettings[field]; !ok && is {
			if text := string(spec[field]); !isOneOf(text, other.only) {
				errs = append(errs, r.at("spec."+field, "%w", wantOnly(text, other.only, other.reason)))
			} else if pool := tunnelled(field, r.entries); strings.EqualFold(text, "false") && pool != "" {
				errs = append(errs, r.at("spec."+field, "false: the %sMode of IPPool %s decides", strings.TrimSuffix(field, "Enabled"), pool))
			}
			continue
		}
		if !ok {
			errs = append(errs, r.at("spec."+field, "the agents have no such setting%s", suggest(field, converted(names, fieldOf))))
			continue
		}
		value := string(spec[field])
		if before, ok := was[field]; ok && reflect.DeepEqual(settings[name].value(string(before)), settings[name].value(value)) {
			continue
		}
		if err := checkSetting(name, value); err != nil {
			errs = append(errs, r.at("spec."+field, "%w", err))
		}
		k.put(key(name), model.Text(value))
	}
	for field := range was {
		if _, ok := spec[field]; !ok {
			k.deletes = append(k.deletes, key(parameters[field]))
		}
	}
	return k, errors.Join(errs...)
}

// tunnelled returns the name of a pool that has the tunnels which a field of Calico's can turn off; "" = none.
func tunnelled(field string, entries []model.Entry) string {
	for _, e := range entries {
		pool, ok := parsed[model.Pool](e)
		if ok && (field == "ipipEnabled" && pool.IPIPMode != model.EncapNever || field == "vxlanEnabled" && pool.VXLANMode != model.EncapNever) {
			return pool.ResourceName()
		}
	}
	return ""
}
