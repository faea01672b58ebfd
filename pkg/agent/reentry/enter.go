// SPDX-License-Identifier: Apache-2.0

package reentry

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
	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// living is a recorded endpoint whose container exists.
type living struct {
	key     model.WorkloadEndpointKey
	spec    model.WorkloadEndpoint
	network string // "" if its link doesn't say
	handle  string
}

func (k *Pods) listLinks() ([]link.Link, error) {
	links, err := k.Links()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return links, nil
}

// alive returns the recorded endpoints whose links exist, with the containers' handles.
func (k *Pods) alive(links []link.Link) (all []living) {
	for _, path := range slices.Sorted(maps.Keys(k.record.endpoints)) {
		parsed, keyErr := model.ParseKey(path)
		key, ok := parsed.(model.WorkloadEndpointKey)
		value, valueErr := model.ParseValue(parsed, k.record.endpoints[path].Value)
		spec, valid := value.(model.WorkloadEndpoint)
		if keyErr != nil || valueErr != nil || !ok || !valid {
			continue // written by another version
		}
		if l, lives := k.find(links, key, spec); lives {
			all = append(all, l)
		}
	}
	return all
}

// find finds an endpoint's container by its link, whose alias has the handle. A link that an older version of Calico created has none: it
// is recognized by the endpoint's name and the host's routes to its addresses. Of the handles that those versions used, find returns the
// container's id, which DEL finds without a network.
func (k *Pods) find(links []link.Link, key model.WorkloadEndpointKey, spec model.WorkloadEndpoint) (living, bool) {
	for _, l := range links {
		if l.Name != spec.Name || spec.ContainerID == "" {
			continue
		}
		handle, ours := strings.CutPrefix(l.Alias, link.WorkloadAlias)
		if network, is := strings.CutSuffix(handle, "."+spec.ContainerID+"."+key.Endpoint); ours && is {
			return living{key, spec, network, handle}, true
		}
		if l.IsUnnamed() && k.LeadsTo(l, spec.Addrs()) {
			return living{key, spec, "", spec.ContainerID}, true
		}
	}
	return living{}, false
}

// enterAll enters the living endpoints, and frees those of this host in etcd whose containers don't exist. If last is set, an endpoint that
// can't have its address is entered without it. left are those that are not as they should be.
func (k *Pods) enterAll(ctx context.Context, last bool) (left []living, err error) {
	freed := k.freeDead(ctx)
	links, err := k.listLinks()
	if err != nil {
		return nil, err
	}
	left, err = k.enterEach(ctx, k.alive(links), last)
	return left, errors.Join(freed, err)
}

// enterEach enters some endpoints.
func (k *Pods) enterEach(ctx context.Context, all []living, last bool) (left []living, err error) {
	var errs []error
	for _, l := range all {
		if err := k.enter(ctx, l, last); err != nil {
			left, errs = append(left, l), append(errs, err)
		}
	}
	// The DEL of a container deleted meanwhile found nothing in etcd.
	links, err := k.listLinks()
	for _, l := range all {
		if err == nil && isGone(links, l.key, l.spec) {
			errs = append(errs, k.free(ctx, l.key, l.spec.ContainerID))
		}
	}
	return left, errors.Join(append(errs, err)...)
}

func (l living) request(now time.Time) ipam.Request {
	a := map[string]string{"node": l.key.Host, "orchestrator": l.key.Orchestrator, "workload": l.key.Workload, "interface": l.key.Endpoint}
	if l.network != "" {
		a["network"] = l.network
	}
	if namespace, pod, ok := strings.Cut(l.key.Workload, "."); ok && l.key.Orchestrator == "k8s" {
		a["namespace"], a["pod"] = namespace, pod
	}
	return ipam.Request{Host: l.key.Host, Handle: l.handle, Attributes: a, Addrs: l.spec.Addrs(), Living: true, Now: now}
}

// assign allocates those wanted addresses of the endpoint that no other handle of it has: versions of Calico used different handles.
func (l living) assign(p *ipam.Plan, wanted func(netip.Addr) bool) error {
	request := l.request(time.Now())
	var addrs []netip.Addr
	for _, a := range request.Addrs {
		handle, allocated, err := p.Holder(a)
		if err != nil {
			return err
		}
		if wanted(a) && !(allocated && handle != l.handle && invariants.IsHandle(handle, l.key, l.spec)) {
			addrs = append(addrs, a)
		}
	}
	if request.Addrs = addrs; len(addrs) == 0 {
		return nil
	}
	_, err := p.Assign(request)
	return err
}

