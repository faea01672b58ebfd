// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// living is an endpoint of the record whose container is there.
type living struct {
	key     model.WorkloadEndpointKey
	spec    model.WorkloadEndpoint
	network string
	handle  string
}

// present are the handles of all links that the plugin has made; whole: no link has a shortened one.
func (k *Keeper) present() (handles map[string]string, whole bool, err error) {
	links, err := k.Links()
	if err != nil {
		return nil, false, fmt.Errorf("list links: %w", err)
	}
	handles, whole = map[string]string{}, true
	for _, l := range links {
		if handle, ours := strings.CutPrefix(l.Alias, link.WorkloadAlias); ours {
			handles[handle] = l.Name
			whole = whole && !strings.HasPrefix(handle, "sha256:")
		}
	}
	return handles, whole, nil
}

// alive are the endpoints of the record whose links are there, with the containers' handles.
func (k *Keeper) alive(handles map[string]string) (all []living, err error) {
	for _, path := range slices.Sorted(maps.Keys(k.record.endpoints)) {
		parsed, keyErr := model.ParseKey(path)
		key, ok := parsed.(model.WorkloadEndpointKey)
		value, valueErr := model.ParseValue(parsed, k.record.endpoints[path].Value)
		spec, valid := value.(model.WorkloadEndpoint)
		if keyErr != nil || valueErr != nil || !ok || !valid {
			continue // of another version
		}
		if l, lives := find(handles, key, spec); lives {
			all = append(all, l)
		}
	}
	return all, nil
}

// find finds an endpoint's container by its link.
func find(handles map[string]string, key model.WorkloadEndpointKey, spec model.WorkloadEndpoint) (living, bool) {
	suffix := "." + spec.ContainerID + "." + key.Endpoint
	for handle, name := range handles {
		if network, is := strings.CutSuffix(handle, suffix); is && name == spec.Name {
			return living{key, spec, network, handle}, true
		}
	}
	return living{}, false
}

// enterAll enters what lives, and frees what etcd says that this host has and that doesn't. last: what can't have its address
// is entered without.
func (k *Keeper) enterAll(ctx context.Context, last bool) error {
	handles, whole, err := k.present()
	if err != nil {
		return err
	}
	all, err := k.alive(handles)
	if err != nil {
		return err
	}
	var errs []error
	if whole {
		errs = append(errs, k.freeDead(ctx, handles))
	}
	for _, l := range all {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, k.enter(ctx, l, last))
	}
	// Who was deleted meanwhile was not found by its DEL.
	if handles, _, err = k.present(); err != nil {
		return err
	}
	for _, l := range all {
		if handles[l.handle] == "" {
			errs = append(errs, k.free(ctx, l.handle, l.key))
		}
	}
	return errors.Join(errs...)
}

func (l living) request(now time.Time) ipam.Request {
	a := map[string]string{"node": l.key.Host, "network": l.network, "orchestrator": l.key.Orchestrator, "workload": l.key.Workload}
	if namespace, pod, ok := strings.Cut(l.key.Workload, "."); ok && l.key.Orchestrator == "k8s" {
		a["namespace"], a["pod"] = namespace, pod
	}
	return ipam.Request{Host: l.key.Host, Handle: l.handle, Attributes: a, Addrs: l.spec.Addrs(), Living: true, Now: now}
}

// enter writes one endpoint, with its addresses.
func (k *Keeper) enter(ctx context.Context, l living, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := l.request(time.Now())
	first := append(ipam.FirstRead(request), model.KeyRange(model.ReadyKey{}), model.KeyRange(l.key))
	profile := l.profile()
	for _, p := range profile {
		first = append(first, model.KeyRange(p.Key))
	}
	var without error
	wrote := false
	_, err := k.Etcd.Transact(ctx, first, func(v *model.View) (model.Change, error) {
		without, wrote = nil, false
		if v.Get(model.ReadyKey{}).Value != model.Ready(true) {
			return model.Change{}, errors.New(model.ReadyKey{}.Path() + " is not true")
		}
		p := ipam.NewPlan(v)
		old, _ := v.Get(l.key).Value.(model.WorkloadEndpoint)
		if old.ContainerID != "" && old.ContainerID != l.spec.ContainerID { // the pod's former sandbox
			if _, err := p.Release(l.network+"."+old.ContainerID+"."+l.key.Endpoint, request.Now); err != nil {
				return model.Change{}, err
			}
		}
		_, err := p.Assign(request)
		if _, more := errors.AsType[*model.NeedRangesError](err); more || err != nil && (!last || isTaken(err)) {
			return model.Change{}, err
		}
		without = err
		change := p.Change()
		if old.ContainerID != l.spec.ContainerID {
			change.Compares = append(change.Compares, v.Compare(l.key))
			change.Puts = append(change.Puts, model.Put{Key: l.key, Value: l.spec})
			change.Merge(missing(v, profile))
			wrote = true
		}
		return change, nil
	})
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", l.key.Path(), err)
	}
	if wrote {
		k.Entered()
		k.Logger.Info("a pod is entered again", "endpoint", l.key.Path(), "addresses", l.spec.Addrs())
	}
	if without != nil {
		return fmt.Errorf("endpoint %s is entered without its addresses being allocated: %w", l.key.Path(), without)
	}
	return nil
}

