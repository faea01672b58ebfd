// SPDX-License-Identifier: Apache-2.0

// Package hosts has each host's entry in etcd say which Node it is, and what labels that has; and where it is asked to, each
// have a host endpoint.
package hosts

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// Config is what a keeper works with; see writer.Config.
type Config struct {
	Etcd     writer.Etcd
	Problems *problems.Ledger
	Wrote    func(took time.Duration)
	Failed   func(k model.Key, err error)
	// Restored tells of a key of a Node that somebody else had changed or deleted, and that was written again.
	Restored func(node, uid string, k model.Key)
	// Endpoints: each Node has a host endpoint. Otherwise those that were made once are deleted.
	Endpoints bool
}

// Keeper keeps the entries. Make one with New.
type Keeper struct {
	writer    *writer.Writer
	endpoints bool

	mu      sync.Mutex
	nodes   map[string]string // their UIDs
	desired map[model.Key]any // what the API says
	actual  map[model.Key]any // what etcd says, of what can be read
}

// New makes a keeper that knows nothing.
func New(cfg Config) *Keeper {
	k := &Keeper{endpoints: cfg.Endpoints, nodes: map[string]string{}, desired: map[model.Key]any{}, actual: map[model.Key]any{}}
	k.writer = writer.New(writer.Config{
		Etcd: cfg.Etcd, Problems: cfg.Problems, What: "hosts", Owner: model.Key.Path, Decide: k.decide, Failed: cfg.Failed,
		Wrote: func(_ model.Key, took time.Duration) { cfg.Wrote(took) },
		Restored: func(key model.Key) {
			node := hostOf(key)
			k.mu.Lock()
			uid, there := k.nodes[node]
			k.mu.Unlock()
			if there {
				cfg.Restored(node, uid, key)
			}
		},
	})
	return k
}

func hostOf(key model.Key) string {
	if k, ok := key.(model.HostEndpointKey); ok {
		return k.Host
	}
	return key.(model.HostMetadataKey).Host
}

// Writer writes while this process leads.
func (k *Keeper) Writer() *writer.Writer { return k.writer }

// Set tells of a Node.
func (k *Keeper) Set(name, uid string, n kubepolicy.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[name] = uid
	k.desired[model.HostMetadataKey{Host: name}] = model.HostMetadata{Labels: n.Labels, Kubernetes: model.KubernetesNode{Name: name, UID: uid}}
	delete(k.desired, kubepolicy.NodeEndpointKey(name))
	if e, ok := kubepolicy.NodeEndpoint(n); ok && k.endpoints {
		k.desired[kubepolicy.NodeEndpointKey(name)] = e
	}
	k.check(keys(name)...)
}

// keys are those of a host.
func keys(name string) []model.Key {
	return []model.Key{model.HostMetadataKey{Host: name}, kubepolicy.NodeEndpointKey(name)}
}

// Remove tells that a Node is gone. What its host has in etcd stays until all of the host goes: see package garbage.
func (k *Keeper) Remove(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, name)
	for _, key := range keys(name) {
		delete(k.desired, key)
	}
	k.check(keys(name)...)
}

// Has reports whether a Node is known.
func (k *Keeper) Has(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, there := k.nodes[name]
	return there
}

// Update takes in what etcd holds.
func (k *Keeper) Update(u model.Update) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := map[model.Key]bool{}
	if u.Resync {
		clear(k.actual)
		for key := range k.desired {
			changed[key] = true
		}
	}
	for _, e := range u.Entries {
		switch key := e.Key.(type) {
		case model.HostMetadataKey:
		case model.HostEndpointKey:
			if key != kubepolicy.NodeEndpointKey(key.Host) {
				continue
			}
		default:
			continue
		}
		if want, ok := k.desired[e.Key]; ok && k.actual[e.Key] != nil && equal(want, k.actual[e.Key]) {
			k.writer.Spoiled(e.Key) // unless it is as desired still: see check
		}
		changed[e.Key] = true
		delete(k.actual, e.Key)
		if e.Exists() && e.Err == nil {
			k.actual[e.Key] = e.Value
		}
	}
	for key := range changed {
		k.check(key)
	}
}

// check has the writer look at keys that aren't as desired.
func (k *Keeper) check(keys ...model.Key) {
	for _, key := range keys {
		if write, remove := k.due(key, k.actual[key]); write || remove {
			k.writer.Dirty(key)
		} else {
			k.writer.Clean(key)
		}
	}
}

// due says what is to be done with a key that holds this, nil = nothing.
func (k *Keeper) due(key model.Key, has any) (write, remove bool) {
	if want, ok := k.desired[key]; ok {
		return has == nil || !equal(want, has), false
	}
	e, is := has.(model.HostEndpoint)
	return false, is && !k.endpoints && kubepolicy.IsNodeEndpoint(e)
}

func equal(a, b any) bool {
	one, err := model.FormatValue(a)
	other, err2 := model.FormatValue(b)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// decide is the writer's. What can't be read is not as desired.
func (k *Keeper) decide(_ context.Context, e model.Entry, key model.Key) (model.Change, error) {
	has := e.Value
	if e.Err != nil {
		has = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch write, remove := k.due(key, has); {
	case write:
		return model.Change{Puts: []model.Put{{Key: key, Value: k.desired[key]}}}, nil
	case remove:
		return model.Change{Deletes: []model.Key{key}}, nil
	}
	return model.Change{}, nil
}
