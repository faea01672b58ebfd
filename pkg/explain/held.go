// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// Applied is a policy that applies to an endpoint.
type Applied struct {
	Tier     string   `json:"tier"`
	Name     string   `json:"name"`
	Order    *float64 `json:"order,omitempty"`
	Selector string   `json:"selector"`
	// About says which packets a host endpoint applies it to, if not those from and to the host itself.
	About string `json:"about,omitempty"`
}

// String returns its name and order, like "policy web (order 1)".
func (a Applied) String() string {
	text := policy.RulesID{Kind: policy.KindPolicy, Tier: a.Tier, Name: a.Name}.String()
	if a.Order != nil {
		text += fmt.Sprintf(" (order %v)", *a.Order)
	}
	if a.About != "" {
		text += " of " + a.About
	}
	return text
}

// Direction is what applies to an endpoint in one direction, in the order in which it is asked.
type Direction struct {
	Policies []Applied `json:"policies"`
	Passing  []string  `json:"passing,omitempty"` // tiers that pass on what none of their policies decides
	Profiles []string  `json:"profiles"`
}

// Held is everything that applies to an endpoint.
type Held struct {
	Endpoint string            `json:"endpoint"`
	Path     string            `json:"path"` // of its key
	Labels   map[string]string `json:"labels,omitempty"`
	Dropped  string            `json:"dropped,omitempty"` // why nothing passes, "" = it is active
	Ingress  Direction         `json:"ingress"`
	Egress   Direction         `json:"egress"`
}

// Held returns the policies and profiles that apply to an endpoint, or to the endpoints of a host itself.
func (c *Cluster) Held(e End) (all []Held) {
	if e.Key != (model.WorkloadEndpointKey{}) {
		return []Held{c.held(e.Host, e.Key.Path(), e.Labels)}
	}
	for _, l := range c.links[e.Host] {
		all = append(all, c.held(e.Host, l.key.Path(), l.Labels))
	}
	return all
}

func (c *Cluster) held(host, path string, labels map[string]string) Held {
	h := Held{Endpoint: c.name(path), Path: path, Labels: labels}
	if ep := c.state(host).Endpoints[path]; ep != nil {
		h.Dropped, h.Ingress, h.Egress = ep.Dropped, c.directionOf(ep, model.Inbound), c.directionOf(ep, model.Outbound)
	}
	return h
}

func (c *Cluster) directionOf(ep *policy.Endpoint, d model.Direction) Direction {
	v, untracked, early, forward := ep.Inbound, ep.UntrackedInbound, ep.PreDNAT, ep.ForwardInbound
	if d == model.Outbound {
		v, untracked, early, forward = ep.Outbound, ep.UntrackedOutbound, nil, ep.ForwardOutbound
	}
	out := Direction{Policies: []Applied{}, Passing: v.Passing, Profiles: []string{}}
	add := func(about string, ids []policy.RulesID) {
		for _, id := range ids {
			p := c.policies[id]
			out.Policies = append(out.Policies, Applied{id.Tier, id.Name, p.Order, p.Selector, about})
		}
	}
	add("untracked packets", untracked)
	add("packets before DNAT", early)
	add("forwarded packets", forward.Policies)
	add("", v.Policies)
	for _, id := range v.Profiles {
		out.Profiles = append(out.Profiles, id.Name)
	}
	return out
}
