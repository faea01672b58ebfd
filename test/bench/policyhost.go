// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	clusters "github.com/calico-go/calico/test/scale"
)

const (
	policyEndpoints = 1000
	policyPolicies  = 1000
)

// policyHost is a host with many endpoints, on which many policies apply: 10 of
// them to every endpoint, each other one to those of one application.
type policyHost struct {
	lab     *lab.Lab
	host    *lab.Host
	pods    lab.Namespace // the other end of every link
	etcd    *store.Client
	agent   int // PID
	cluster *clusters.Cluster
	scratch string
}

// newPolicyHost starts such a host, and waits until its firewall stands. The
// cluster has `more` further endpoints, which are not in etcd yet.
func (b *bench) newPolicyHost(ctx context.Context, name string, more int) (_ *policyHost, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return nil, err
	}
	n := policyEndpoints + more
	p := &policyHost{scratch: scratch, cluster: clusters.Make(clusters.Size{Endpoints: n, Local: n, Policies: policyPolicies, Profiles: 10})}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.lab, err = lab.Start(ctx, lab.Config{Name: name, Hosts: []string{clusters.Host}, BinDir: b.bin, DataDir: scratch, NoAgent: true})
	if err != nil {
		return nil, err
	}
	if p.host, err = p.lab.FindHost(clusters.Host); err != nil {
		return nil, err
	}
	if p.pods, err = p.lab.NewNamespace("pods"); err != nil {
		return nil, err
	}
	if p.etcd, err = p.lab.OpenEtcd(); err != nil {
		return nil, err
	}
	for i := range policyEndpoints {
		if err := p.link(i); err != nil {
			return nil, err
		}
	}
	// The lab lets pods talk to their hosts; this host has the defaults.
	if _, err := p.etcd.Commit(ctx, model.Change{Deletes: []model.Key{model.GlobalConfigKey{Name: "DefaultEndpointToHostAction"}}}); err != nil {
		return nil, err
	}
	var all []model.Entry
	for _, entries := range [][]model.Entry{p.cluster.Pools, p.cluster.Profiles, p.cluster.Policies, p.cluster.Endpoints[:policyEndpoints]} {
		all = append(all, entries...)
	}
	revision, err := p.put(ctx, all...)
	if err != nil {
		return nil, err
	}
	if err := p.host.Agent().Start(ctx); err != nil {
		return nil, err
	}
	agent, err := p.host.Agent().Process()
	if err != nil {
		return nil, err
	}
	p.agent = agent.PID
	if err := p.enforced(ctx, 0, revision); err != nil {
		return nil, err
	}
	return p, settle(ctx, p.agent)
}

func (p *policyHost) close() error {
	var err error
	if p.lab != nil {
		err = p.lab.Close()
	}
	return errors.Join(err, os.RemoveAll(p.scratch))
}

// link makes the interface of endpoint i.
func (p *policyHost) link(i int) error {
	return p.host.Do(func() error {
		ns, err := pod.OpenNamespace(p.pods.Path())
		if err != nil {
			return err
		}
		defer ns.Close()
		name := p.cluster.Endpoints[i].Value.(model.WorkloadEndpoint).Name
		_, _, err = pod.CreateVeth(ns, pod.Veth{HostName: name, PodName: fmt.Sprintf("eth%d", i), MTU: 1500, Alias: "bench"})
		return err
	})
}

// put writes entries to etcd and returns the revision of the last.
func (p *policyHost) put(ctx context.Context, entries ...model.Entry) (revision int64, err error) {
	for len(entries) > 0 {
		n := min(len(entries), 100)
		var change model.Change
		for _, e := range entries[:n] {
			change.Puts = append(change.Puts, model.Put{Key: e.Key, Value: e.Value})
		}
		if revision, err = p.etcd.Commit(ctx, change); err != nil {
			return 0, err
		}
		entries = entries[n:]
	}
	return revision, nil
}

// enforced waits until the gate says that endpoint i is connected and protected
// as etcd had it at a revision: what the kernel holds was read back.
func (p *policyHost) enforced(ctx context.Context, i int, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	key := p.cluster.Endpoints[i].Key.(model.WorkloadEndpointKey)
	return gate.Wait(ctx, p.host.AgentSocket(), gate.Request{Endpoint: key, Revision: revision})
}
