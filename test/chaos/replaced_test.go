// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// replacement is a lab whose etcd is taken away and replaced by another below running pods.
type replacement struct {
	*testing.T
	lab    *lab.Lab
	data   string // etcd's
	pods   []*lab.Pod
	others []string // handles of another main plugin's containers
}

// replacedPools are one block each: whoever is given an address in an empty etcd is given one in use.
var replacedPools = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/26"), netip.MustParsePrefix("fd88::/122")}

func newReplacement(t *testing.T) *replacement {
	t.Parallel()
	dir := t.TempDir()
	return &replacement{T: t, data: dir, lab: lab.ForTest(t, lab.Config{Hosts: []string{"one", "two"}, Pools: replacedPools, NoFsync: true, DataDir: dir})}
}

func (r *replacement) within() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	r.Cleanup(cancel)
	return ctx
}

// add adds pods to each host. Where it is refused it is tried again, as a runtime does.
func (r *replacement) add(name string, n int) {
	r.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	ctx := r.within()
	for _, h := range r.lab.Hosts() {
		all.Go(func() {
			for i := range n {
				for try := 0; ; try++ {
					p, err := h.AddPod(ctx, fmt.Sprintf("%s-%s-%d-%d", name, h.Name(), i, try), lab.PodConfig{})
					if err == nil {
						mu.Lock()
						r.pods = append(r.pods, p)
						mu.Unlock()
						break
					}
					if ctx.Err() != nil {
						r.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// addMacvlan has calico-ipam give addresses to a container of another main plugin, of which nothing else is known.
func (r *replacement) addMacvlan() {
	r.Helper()
	h := r.lab.Hosts()[0]
	conf := h.PluginConf()
	conf["cniVersion"], conf["name"], conf["type"] = "1.0.0", "other", "macvlan"
	stdin, err := json.Marshal(conf)
	if err != nil {
		r.Fatal(err)
	}
	_, err = h.CNI(r.within(), lab.Call{Plugin: "calico-ipam", Verb: "ADD", ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/c1", Stdin: stdin})
	if err != nil {
		r.Fatal(err)
	}
	r.others = append(r.others, "other.c1.eth0")
}

// older makes of a pod one that an older version of Calico made.
func (r *replacement) older(p *lab.Pod) {
	r.Helper()
	name := p.Result().Interfaces[0].Name
	if out, err := p.Host().Exec(r.within(), "ip", "link", "set", name, "alias", ""); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
}

// delete deletes a pod.
func (r *replacement) delete(i int) {
	r.Helper()
	if err := r.pods[i].Delete(r.within()); err != nil {
		r.Fatal(err)
	}
	r.pods = append(r.pods[:i], r.pods[i+1:]...)
}

// talk has each of the pods reach all others.
func (r *replacement) talk(when string, pods []*lab.Pod) {
	r.Helper()
	for i, p := range pods {
		if err := p.Ping(r.within(), pods[(i+1)%len(pods)]); err != nil {
			r.Errorf("%s: %s: %v", when, p.Name(), err)
		}
	}
}

// swap changes etcd's data while it doesn't run.
func (r *replacement) swap(change func(dir string) error) {
	r.Helper()
	if err := r.lab.Members().Kill(1); err != nil {
		r.Fatal(err)
	}
	if err := change(filepath.Join(r.data, "etcd1")); err != nil {
		r.Fatal(err)
	}
	if err := r.lab.Members().Start(r.within(), 1); err != nil {
		r.Fatal(err)
	}
}

// setUp does what is done for a new cluster.
func (r *replacement) setUp() {
	r.Helper()
	change := model.Change{Puts: []model.Put{
		{Key: model.ReadyKey{}, Value: model.Ready(true)},
		{Key: model.GlobalConfigKey{Name: "DefaultEndpointToHostAction"}, Value: model.Text("ACCEPT")},
	}}
	for _, c := range replacedPools {
		change.Puts = append(change.Puts, model.Put{Key: model.PoolKey{CIDR: c}, Value: model.Pool{CIDR: c, IPAM: true}})
	}
	if _, err := r.lab.Etcd().Commit(r.within(), change); err != nil {
		r.Fatal(err)
	}
}

// judge looks at what etcd holds in the end.
func (r *replacement) judge() {
	r.Helper()
	for _, h := range r.lab.Hosts() {
		if err := h.Agent().Wait(r.within()); err != nil {
			r.Fatal(err)
		}
	}
	entries, revision, err := r.lab.Dump(r.within())
	if err != nil {
		r.Fatal(err)
	}
	for _, v := range invariants.Check(entries) {
		r.Errorf("revision %d: %s", revision, v)
	}
	endpoints := map[string]model.WorkloadEndpoint{}
	var handles []string
	for _, e := range entries {
		switch v := e.Value.(type) {
		case model.WorkloadEndpoint:
			endpoints[v.ContainerID] = v
		case model.Handle:
			handles = append(handles, v.ID)
		}
	}
	if len(endpoints) != len(r.pods) || len(handles) != len(r.pods)+len(r.others) {
		r.Errorf("%d endpoints and handles %v in etcd, %d pods run, and of another plugin %v", len(endpoints), handles, len(r.pods), r.others)
	}
	for _, other := range r.others {
		if !slices.Contains(handles, other) {
			r.Errorf("handle %s was freed", other)
		}
	}
	owner := map[netip.Addr]string{}
	for _, p := range r.pods {
		if _, ok := endpoints[p.ContainerID()]; !ok {
			r.Errorf("pod %s isn't in etcd", p.Name())
		}
		for _, a := range p.Addrs() {
			if owner[a] != "" {
				r.Errorf("pods %s and %s have address %s", owner[a], p.Name(), a)
			}
			owner[a] = p.Name()
		}
	}
	r.talk("in the end", r.pods)
}

// TestEtcdMadeAnew empties etcd below running pods, one of which an older version of Calico made.
func TestEtcdMadeAnew(t *testing.T) {
	long.Test(t)
	r := newReplacement(t)
	r.add("old", 4)
	old := append([]*lab.Pod(nil), r.pods...)
	r.talk("before", old)
	r.older(old[0])
	r.swap(os.RemoveAll)
	r.talk("while etcd is empty", old)
	// Who runs the cluster sets it up again, while runtimes start pods already.
	var starting sync.WaitGroup
	starting.Go(func() { r.add("new", 3) })
	r.setUp()
	for range 5 {
		r.talk("while pods are entered", old)
	}
	starting.Wait()
	r.judge()
	r.delete(slices.Index(r.pods, old[0]))
	r.judge()
}

// TestEtcdRestored restores etcd from a backup of before some pods, and with others that have gone since.
func TestEtcdRestored(t *testing.T) {
	long.Test(t)
	r := newReplacement(t)
	r.add("old", 3)
	r.addMacvlan()
	backup := filepath.Join(t.TempDir(), "backup")
	r.swap(func(dir string) error { return os.CopyFS(backup, os.DirFS(dir)) })
	r.delete(0)
	r.delete(0)
	r.add("late", 3)
	old := append([]*lab.Pod(nil), r.pods...)
	r.talk("before", old)
	r.swap(func(dir string) error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(backup))
	})
	var starting sync.WaitGroup
	starting.Go(func() { r.add("new", 3) })
	for range 5 {
		r.talk("while pods are entered", old)
	}
	starting.Wait()
	r.judge()
}

// TestEtcdReplacedWhileDown empties etcd while no agent runs.
func TestEtcdReplacedWhileDown(t *testing.T) {
	long.Test(t)
	r := newReplacement(t)
	r.add("old", 3)
	for _, h := range r.lab.Hosts() {
		if err := h.Agent().Kill(); err != nil {
			t.Fatal(err)
		}
	}
	r.swap(os.RemoveAll)
	r.setUp()
	for _, h := range r.lab.Hosts() {
		if err := h.Agent().Launch(); err != nil {
			t.Fatal(err)
		}
	}
	r.add("new", 3)
	r.judge()
}
