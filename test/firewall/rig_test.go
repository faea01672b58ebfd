// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// place is where packets come from or go to: a pod, the host, or outside.
type place struct {
	name  string
	ns    lab.Namespace
	addrs [2]netip.Addr // IPv4 and IPv6
	key   model.WorkloadEndpointKey
	pod   *lab.Pod
}

// at are the place's addresses with others in their stead.
func (p *place) at(name string, addrs ...netip.Addr) *place {
	q := *p
	q.name, q.addrs = name, [2]netip.Addr(addrs)
	return &q
}

// rig is a lab with one host, its agent, and a namespace outside that has
// routes to the pods.
type rig struct {
	*testing.T
	lab      *lab.Lab
	host     *lab.Host
	etcd     *clientv3.Client
	revision int64    // of the latest write
	written  []string // policies and profiles
	witness  *place   // a pod whose programming tells how far the agent is
	pods     []*place // all that were made
	self     *place   // the host
	outside  *place
}

// newRig makes a lab. The settings are FELIX_ variables.
func newRig(t *testing.T, settings ...string) *rig {
	t.Helper()
	return newRigIn(t, lab.Config{AgentEnv: settings})
}

func newHostileRig(t *testing.T) *rig {
	t.Helper()
	return newRigIn(t, lab.Config{Hostile: true})
}

