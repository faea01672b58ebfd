// SPDX-License-Identifier: Apache-2.0

package garbage

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// ErrLives is in the chain of a step's error if what it should remove has changed since it was judged.
var ErrLives = errors.New("it has changed since")

// maxOps is how many keys of an unlimited kind one step deletes at most; etcd accepts 128.
const maxOps = 100

// free releases all addresses of a handle, with the endpoint that has them and the agent's report on it.
func (s *Survey) free(h *holding, now time.Time) Step {
	endpoints := model.WorkloadEndpointKey{Host: h.node(), Orchestrator: orchestrator, Workload: h.attributes["workload"]}
	reports := model.WorkloadStatusKey(endpoints)
	status, last := model.StatusKey{Host: h.node()}, model.LastStatusKey{Host: h.node()}
	// A pod may have several interfaces, whose keys have a common prefix.
	ours, reported := model.PrefixRange(endpoints.Path()), model.PrefixRange(reports.Path())
	return Step{
		What: "free the addresses of pod " + h.pod().String() + ", handle " + h.handle, Addrs: h.addrs,
		Reads: append(ipam.FirstReadRelease(h.handle), ours, reported, model.KeyRange(status), model.KeyRange(last)),
		Decide: func(v *model.View) (change model.Change, err error) {
			p := ipam.NewPlan(v)
			held, err := p.Held(h.handle)
			if err != nil {
				return change, err
			}
			if len(held) == 0 {
				return change, nil
			}
			for _, a := range held {
				if !slices.Contains(h.addrs, a.Addr) || !maps.Equal(a.Attributes, h.attributes) {
					return change, fmt.Errorf("handle %s has address %s now: %w", h.handle, a.Addr, ErrLives)
				}
			}
			freed, err := p.Release(h.handle, now)
			if err != nil {
				return change, err
			}
			change = p.Change()
			entries, _ := v.Read(ours)
			for _, e := range entries {
				err = errors.Join(err, takeEndpoint(v, h, e, freed, &change))
			}
			return change, err
		},
	}
}

// takeEndpoint deletes an endpoint that has the freed addresses.
func takeEndpoint(v *model.View, h *holding, e model.Entry, freed []netip.Addr, change *model.Change) error {
	key, known := e.Key.(model.WorkloadEndpointKey)
	spec, _ := e.Value.(model.WorkloadEndpoint)
	has := 0
	for _, a := range spec.Addrs() {
		if slices.Contains(freed, a) {
			has++
		}
	}
	if !known || has == 0 {
		return nil
	}
	if key != h.endpoint || spec.PodUID != h.uid || e.Path != key.Path() {
		return fmt.Errorf("endpoint %s has address %s: %w", e.Path, freed[0], ErrLives)
	}
	report := model.WorkloadStatusKey(key)
	up := v.Get(report).Value == model.EndpointUp
	if up && model.AgentLives(v.Get(model.StatusKey{Host: key.Host}).Exists(), v.Get(model.LastStatusKey{Host: key.Host}).Exists()) {
		return fmt.Errorf("the agent reports endpoint %s up: %w", e.Path, ErrLives)
	}
	if up { // by a dead agent, which must still be dead
		change.Compares = append(change.Compares, v.Compare(model.StatusKey{Host: key.Host}))
	}
	change.Compares = append(change.Compares, v.Compare(key), v.Compare(report))
	change.Deletes = append(change.Deletes, key)
	if v.Get(report).Exists() {
		change.Deletes = append(change.Deletes, report)
	}
	return nil
}

// giveBack deletes an empty block.
func giveBack(b model.Block) Step {
	return Step{
		What:  fmt.Sprintf("give back block %s of %s, which has been empty since %s", b.CIDR, b.Affinity, b.EmptySince.Format(time.RFC3339)),
		Reads: ipam.FirstReadGiveBackSpare(b.Affinity, b.CIDR),
		Decide: func(v *model.View) (model.Change, error) {
			p := ipam.NewPlan(v)
			if done, err := p.GiveBackSpare(b.Affinity, b.CIDR, b.EmptySince); err != nil || !done {
				return model.Change{}, err
			}
			return p.Change(), nil
		},
	}
}

// isTunnel reports whether a handle is for a host's own address: ours, or one like Calico's ipipTunnelAddress.
func (s *Survey) isTunnel(h *holding) bool {
	kind := h.attributes["type"]
	return kind == "tunnel-address" || strings.HasSuffix(kind, "TunnelAddress")
}

