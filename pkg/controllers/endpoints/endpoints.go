// SPDX-License-Identifier: Apache-2.0

// Package endpoints keeps what workload endpoints have from their pods: labels, ports and profiles, and nothing else. It
// makes no endpoint and deletes none: those are the CNI plugin's.
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

// Prefix is what begins the paths of all endpoints. Update is to be told what is there.
const Prefix = model.Root + "v1/host/"

// orchestrator is that of pods' endpoints.
const orchestrator = "k8s"

// Spec is what an endpoint has from its pod.
type Spec struct {
	Labels   map[string]string    `json:"l,omitempty"`
	Ports    []model.EndpointPort `json:"p,omitempty"`
	Profiles []string             `json:"i,omitempty"`
}

// Pod is what is known of a pod.
type Pod struct {
	Namespace, Name string
	// UIDs are those by which its endpoints may know it.
	UIDs []string
	spec string   // a Spec as JSON: a third of the memory of its maps
	sum  [16]byte // of that
}

// NewPod says what the endpoints of a pod are to have.
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

// workload is what the pod's endpoints are called in etcd. No namespace has a dot.
func workload(namespace, name string) string { return namespace + "." + name }

// endpoint is what is known of one in etcd.
type endpoint struct {
	uid      string   // "" = no pod's that is known
	has      [16]byte // sum of its Spec
	profiles []string
}

// Keeper keeps them. Make one with New.
type Keeper struct {
	writer *writer.Writer

	mu        sync.Mutex
	pods      map[string]Pod
	endpoints map[string]map[model.WorkloadEndpointKey]endpoint
	users     map[string]int // of profiles
	read      bool           // endpoints are all that etcd holds
}

// New makes a keeper that knows nothing.
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

// Writer writes while this process leads.
func (k *Keeper) Writer() *writer.Writer { return k.writer }

// Set tells of a pod.
func (k *Keeper) Set(p Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := workload(p.Namespace, p.Name)
	k.pods[w] = p
	k.check(w)
}

// Remove tells that a pod is gone or finished. Its endpoint stays as it is until the plugin takes it away.
func (k *Keeper) Remove(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := workload(namespace, name)
	delete(k.pods, w)
	k.check(w)
}

// UIDs are those of a pod, none where it isn't known or is finished.
func (k *Keeper) UIDs(namespace, name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[workload(namespace, name)].UIDs
}

// Pods is how many are known.
func (k *Keeper) Pods() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pods)
}

// Uses reports whether an endpoint has the profile, as far as is known.
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
		var known endpoint // of an invalid one nothing
		if value, ok := e.Value.(model.WorkloadEndpoint); ok && e.Err == nil {
			known = endpointOf(value)
		}
		for _, p := range known.profiles {
			k.users[p]++
		}
		if _, good := k.judge(key.Workload, of[key]); good && of[key].uid == known.uid {
			k.writer.Spoiled(key) // check takes it back where it is as desired still
		}
		of[key] = known
	}
	for w := range changed {
		k.check(w)
	}
}

// endpointOf is what is known of an endpoint by its value.
func endpointOf(value model.WorkloadEndpoint) endpoint {
	e := endpoint{uid: strings.Clone(value.PodUID)}
	_, e.has = encode(Spec{Labels: value.Labels, Ports: value.Ports, Profiles: value.ProfileIDs})
	for _, p := range value.ProfileIDs {
		e.profiles = append(e.profiles, unique.Make(p).Value()) // many have the same
	}
	return e
}

// judge says whether an endpoint was written for the pod that there is, and then whether it has what it is to have from that. One
// that doesn't say for which was not.
func (k *Keeper) judge(w string, e endpoint) (ours, good bool) {
	pod := k.pods[w]
	ours = e.uid != "" && slices.Contains(pod.UIDs, e.uid)
	return ours, ours && e.has == pod.sum
}

// check has the writer look at the endpoints of a workload that aren't as desired.
func (k *Keeper) check(w string) {
	for key, e := range k.endpoints[w] {
		if ours, good := k.judge(w, e); ours && !good {
			k.writer.Dirty(key)
		} else {
			k.writer.Clean(key)
		}
	}
}

// Decide implements writer.Keeper: what etcd holds the writer has read anew.
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
