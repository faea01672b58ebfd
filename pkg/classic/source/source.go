// SPDX-License-Identifier: Apache-2.0

// Package source derives what the plugin of the 2014 APIs publishes from the content of etcd.
package source

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Source derives what the plugin publishes from the content of etcd: workload endpoints of the plugin's hosts become
// endpoints, profiles become security groups. What these APIs can't express is denied and reported.
type Source struct {
	prefix    string
	hosts     map[string]*policy.Engine // finds which endpoints of the host are selected by policies
	selected  map[string]string         // by path of an endpoint, a policy that selects it
	endpoints map[model.WorkloadEndpointKey]model.WorkloadEndpoint
	rules     map[string]model.Rules // of profiles, by name
	tags      map[string]model.Tags
}

// Prefixes returns the prefixes in etcd that a Source needs.
func Prefixes() []string { return []string{model.HostPrefix(""), model.PolicyPrefix()} }

// New returns the source for a plugin that serves these hosts, whose endpoints' interfaces have the prefix.
func New(hosts []string, prefix string) *Source {
	s := &Source{prefix: prefix, hosts: map[string]*policy.Engine{}}
	for _, h := range hosts {
		s.hosts[h] = nil
	}
	s.clear()
	return s
}

func (s *Source) clear() {
	for h := range s.hosts {
		s.hosts[h] = policy.NewEngine(h)
	}
	s.selected, s.endpoints = map[string]string{}, map[model.WorkloadEndpointKey]model.WorkloadEndpoint{}
	s.rules, s.tags = map[string]model.Rules{}, map[string]model.Tags{}
}

// Serves reports whether a host is one of the plugin's.
func (s *Source) Serves(host string) bool { return s.hosts[host] != nil }

// Take processes an update of etcd.
func (s *Source) Take(u model.Update) {
	if u.Resync {
		s.clear()
	}
	for _, e := range u.Entries {
		switch key := e.Key.(type) {
		case model.WorkloadEndpointKey:
			set(s.endpoints, key, e)
		case model.ProfileRulesKey:
			set(s.rules, key.Profile, e)
		case model.ProfileTagsKey:
			set(s.tags, key.Profile, e)
		}
	}
	for _, engine := range s.hosts {
		engine.Update(u.Entries...)
		for path, ep := range engine.Flush().Endpoints {
			delete(s.selected, path)
			if ep == nil {
				continue
			}
			if by := slices.Concat(ep.Inbound.Policies, ep.Outbound.Policies); len(by) > 0 {
				s.selected[path] = by[0].String()
			}
		}
	}
}

// set stores a readable value; an unreadable one denies, as if it didn't exist.
func set[K comparable, V any](all map[K]V, key K, e model.Entry) {
	if v, ok := e.Value.(V); ok && e.Err == nil {
		all[key] = v
	} else {
		delete(all, key)
	}
}

// World returns what to publish, and the problems of what can't be published.
func (s *Source) World() (w classic.World, problems map[string]error) {
	problems = map[string]error{}
	w = classic.World{Endpoints: map[string]map[string]classic.Endpoint{}, Groups: map[string]classic.Group{}}
	members := map[string]map[string][]netip.Addr{} // by profile
	closing := map[string]bool{}                    // profiles that deny what a later one might allow
	exported := map[string]classic.Rules{}
	for _, name := range slices.Sorted(maps.Keys(s.rules)) {
		rules, denies, told := s.export(s.rules[name])
		exported[name], closing[name] = rules, denies
		if len(told) > 0 {
			problems["profile "+name] = errors.Join(told...)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.endpoints), func(a, b model.WorkloadEndpointKey) int { return strings.Compare(a.Path(), b.Path()) }) {
		spec := s.endpoints[key]
		ep, err := s.endpoint(key, spec)
		if s.Serves(key.Host) {
			if err != nil {
				problems["endpoint "+key.Path()] = fmt.Errorf("it is not told: %w", err)
				continue
			}
			if w.Endpoints[key.Host] == nil {
				w.Endpoints[key.Host] = map[string]classic.Endpoint{}
			}
			w.Endpoints[key.Host][ep.ID] = ep
		}
		if by := s.selected[key.Path()]; by != "" {
			problems["endpoint "+key.Path()] = fmt.Errorf("it is closed: %s selects it, which these APIs can't express", by)
			continue
		}
		for _, name := range spec.ProfileIDs {
			if members[name] == nil {
				members[name] = map[string][]netip.Addr{}
			}
			members[name][ep.ID] = append(members[name][ep.ID], spec.Addrs()...)
			if _, there := s.rules[name]; closing[name] || !there {
				break
			}
		}
	}
	for name, of := range members {
		w.Groups[GroupID(name)] = classic.Group{Rules: exported[name], Members: of}
	}
	return w, problems
}

func (s *Source) endpoint(key model.WorkloadEndpointKey, spec model.WorkloadEndpoint) (classic.Endpoint, error) {
	ep := classic.Endpoint{ID: EndpointID(key), Interface: spec.Name, MAC: spec.MAC, Enabled: spec.State == model.StateActive}
	for _, a := range spec.Addrs() {
		gateway := spec.IPv4Gateway
		if a.Is6() {
			gateway = spec.IPv6Gateway
		}
		ep.Addrs = append(ep.Addrs, classic.Addr{Addr: a, Gateway: gateway})
	}
	switch {
	case !strings.HasPrefix(spec.Name, s.prefix):
		return ep, fmt.Errorf("its interface %s does not begin with %s (-interface-prefix)", spec.Name, s.prefix)
	case spec.MAC.IsZero():
		return ep, fmt.Errorf("it has no MAC address")
	}
	return ep, nil
}

// EndpointID returns the ID of an endpoint: the name of its key if that is a UUID, as in OpenStack, else one derived
// from it.
func EndpointID(key model.WorkloadEndpointKey) string {
	if isUUID(key.Endpoint) {
		return key.Endpoint
	}
	key.Host = "" // it may move to another host
	return named("endpoint", fmt.Sprintf("%q", key))
}

// GroupID returns the ID of a profile's group: its name if that is a UUID, else one derived from it.
func GroupID(profile string) string {
	if isUUID(profile) {
		return profile
	}
	return named("group", profile)
}

func isUUID(s string) bool {
	return len(s) == 36 && uuid.Validate(s) == nil
}

// space is the namespace of named's UUIDs of version 5 (RFC 9562, section 5.5).
var space = uuid.MustParse("9c7a3e5d-2184-4b0f-8e6a-53d7c21094bb")

// named returns the same UUID for the same name.
func named(kind, name string) string {
	return uuid.NewSHA1(space, []byte(kind+"\x00"+name)).String()
}
