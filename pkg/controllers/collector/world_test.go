// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

var (
	errAway   = errors.New("away")
	errKilled = errors.New("killed")
	errFenced = errors.New("another leads")
)

// world is an etcd, an API, and hosts with containers, as plain values. Anything may happen between two requests: see meanwhile.
type world struct {
	testing.TB
	revision int64
	keys     map[string]model.Entry
	now      time.Time
	pods     map[garbage.Pod]string // the API's: their UIDs
	nodes    map[string]string
	hosts    map[string]*machine
	serial   int

	apiAway, etcdAway bool
	meanwhile         func(by *controller)
	check             func(model.Change)
	before            map[string]model.Entry // by path: what the last change has changed
	collects          bool                   // … which was a collector's
}

// machine is a host.
type machine struct {
	name       string
	agent      bool
	silent     bool                  // it reports none of its endpoints
	containers map[string]*container // by handle
}

// container runs, whatever the API says.
type container struct {
	pod         garbage.Pod
	uid, handle string
	key         model.WorkloadEndpointKey
	addrs       []netip.Addr
}

func newWorld(t testing.TB) *world {
	w := &world{
		TB: t, keys: map[string]model.Entry{}, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), pods: map[garbage.Pod]string{}, nodes: map[string]string{},
		hosts: map[string]*machine{}, meanwhile: func(*controller) {}, check: func(model.Change) {},
	}
	for _, p := range []string{"10.0.0.0/24", "fd00::/120"} {
		c := netip.MustParsePrefix(p)
		w.put(model.PoolKey{CIDR: c}, model.Pool{CIDR: c, IPAM: true, BlockSize: c.Addr().BitLen() - 3})
	}
	return w
}

func (w *world) read(r model.Range) (out []model.Entry) {
	for _, path := range slices.Sorted(maps.Keys(w.keys)) {
		if r.Key != nil && path == r.Key.Path() || r.Key == nil && strings.HasPrefix(path, r.Prefix) && path >= r.From {
			e := w.keys[path]
			if r.KeysOnly {
				e.Value = nil
			}
			if out = append(out, e); r.Limit > 0 && int64(len(out)) == r.Limit {
				break
			}
		}
	}
	return out
}

func (w *world) get(k model.Key) model.Entry { return w.keys[k.Path()] }

// was returns what a key held before the last change.
func (w *world) was(k model.Key) model.Entry {
	if e, changed := w.before[k.Path()]; changed {
		return e
	}
	return w.get(k)
}

func keysOf(puts []model.Put) (keys []model.Key) {
	for _, p := range puts {
		keys = append(keys, p.Key)
	}
	return keys
}

// commit is etcd's commit: all or nothing. The invariants hold after each.
func (w *world) commit(c model.Change) error {
	for _, want := range c.Compares {
		if have := w.get(want.Key).Revision; have != want.Revision {
			return &store.ConflictError{Key: want.Key, Want: want.Revision, Have: have}
		}
	}
	if c.Empty() {
		return nil
	}
	w.before = map[string]model.Entry{}
	for _, k := range slices.Concat(c.Deletes, keysOf(c.Puts)) {
		w.before[k.Path()] = w.get(k)
	}
	w.revision++
	for _, p := range c.Puts {
		data, err := model.FormatValue(p.Value)
		if err != nil {
			w.Fatal(err)
		}
		value, err := model.ParseValue(p.Key, data)
		if err != nil {
			w.Fatal(err)
		}
		created := cmp.Or(w.get(p.Key).Created, w.revision)
		w.keys[p.Key.Path()] = model.Entry{Path: p.Key.Path(), Key: p.Key, Value: value, Revision: w.revision, Created: created}
	}
	for _, k := range c.Deletes {
		delete(w.keys, k.Path())
	}
	for _, v := range invariants.Check(slices.Collect(maps.Values(w.keys))) {
		w.Fatalf("revision %d: %s", w.revision, v)
	}
	w.check(c)
	return nil
}