// departure returns the steps to remove a host: those with addresses first. For a host that can't go yet it removes
// only what is dead.
func (s *Survey) departure(h *host, dead []*holding, whole bool, now time.Time) Departure {
	d := Departure{Host: h.name, Node: h.node, Whole: whole}
	add := func(steps ...Step) {
		for _, step := range steps {
			d.Steps = append(d.Steps, h.whileGone(step))
		}
	}
	for _, holds := range dead {
		add(s.free(holds, now))
	}
	if !whole {
		return d
	}
	for _, handle := range slices.Sorted(maps.Keys(s.holdings)) {
		if holds := s.holdings[handle]; holds.node() == h.name && s.isTunnel(holds) {
			add(freeTunnel(h.name, holds, now))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(h.tunnels), func(a, b model.HostConfigKey) int { return strings.Compare(a.Name, b.Name) }) {
		add(freeUnnamed(k, h.tunnels[k], now))
	}
	for _, k := range h.bare {
		add(deleteKeys("delete endpoint "+k.Path(), model.KeyRange(k), model.KeyRange(model.WorkloadStatusKey(k))))
	}
	for _, c := range h.affinities {
		add(Step{What: "end the affinity of " + h.name + " to block " + c.String(), Reads: ipam.FirstReadGiveBack(c), Decide: func(v *model.View) (model.Change, error) {
			p := ipam.NewPlan(v)
			if err := p.Abandon(h.name, c); err != nil {
				return model.Change{}, err
			}
			return p.Change(), nil
		}})
	}
	add(withdraw(h.name))
	add(deleteKeys("delete the BGP settings of "+h.name, model.PrefixRange(model.BGPHostKey{Host: h.name}.Path())))
	add(deleteKeys("delete what the agent of "+h.name+" reported", model.PrefixRange(model.StatusPrefix(h.name))))
	add(deleteKeys("delete host "+h.name, model.KeyRange(model.HostMetadataKey{Host: h.name}), model.KeyRange(model.HostBirdIPKey{Host: h.name}),
		model.KeyRange(kubepolicy.NodeEndpointKey(h.name))))
	return d
}

// whileGone returns a step that is taken only while no agent reports and the host's entry is unchanged: an agent or a
// Node that returns stops it.
func (h *host) whileGone(step Step) Step {
	status, entry := model.StatusKey{Host: h.name}, model.HostMetadataKey{Host: h.name}
	decide := step.Decide
	step.Reads = append(step.Reads, model.KeyRange(status), model.KeyRange(entry))
	step.Decide = func(v *model.View) (model.Change, error) {
		if v.Get(status).Exists() || v.Get(entry).Revision != h.metadata.Revision {
			return model.Change{}, fmt.Errorf("host %s is back: %w", h.name, ErrLives)
		}
		change, err := decide(v)
		if err != nil || change.Empty() {
			return change, err
		}
		for _, k := range []model.Key{status, entry} {
			if !slices.ContainsFunc(change.Compares, func(c model.Compare) bool { return c.Key == k }) {
				change.Compares = append(change.Compares, v.Compare(k))
			}
		}
		return change, nil
	}
	return step
}

// freeTunnel releases a host's own address, and deletes the setting that has it.
func freeTunnel(name string, h *holding, now time.Time) Step {
	settings := model.PrefixRange(model.HostConfigKey{Host: name}.Path())
	return Step{
		What: "free the host's own address, handle " + h.handle, Addrs: h.addrs,
		Reads: append(ipam.FirstReadRelease(h.handle), settings),
		Decide: func(v *model.View) (model.Change, error) {
			p := ipam.NewPlan(v)
			freed, err := p.Release(h.handle, now)
			if err != nil || len(freed) == 0 {
				return model.Change{}, err
			}
			change := p.Change()
			entries, _ := v.Read(settings)
			for _, e := range entries {
				text, _ := e.Value.(model.Text)
				if a, err := netip.ParseAddr(string(text)); err == nil && slices.Contains(freed, a) {
					change.Compares, change.Deletes = append(change.Compares, v.Compare(e.Key)), append(change.Deletes, e.Key)
				}
			}
			return change, nil
		},
	}
}

// freeUnnamed releases a host's own address without a handle, with the setting that says whose it is.
func freeUnnamed(setting model.HostConfigKey, addr netip.Addr, now time.Time) Step {
	return Step{
		What: "free the host's own address " + addr.String(), Addrs: []netip.Addr{addr}, Reads: []model.Range{model.KeyRange(setting)},
		Decide: func(v *model.View) (model.Change, error) {
			if a, ok := tunnelAddr(v.Get(setting)); !ok || a != addr {
				return model.Change{}, nil
			}
			p := ipam.NewPlan(v)
			if handle, allocated, err := p.Holder(addr); err != nil || !allocated || handle != "" {
				return model.Change{}, err
			}
			if _, _, err := p.ReleaseAddr(addr, now); err != nil {
				return model.Change{}, err
			}
			change := p.Change()
			change.Compares, change.Deletes = append(change.Compares, v.Compare(setting)), append(change.Deletes, setting)
			return change, nil
		},
	}
}

// deleteKeys deletes all keys in the ranges.
func deleteKeys(what string, ranges ...model.Range) Step {
	return deleteThose(what, func(model.Key) bool { return true }, ranges...)
}

// withdraw deletes a host's endpoints of network services.
func withdraw(host string) Step {
	return deleteThose("withdraw network service endpoints of "+host, func(k model.Key) bool {
		e, is := k.(model.NetworkServiceEndpointKey)
		return is && e.Host == host
	}, model.PrefixRange(model.NetworkServiceEndpointPrefix()))
}

func deleteThose(what string, those func(model.Key) bool, ranges ...model.Range) Step {
	return Step{What: what, Reads: ranges, Decide: func(v *model.View) (change model.Change, err error) {
		for _, r := range ranges {
			entries, _ := v.Read(r)
			for _, e := range entries {
				if e.Key == nil || e.Path != e.Key.Path() || !those(e.Key) || len(change.Deletes) == maxOps {
					continue
				}
				change.Compares = append(change.Compares, model.Compare{Key: e.Key, Revision: e.Revision})
				change.Deletes = append(change.Deletes, e.Key)
			}
		}
		return change, nil
	}}
}
