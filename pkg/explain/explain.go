// SPDX-License-Identifier: Apache-2.0

// Package explain says what policy decides about a flow, and why: from the data in etcd to the verdict of each host on the
// way, by the evaluator that the kernel's rules are tested against.
package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Ranges returns what must be read for New.
func Ranges() []model.Range {
	return []model.Range{
		model.PrefixRange(model.PolicyPrefix()), model.PrefixRange(model.HostPrefix("")), model.PrefixRange(model.PoolPrefix()), model.PrefixRange(model.BGPPrefix()),
		model.PrefixRange(model.ConfigPrefix()), model.PrefixRange(model.NetworkSetPrefix()), model.PrefixRange(model.ServicePrefix()),
	}
}

// Cluster holds the parts of etcd's data that affect policy.
type Cluster struct {
	entries   []model.Entry
	endpoints map[model.WorkloadEndpointKey]model.WorkloadEndpoint
	links     map[string][]hostEndpoint // host endpoints, by host and sorted by name
	policies  map[policy.RulesID]model.Policy
	hosts     map[string][]netip.Addr // their addresses, by name
	settings  map[model.Key]string    // of agents, and of hosts
	pools     []model.Pool
	states    map[string]*policy.State
}

type hostEndpoint struct {
	key model.HostEndpointKey
	model.HostEndpoint
}

// New returns the Cluster of the entries read from Ranges.
func New(entries []model.Entry) *Cluster {
	c := &Cluster{
		entries: entries, endpoints: map[model.WorkloadEndpointKey]model.WorkloadEndpoint{}, links: map[string][]hostEndpoint{}, policies: map[policy.RulesID]model.Policy{},
		hosts: map[string][]netip.Addr{}, settings: map[model.Key]string{}, states: map[string]*policy.State{},
	}
	for _, e := range entries {
		switch k := e.Key.(type) {
		case model.WorkloadEndpointKey:
			if w, ok := e.Value.(model.WorkloadEndpoint); ok {
				c.endpoints[k] = w
			}
		case model.HostEndpointKey:
			h, ok := e.Value.(model.HostEndpoint)
			if invalid := new(model.InvalidHostEndpointError); !ok && errors.As(e.Err, &invalid) {
				h = invalid.On // it denies everything there
			}
			c.links[k.Host] = append(c.links[k.Host], hostEndpoint{k, h})
		case model.PolicyKey:
			if p, ok := e.Value.(model.Policy); ok {
				c.policies[policy.RulesID{Kind: policy.KindPolicy, Tier: k.Tier, Name: k.Policy}] = p
			}
		case model.GlobalConfigKey, model.HostConfigKey:
			text, _ := e.Value.(model.Text)
			c.settings[k] = string(text)
		case model.BGPHostKey:
			text, _ := e.Value.(model.Text)
			c.settings[k] = string(text)
			if a, err := netip.ParseAddr(string(text)); err == nil && (k.Field == model.BGPHostIPv4 || k.Field == model.BGPHostIPv6) {
				c.hosts[k.Host] = append(c.hosts[k.Host], a)
			}
		case model.HostMetadataKey:
			c.hosts[k.Host] = append([]netip.Addr(nil), c.hosts[k.Host]...) // the host exists, with the addresses known so far
		case model.PoolKey:
			if p, ok := e.Value.(model.Pool); ok {
				c.pools = append(c.pools, p)
			}
		}
	}
	for _, all := range c.links {
		slices.SortFunc(all, func(a, b hostEndpoint) int { return strings.Compare(a.key.Endpoint, b.key.Endpoint) })
	}
	return c
}

// An End is an end of a flow: an endpoint; else a host, if it has a name; else an address outside.
type End struct {
	Name      string                    `json:"name"` // for people
	Namespace string                    `json:"namespace,omitempty"`
	Pod       string                    `json:"pod,omitempty"`
	Key       model.WorkloadEndpointKey `json:"-"`              // zero = no endpoint
	Host      string                    `json:"host,omitempty"` // the endpoint's host, or the host itself; "" = outside
	Addrs     []netip.Addr              `json:"addresses"`
	Labels    map[string]string         `json:"labels,omitempty"` // an endpoint's own
}

// nameOf returns a pod's <namespace>/<name>, or the workload's name, followed by the endpoint's name unless it is eth0.
func nameOf(k model.WorkloadEndpointKey) string {
	name := k.Workload
	if namespace, pod := k.Pod(); pod != "" {
		name = namespace + "/" + pod
	}
	if k.Endpoint != "eth0" {
		name += " (" + k.Endpoint + ")"
	}
	return name
}

// Find finds an end by a pod's <namespace>/<name>, its name alone if it is unique, a workload's name, the path of an endpoint's key,
// a host's name or an address. namespace, unless "", is the namespace of a pod named without one.
func (c *Cluster) Find(name, namespace string) (End, error) {
	addr, _ := netip.ParseAddr(name)
	var found []End
	add := func(e End, isNamed bool) {
		if addr.IsValid() && slices.Contains(e.Addrs, addr) {
			e.Addrs, isNamed = []netip.Addr{addr}, true
		}
		if isNamed {
			found = append(found, e)
		}
	}
	for k, w := range c.endpoints {
		of, pod := k.Pod()
		isPod := pod == name && pod != "" && (namespace == "" || namespace == of)
		isNamed := isPod || k.Workload == strings.Replace(name, "/", ".", 1) || k.Workload == name || k.Path() == name
		add(End{nameOf(k), of, pod, k, k.Host, w.Addrs(), w.Labels}, isNamed && !addr.IsValid())
	}
	for host, addrs := range c.hosts {
		add(End{Name: "host " + host, Host: host, Addrs: addrs}, host == name)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var names []string
		for _, e := range found {
			if e.Key != (model.WorkloadEndpointKey{}) {
				names = append(names, e.Key.Path())
			} else {
				names = append(names, e.Name)
			}
		}
		slices.Sort(names)
		return End{}, fmt.Errorf("%s may be any of these; give one of them: %s", name, strings.Join(names, ", "))
	case addr.IsValid() && addr.Zone() == "":
		return End{Name: addr.Unmap().String() + " (outside)", Addrs: []netip.Addr{addr.Unmap()}}, nil
	}
	return End{}, &NotFoundError{name}
}

// Names returns all names that Find knows, except paths and addresses.
func (c *Cluster) Names() []string {
	names := slices.Collect(maps.Keys(c.hosts))
	for k := range c.endpoints {
		namespace, pod := k.Pod()
		names = append(names, cmp.Or(strings.Trim(namespace+"/"+pod, "/"), k.Workload))
	}
	return names
}

// NotFoundError says that nothing has this name.
type NotFoundError struct{ Name string }

// Error says what a name may be.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%s: no pod <namespace>/<name>, workload or host has this name, and it is no address", e.Name)
}

// setting returns the value in etcd of a parameter of a host's agent, "" = not set, which means DROP or false.
func (c *Cluster) setting(host, name string) string {
	if own, ok := c.settings[model.HostConfigKey{Host: host, Name: name}]; ok {
		return own
	}
	return c.settings[model.GlobalConfigKey{Name: name}]
}

// state returns the policy state that the host's agent derives from etcd.
func (c *Cluster) state(host string) *policy.State {
	if c.states[host] == nil {
		engine := policy.NewEngine(host)
		engine.SetInterfaces(c.interfaces(host))
		engine.CloseMetrics(true)
		engine.Update(c.entries...)
		s := &policy.State{}
		_ = s.Apply(engine.Flush()) // the first changes of an engine always fit
		c.states[host] = s
	}
	return c.states[host]
}