func isTaken(err error) bool {
	_, taken := errors.AsType[*ipam.TakenError](err)
	return taken
}

// profile is the network's own, which an ADD makes where no part of it is there.
func (l living) profile() []model.Put {
	if !slices.Contains(l.spec.ProfileIDs, l.network) {
		return nil
	}
	return model.NetworkProfile(l.network)
}

// missing are the puts where nothing of them is there.
func missing(v *model.View, puts []model.Put) (c model.Change) {
	for _, p := range puts {
		if v.Get(p.Key).Exists() {
			return model.Change{}
		}
		c.Compares, c.Puts = append(c.Compares, model.Compare{Key: p.Key}), append(c.Puts, p)
	}
	return c
}

// freeDead frees what etcd says that containers of this host have which aren't there: a backup is of a time before.
func (k *Keeper) freeDead(ctx context.Context, handles map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	blocks, err := k.blocks(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, cidr := range blocks {
		snapshot, err := k.Etcd.Read(ctx, model.KeyRange(model.BlockKey{CIDR: cidr}))
		if err != nil {
			return err
		}
		block, _ := snapshot.Get(model.BlockKey{CIDR: cidr})
		b, _ := block.Value.(model.Block)
		for _, at := range b.Attributes {
			rest, ok := strings.CutPrefix(at.HandleID, at.Secondary["network"]+".")
			if !ok || at.Secondary["node"] != k.Node || at.Secondary["workload"] == "" || handles[at.HandleID] != "" {
				continue
			}
			_, ifName, _ := strings.Cut(rest, ".")
			key := model.WorkloadEndpointKey{Host: k.Node, Orchestrator: at.Secondary["orchestrator"], Workload: at.Secondary["workload"], Endpoint: ifName}
			errs = append(errs, k.free(ctx, at.HandleID, key))
		}
	}
	return errors.Join(errs...)
}

// blocks are those that this host's containers may have addresses of: its own, and those of other hosts that its endpoints in
// etcd have addresses of.
func (k *Keeper) blocks(ctx context.Context) (all []netip.Prefix, err error) {
	names := func(v6 bool) model.Range { return model.Range{Prefix: model.BlockPrefix(v6), KeysOnly: true} }
	snapshot, err := k.Etcd.Read(ctx, model.Range{Prefix: model.AffinityPrefix(k.Node), KeysOnly: true},
		model.PrefixRange(model.WorkloadEndpointPrefix(k.Node)), names(false), names(true))
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, e := range snapshot.Entries() {
		if spec, ok := e.Value.(model.WorkloadEndpoint); ok {
			addrs = append(addrs, spec.Addrs()...)
		}
	}
	for _, e := range snapshot.Entries() {
		switch key := e.Key.(type) {
		case model.AffinityKey:
			all = append(all, key.CIDR)
		case model.BlockKey:
			if slices.ContainsFunc(addrs, key.CIDR.Contains) {
				all = append(all, key.CIDR)
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all), nil
}

// free gives back what a container has that is gone.
func (k *Keeper) free(ctx context.Context, handle string, key model.WorkloadEndpointKey) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var freed []netip.Addr
	_, err := k.Etcd.Transact(ctx, append(ipam.FirstReadRelease(handle), model.KeyRange(key)), func(v *model.View) (change model.Change, err error) {
		p := ipam.NewPlan(v)
		if freed, err = p.Release(handle, time.Now()); err != nil {
			return change, err
		}
		change = p.Change()
		spec, _ := v.Get(key).Value.(model.WorkloadEndpoint)
		if spec.ContainerID != "" && strings.HasSuffix(handle, "."+spec.ContainerID+"."+key.Endpoint) {
			change.Compares, change.Deletes = append(change.Compares, v.Compare(key)), append(change.Deletes, key)
		}
		return change, nil
	})
	if err != nil {
		return fmt.Errorf("free handle %s, whose container is gone: %w", handle, err)
	}
	if len(freed) > 0 {
		k.Logger.Info("addresses of a container that is gone are free", "handle", handle, "addresses", freed)
	}
	return nil
}