// enter writes one endpoint, with its addresses.
func (k *Pods) enter(ctx context.Context, l living, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	first := append(ipam.FirstRead(l.request(time.Now())), model.KeyRange(model.ReadyKey{}), model.KeyRange(l.key))
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
		if old.ContainerID != "" && old.ContainerID != l.spec.ContainerID { // the pod's former sandbox, or its next
			links, err := k.listLinks()
			if _, lives := k.find(links, l.key, old); err != nil || lives {
				return model.Change{}, err
			}
			if _, err := release(p, l.key, old); err != nil {
				return model.Change{}, err
			}
		}
		pools, _ := v.Read(model.PrefixRange(model.PoolPrefix()))
		err := l.assign(p, func(a netip.Addr) bool { return isPooled(pools, a) })
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
		k.Entered.Inc()
		k.Logger.Info("a pod is entered again", "endpoint", l.key.Path(), "addresses", l.spec.Addrs())
	}
	if without != nil {
		return fmt.Errorf("endpoint %s is entered without its addresses being allocated: %w", l.key.Path(), without)
	}
	return nil
}

// isPooled reports whether a pool contains the address. Otherwise another IPAM plugin manages it.
func isPooled(pools []model.Entry, a netip.Addr) bool {
	return slices.ContainsFunc(pools, func(e model.Entry) bool {
		key, ok := e.Key.(model.PoolKey)
		return ok && key.CIDR.Contains(a)
	})
}

func isTaken(err error) bool {
	_, taken := errors.AsType[*ipam.TakenError](err)
	return taken
}

// profile returns the network's own profile, which an ADD creates unless part of it exists.
func (l living) profile() []model.Put {
	if !slices.Contains(l.spec.ProfileIDs, l.network) {
		return nil
	}
	return model.NetworkProfile(l.network)
}

// missing returns a change that makes all puts, unless one of their keys exists.
func missing(v *model.View, puts []model.Put) (c model.Change) {
	for _, p := range puts {
		if v.Get(p.Key).Exists() {
			return model.Change{}
		}
		c.Compares, c.Puts = append(c.Compares, model.Compare{Key: p.Key}), append(c.Puts, p)
	}
	return c
}

// freeDead deletes the endpoints in etcd whose containers of the plugin calico don't exist: a backup is older than their deletion. What
// other main plugins got from calico-ipam has no endpoint, and no link of ours would tell whether it lives: their DEL and GC free it.
func (k *Pods) freeDead(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	snapshot, err := k.Etcd.Read(reading, model.PrefixRange(model.WorkloadEndpointPrefix(k.Node)))
	if err != nil {
		return err
	}
	links, err := k.listLinks()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range snapshot.Entries() {
		key, _ := e.Key.(model.WorkloadEndpointKey)
		if spec, ok := e.Value.(model.WorkloadEndpoint); ok && spec.ContainerID != "" && isGone(links, key, spec) {
			errs = append(errs, k.free(ctx, key, spec.ContainerID))
		}
	}
	return errors.Join(errs...)
}

// isGone reports that no link is the container's: none has the endpoint's name, unless it is another container's, or the container's
// handle.
func isGone(links []link.Link, key model.WorkloadEndpointKey, spec model.WorkloadEndpoint) bool {
	suffix := "." + spec.ContainerID + "." + key.Endpoint
	return !slices.ContainsFunc(links, func(l link.Link) bool {
		return l.Name == spec.Name && !link.IsAnothers(l.Alias, spec.ContainerID) || strings.HasSuffix(l.Alias, suffix)
	})
}

// free deletes the endpoint of a container that is gone, and its addresses.
func (k *Pods) free(ctx context.Context, key model.WorkloadEndpointKey, container string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var freed []netip.Addr
	_, err := k.Etcd.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (change model.Change, err error) {
		freed = nil
		spec, _ := v.Get(key).Value.(model.WorkloadEndpoint)
		if spec.ContainerID != container {
			return change, nil
		}
		p := ipam.NewPlan(v)
		if freed, err = release(p, key, spec); err != nil {
			return change, err
		}
		change = p.Change()
		change.Compares, change.Deletes = append(change.Compares, v.Compare(key)), append(change.Deletes, key)
		return change, nil
	})
	if err != nil {
		return fmt.Errorf("free endpoint %s, whose container %s is gone: %w", key.Path(), container, err)
	}
	k.Logger.Info("the endpoint of a container that is gone is deleted", "endpoint", key.Path(), "container", container, "freed", freed)
	return nil
}

// release frees those of an endpoint's addresses that are allocated to it.
func release(p *ipam.Plan, key model.WorkloadEndpointKey, spec model.WorkloadEndpoint) (freed []netip.Addr, err error) {
	for _, a := range spec.Addrs() {
		handle, allocated, err := p.Holder(a)
		if err != nil {
			return nil, err
		}
		if !allocated || !invariants.IsHandle(handle, key, spec) {
			continue
		}
		if _, _, err := p.ReleaseAddr(a, time.Now()); err != nil {
			return nil, err
		}
		freed = append(freed, a)
	}
	return freed, nil
}