func (w *world) put(k model.Key, value any) {
	if err := w.commit(model.Change{Puts: []model.Put{{Key: k, Value: value}}}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(keys ...model.Key) { _ = w.commit(model.Change{Deletes: keys}) }

// transact is store.Transact.
func (w *world) transact(by *controller, wants []model.Range, decide func(*model.View) (model.Change, error)) error {
	for range 1000 {
		v := model.NewView()
		for ranges := wants; ; {
			for _, r := range ranges {
				v.Add(r, w.revision, w.read(r))
			}
			change, err := decide(v)
			if need, more := errors.AsType[*model.NeedRangesError](err); more {
				ranges = need.Ranges
				continue
			}
			if err != nil {
				return err
			}
			w.meanwhile(by)
			if by != nil {
				if err := by.may(); err != nil {
					return err
				}
			}
			w.collects = by != nil
			err = w.commit(change)
			w.collects = false
			if err == nil {
				return nil
			}
			break
		}
	}
	w.Fatal("a transaction that never succeeds")
	return nil
}

// join makes a Node and its host, or brings them back.
func (w *world) join(name string) {
	w.serial++
	w.nodes[name] = fmt.Sprint("node-uid-", w.serial)
	if w.hosts[name] == nil {
		w.hosts[name] = &machine{name: name, containers: map[string]*container{}}
	}
	w.report(w.hosts[name], true)
}

// sync does what the node controller does for a Node.
func (w *world) sync(name string) {
	if uid := w.nodes[name]; uid != "" {
		m, _ := w.get(model.HostMetadataKey{Host: name}).Value.(model.HostMetadata)
		if want := (model.KubernetesNode{Name: name, UID: uid}); m.Kubernetes != want {
			w.put(model.HostMetadataKey{Host: name}, model.HostMetadata{Kubernetes: want})
		}
	}
}

// report makes an agent live and report the containers that it sees, or die, with its lease.
func (w *world) report(m *machine, lives bool) {
	status := model.StatusKey{Host: m.name}
	if !lives {
		m.agent = false
		w.remove(status)
		return
	}
	if !w.get(model.HostMetadataKey{Host: m.name}).Exists() {
		w.put(model.HostMetadataKey{Host: m.name}, model.HostMetadata{})
	}
	w.put(status, model.Status{Time: w.now})
	m.agent = true
	w.put(model.LastStatusKey{Host: m.name}, model.Status{Time: w.now})
	there := map[model.Key]bool{}
	for _, c := range m.containers {
		if w.get(c.key).Exists() && !m.silent {
			there[model.WorkloadStatusKey(c.key)] = true
			w.put(model.WorkloadStatusKey(c.key), model.EndpointUp)
		}
	}
	for _, e := range w.read(model.PrefixRange(model.WorkloadEndpointPrefix(m.name))) {
		if k, ok := e.Key.(model.WorkloadEndpointKey); ok && !there[model.WorkloadStatusKey(k)] && !m.silent {
			there[model.WorkloadStatusKey(k)] = true
			w.put(model.WorkloadStatusKey(k), model.EndpointDown)
		}
	}
	for _, e := range w.read(model.PrefixRange(model.WorkloadStatusKey{Host: m.name, Orchestrator: "k8s"}.Path()[:len(model.StatusPrefix(m.name)+"workload/k8s/")])) {
		if !there[e.Key] {
			w.remove(e.Key)
		}
	}
}

// run starts a pod: in the API, then on its host.
func (w *world) run(pod garbage.Pod, host string) *container {
	w.serial++
	c := &container{pod: pod, uid: fmt.Sprint("uid-", w.serial)}
	w.pods[pod] = c.uid
	m := w.hosts[host]
	id := fmt.Sprint("c", w.serial)
	c.handle, c.key = "net."+id+".eth0", model.WorkloadEndpointKey{Host: host, Orchestrator: "k8s", Workload: pod.Namespace + "." + pod.Name, Endpoint: "eth0"}
	request := ipam.Request{
		Host: host, Handle: c.handle, IPv4: true, IPv6: w.serial%2 == 0, Now: w.now,
		Attributes: map[string]string{"node": host, "network": "net", "orchestrator": "k8s", "workload": c.key.Workload, "namespace": pod.Namespace, "pod": pod.Name},
	}
	err := w.transact(nil, append(ipam.FirstRead(request), model.KeyRange(c.key)), func(v *model.View) (model.Change, error) {
		p := ipam.NewPlan(v)
		old, _ := v.Get(c.key).Value.(model.WorkloadEndpoint)
		if old.ContainerID != "" {
			if _, err := p.Release("net."+old.ContainerID+".eth0", w.now); err != nil {
				return model.Change{}, err
			}
		}
		choice, err := p.Assign(request)
		if err != nil {
			return model.Change{}, err
		}
		spec := model.WorkloadEndpoint{State: model.StateActive, Name: "cali" + id, MAC: model.MAC{2, 0, 0, 0, 0, 1}, ContainerID: id, PodUID: c.uid}
		c.addrs = nil
		for _, a := range choice.Addrs {
			c.addrs = append(c.addrs, a.Addr)
			if net := netip.PrefixFrom(a.Addr, a.Addr.BitLen()); a.Addr.Is4() {
				spec.IPv4Nets = append(spec.IPv4Nets, net)
			} else {
				spec.IPv6Nets = append(spec.IPv6Nets, net)
			}
		}
		change := p.Change()
		change.Compares = append(change.Compares, v.Compare(c.key))
		change.Puts = append(change.Puts, model.Put{Key: c.key, Value: spec})
		return change, nil
	})
	if _, full := errors.AsType[*ipam.ExhaustedError](err); full {
		delete(w.pods, pod)
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	m.containers[c.handle] = c
	if m.agent {
		w.report(m, true)
	}
	return c
}

// del runs a runtime's DEL of a container.
func (w *world) del(m *machine, c *container) {
	delete(m.containers, c.handle)
	err := w.transact(nil, append(ipam.FirstReadRelease(c.handle), model.KeyRange(c.key)), func(v *model.View) (model.Change, error) {
		p := ipam.NewPlan(v)
		if _, err := p.Release(c.handle, w.now); err != nil {
			return model.Change{}, err
		}
		change := p.Change()
		if spec, _ := v.Get(c.key).Value.(model.WorkloadEndpoint); "net."+spec.ContainerID+".eth0" == c.handle {
			change.Compares, change.Deletes = append(change.Compares, v.Compare(c.key)), append(change.Deletes, c.key)
		}
		return change, nil
	})
	if err != nil {
		w.Fatal(err)
	}
	if m.agent {
		w.report(m, true)
	}
}

// controller is one process of the controllers, until it is killed.
type controller struct {
	*world
	*Collector
	leads  func() bool
	killed bool
	in     bool                   // a transaction
	stale  map[garbage.Pod]string // what it has heard of
}

func (w *world) controller(leads func() bool) *controller {
	c := &controller{world: w, leads: leads}
	c.Collector = New(Config{Etcd: c, API: asker{c}, Known: watches{c}, Now: func() time.Time { return w.now }, Logger: discard})
	return c
}

// may returns an error if its requests don't reach etcd now.
func (c *controller) may() error {
	switch {
	case c.killed:
		return errKilled
	case c.etcdAway:
		return errAway
	case !c.leads():
		return errFenced
	}
	return nil
}

func (c *controller) Read(_ context.Context, ranges ...model.Range) (model.Snapshot, error) {
	c.meanwhile(c)
	if c.killed || c.etcdAway {
		return model.Snapshot{}, errAway
	}
	s := model.Snapshot{Revision: c.revision}
	for _, r := range ranges {
		s.Ranges = append(s.Ranges, c.read(r))
	}
	return s, nil
}

func (c *controller) Transact(_ context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), _ ...store.TransactOption) (int64, error) {
	if err := c.may(); err != nil {
		return 0, err
	}
	c.in = true
	err := c.transact(c, wants, decide)
	c.in = false
	return c.revision, err
}

func (c *controller) ask(uid string) (garbage.Look, error) {
	if c.killed || c.apiAway {
		return garbage.Look{}, errAway
	}
	if uid == "" {
		return garbage.Look{At: c.now, Absent: true}, nil
	}
	return garbage.Look{At: c.now, UIDs: []string{uid}}, nil
}

func (c *controller) podLook(p garbage.Pod) (garbage.Look, error) {
	c.meanwhile(c)
	return c.ask(c.pods[p])
}

func (c *controller) nodeLook(name string) (garbage.Look, error) {
	c.meanwhile(c)
	return c.ask(c.nodes[name])
}
