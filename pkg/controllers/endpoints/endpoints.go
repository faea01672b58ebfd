// SPDX-License-Identifier: Apache-2.0

// Package endpoints keeps those parts of workload endpoints that come from their pods up to date: labels, ports and profiles.
// It neither creates nor deletes endpoints: the CNI plugin does.
package endpoints

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/model"
)

// Prefix begins the paths of all endpoints. Update must be told what is there.
const Prefix = model.Root + "v1/host/"

// orchestrator is the orchestrator of pods' endpoints.
const orchestrator = "k8s"

// Spec is the part of an endpoint that comes from its pod.
type Spec struct {
	Labels   map[string]string    `json:"l,omitempty"`
	Ports    []model.EndpointPort `json:"p,omitempty"`
	Profiles []string             `json:"i,omitempty"`
}

// Pod is what the keeper knows of a pod.
type Pod struct {
	Namespace, Name string
	// UIDs are the UIDs under which its endpoints may know it.
	UIDs []string
	spec string   // a Spec as JSON: a third of the memory of its maps
	sum  [16]byte // of spec
}

// NewPod returns a pod whose endpoints should have the Spec s.
func NewPod(namespace, name string, uids []string, s Spec) Pod {
	spec, sum := encode(s)
	return Pod{Namespace: namespace, Name: name, UIDs: uids, spec: string(spec), sum: sum}
}

func encode(s Spec) (data []byte, sum [16]byte) {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts and numbers
	}
	all := sha256.Sum256(data)
	return data, [16]byte(all[:16])
}

// workload returns the name of the pod's endpoints in etcd. No namespace has a dot.
func workload(namespace, name string) string { return namespace + "." + name }

// endpoint is what the keeper knows of an endpoint in etcd.
type endpoint struct {
	uid      string   // "" = of no known pod
	has      [16]byte // sum of its Spec
	profiles []string
}

// Keeper keeps endpoints up to date. Make one with New.
type Keeper struct {
	writer *writer.Writer

	mu        sync.Mutex
	pods      map[string]Pod
	endpoints map[string]map[model.WorkloadEndpointKey]endpoint
	users     map[string]int // by profile, how many endpoints use it
	read      bool           // endpoints holds all that etcd has
}

// New returns a keeper that knows nothing yet.
func New(cfg writer.Config) *Keeper {
	k := &Keeper{pods: map[string]Pod{}, endpoints: map[string]map[model.WorkloadEndpointKey]endpoint{}, users: map[string]int{}}
	k.writer = writer.New(cfg, k)
	return k
}

// Owner implements writer.Keeper.
func (k *Keeper) Owner(key model.Key) string { return key.Path() }

// Of implements writer.Keeper.
func (k *Keeper) Of(key model.Key) (of writer.Object, made bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod, there := k.pods[key.(model.WorkloadEndpointKey).Workload]
	of = writer.Object{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	if there {
		of.UID = pod.UIDs[0]
	}
	return of, there
}

// Writer returns the writer, which should run while this process leads.
func (k *Keeper) Writer() *writer.Writer { return k.writer }

// Set adds or replaces a pod.
func (k *Keeper) Set(p Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := workload(p.Namespace, p.Name)
	k.pods[w] = p
	k.check(w)
}

// Remove removes a pod that is gone or finished. Its endpoint stays as it is until the plugin deletes it.
func (k *Keeper) Remove(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := workload(namespace, name)
	delete(k.pods, w)
	k.check(w)
}

// UIDs returns the UIDs of a pod, nil if it isn't known or is finished.
func (k *Keeper) UIDs(namespace, name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[workload(namespace, name)].UIDs
}

// Pods returns how many pods are known.
func (k *Keeper) Pods() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pods)
}

// Uses reports whether an endpoint uses the profile. It returns true until all endpoints are known.
func (k *Keeper) Uses(profile string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.read || k.users[profile] > 0
}

// Update takes in what etcd holds.
func (k *Keeper) Update(u model.Update) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.Resync {
		k.read = true
		clear(k.endpoints)
		clear(k.users)
	}
	changed := map[string]bool{}
	for _, e := range u.Entries {
		key, ok := e.Key.(model.WorkloadEndpointKey)
		if !ok || key.Orchestrator != orchestrator {
			continue
		}
		changed[key.Workload] = true
		of := k.endpoints[key.Workload]
		for _, p := range of[key].profiles {
			if k.users[p]--; k.users[p] == 0 {
				delete(k.users, p)
			}
		}
		if !e.Exists() {
			if delete(of, key); len(of) == 0 {
				delete(k.endpoints, key.Workload)
			}
			continue
		}
		if of == nil {
			of = make(map[model.WorkloadEndpointKey]endpoint, 1)
			k.endpoints[key.Workload] = of
		}
		var known endpoint // stays empty for an invalid endpoint
		if value, ok := e.Value.(model.WorkloadEndpoint); ok && e.Err == nil {
			known = endpointOf(value)
		}
		for _, p := range known.profiles {
			k.users[p]++
		}
		if _, good := k.judge(key.Workload, of[key]); good && of[key].uid == known.uid {
			k.writer.Spoiled(key) // check undoes this if the key is still as desired
		}
		of[key] = known
	}
	for w := range changed {
		k.check(w)
	}
}

// endpointOf returns what is kept of an endpoint.
func endpointOf(value model.WorkloadEndpoint) endpoint {
	e := endpoint{uid: strings.Clone(value.PodUID)}
	_, e.has = encode(Spec{Labels: value.Labels, Ports: value.Ports, Profiles: value.ProfileIDs})
	for _, p := range value.ProfileIDs {
		e.profiles = append(e.profiles, unique.Make(p).Value()) // many have the same
	}
	return e
}

// judge reports whether an endpoint was written for the present pod of the workload (ours), and whether it has that pod's Spec
// (good). An endpoint without a UID is not ours.
func (k *Keeper) judge(w string, e endpoint) (ours, good bool) {
	pod := k.pods[w]
	ours = e.uid != "" && slices.Contains(pod.UIDs, e.uid)
	return ours, ours && e.has == pod.sum
}

// check queues the endpoints of a workload that aren't as desired for the writer.
func (k *Keeper) check(w string) {
	for key, e := range k.endpoints[w] {
		if ours, good := k.judge(w, e); ours && !good {
			k.writer.Dirty(key)
		} else {
			k.writer.Clean(key)
		}
	}
}

// Decide implements writer.Keeper. The writer has just read e from etcd.
func (k *Keeper) Decide(_ context.Context, e model.Entry, key model.Key) (model.Change, error) {
	value, ok := e.Value.(model.WorkloadEndpoint)
	if !ok || e.Err != nil {
		return model.Change{}, nil // it is gone, or the plugin's to mend
	}
	w := key.(model.WorkloadEndpointKey).Workload
	k.mu.Lock()
	pod := k.pods[w]
	ours, good := k.judge(w, endpointOf(value))
	k.mu.Unlock()
	if !ours || good {
		return model.Change{}, nil // the pod that it was written for is gone, or isn't known yet
	}
	var s Spec
	if err := json.Unmarshal([]byte(pod.spec), &s); err != nil {
		return model.Change{}, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	value.Labels, value.Ports, value.ProfileIDs = s.Labels, s.Ports, s.Profiles
	if _, err := model.FormatValue(value); err != nil {
		return model.Change{}, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return model.Change{Puts: []model.Put{{Key: key, Value: value}}}, nil
}