func newRigIn(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	cfg.Hosts, cfg.NoFsync, cfg.Log = []string{"a"}, true, quiet{}
	l := lab.ForTest(t, cfg)
	c, err := clientv3.New(clientv3.Config{Endpoints: l.Members().Sockets(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	h := l.Host("a")
	r := &rig{T: t, lab: l, host: h, etcd: c,
		self:    &place{name: "the host", ns: h.Namespace(), addrs: [2]netip.Addr(h.Addrs())},
		outside: &place{name: "outside", ns: l.Fabric(), addrs: [2]netip.Addr{netip.MustParseAddr("172.20.0.1"), netip.MustParseAddr("fd00:fa:b::1")}},
	}
	r.routes("192.168.0.0/16", "fd80:24e2:f998:72d6::/64")
	for _, p := range []*place{r.self, r.outside} {
		r.until(p.name+" can ask for IPv6 neighbours", func() bool { return r.run(p, "ip", "-6", "addr", "show", "tentative") == "" })
	}
	return r
}

// quiet drops a lab's progress: there are many labs here.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }

// routes leads networks from outside to the host.
func (r *rig) routes(v4, v6 string) {
	r.Helper()
	r.run(r.outside, "ip", "route", "add", v4, "via", r.self.addrs[0].String())
	r.run(r.outside, "ip", "route", "add", v6, "via", r.self.addrs[1].String())
}

// run runs a command at a place.
func (r *rig) run(at *place, command string, args ...string) string {
	r.Helper()
	out, err := command1(r.Context(), at, command, args...)
	for range 20 { // nft gives up a dump that a change of any table interrupts
		if err == nil || !strings.Contains(err.Error(), "Interrupted system call") {
			break
		}
		out, err = command1(r.Context(), at, command, args...)
	}
	if err != nil {
		r.Fatal(err)
	}
	return out
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
	r.Cleanup(cancel)
	return ctx
}

// pod adds a pod with labels: {"role", "web"}, …
func (r *rig) pod(name string, labels ...[2]string) *place {
	r.Helper()
	p := r.place(r.host.Pod(name))
	if len(labels) > 0 {
		r.endpoint(p, func(e *model.WorkloadEndpoint) {
			e.Labels = map[string]string{}
			for _, l := range labels {
				e.Labels[l[0]] = l[1]
			}
		})
	}
	return p
}

// place finds a pod's endpoint.
func (r *rig) place(pod *lab.Pod) *place {
	r.Helper()
	p := &place{name: pod.Name(), ns: pod.Namespace(), addrs: [2]netip.Addr(pod.Addrs()), pod: pod}
	entries, err := r.lab.Etcd().Read(r.ctx(), model.PrefixRange(model.HostPrefix("a")))
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range entries.Entries() {
		if w, ok := e.Value.(model.WorkloadEndpoint); ok && w.ContainerID == pod.ContainerID() {
			p.key = e.Key.(model.WorkloadEndpointKey)
		}
	}
	if p.key.Workload == "" {
		r.Fatalf("pod %s has no endpoint", pod.Name())
	}
	r.witness, r.pods = p, append(r.pods, p)
	return p
}

// spec is a pod's endpoint in etcd.
func (r *rig) spec(p *place) model.WorkloadEndpoint {
	r.Helper()
	s, err := r.lab.Etcd().Read(r.ctx(), model.KeyRange(p.key))
	if err != nil {
		r.Fatal(err)
	}
	e, _ := s.Get(p.key)
	spec, ok := e.Value.(model.WorkloadEndpoint)
	if !ok {
		r.Fatalf("%s is %v", p.key.Path(), e.Err)
	}
	return spec
}

// endpoint changes a pod's endpoint in etcd, and returns what undoes it.
func (r *rig) endpoint(p *place, change func(*model.WorkloadEndpoint)) (undo func()) {
	r.Helper()
	before, after := r.spec(p), r.spec(p)
	write := func(spec model.WorkloadEndpoint) {
		r.Helper()
		var err error
		if r.revision, err = r.lab.Etcd().Commit(r.ctx(), model.Change{Puts: []model.Put{{Key: p.key, Value: spec}}}); err != nil {
			r.Fatal(err)
		}
	}
	change(&after)
	write(after)
	return func() { write(before) }
}

// put writes what a user would write with etcdctl.
func (r *rig) put(path, value string) {
	r.Helper()
	resp, err := r.etcd.Put(r.ctx(), path, value)
	if err != nil {
		r.Fatal(err)
	}
	r.revision = resp.Header.Revision
	r.written = append(r.written, path)
}

// value is what etcd has at a path.
func (r *rig) value(path string) string {
	r.Helper()
	resp, err := r.etcd.Get(r.ctx(), path)
	if err != nil || len(resp.Kvs) != 1 {
		r.Fatalf("%s: %v, %v", path, resp, err)
	}
	return string(resp.Kvs[0].Value)
}

func (r *rig) del(path string) {
	r.Helper()
	resp, err := r.etcd.Delete(r.ctx(), path)
	if err != nil {
		r.Fatal(err)
	}
	if resp.Deleted > 0 { // the revision is another's otherwise, of what the agent may not watch
		r.revision = resp.Header.Revision
	}
}

// The keys that are written here.
func policyPath(name string) string  { return "/calico/v1/policy/tier/default/policy/" + name }
func profilePath(name string) string { return "/calico/v1/policy/profile/" + name + "/rules" }
func hostPath(name string) string    { return "/calico/v1/host/a/endpoint/" + name }
func configPath(name string) string  { return "/calico/v1/config/" + name }

func (r *rig) policy(name, value string)  { r.Helper(); r.put(policyPath(name), value) }
func (r *rig) profile(name, value string) { r.Helper(); r.put(profilePath(name), value) }

// clear deletes all that put wrote.
func (r *rig) clear() {
	r.Helper()
	for _, path := range r.written {
		r.del(path)
	}
	r.written = nil
	r.enforced()
}

// enforced waits until the agent has read back all that was written.
func (r *rig) enforced() {
	r.Helper()
	err := gate.Wait(r.ctx(), r.host.AgentSocket(), gate.Request{Endpoint: r.witness.key, Revision: r.revision})
	if err != nil {
		r.Fatalf("the agent does not get to revision %d: %v", r.revision, err)
	}
	for _, p := range r.pods { // large chains of some come in a later turn than others'
		err := gate.Wait(r.ctx(), r.host.AgentSocket(), gate.Request{Endpoint: p.key, Revision: r.revision})
		if err != nil && !errors.As(err, new(*gate.RejectedError)) { // it is gone, or has no access
			r.Fatalf("pod %s is not programmed as of revision %d: %v", p.name, r.revision, err)
		}
	}
}

// until waits for a condition.
func (r *rig) until(what string, condition func() bool) {
	r.Helper()
	eventually.True(r, what, condition)
}
