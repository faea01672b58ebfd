// SPDX-License-Identifier: Apache-2.0

// Package garbage decides what in etcd is left over from Kubernetes pods and nodes that are gone. From the content of
// etcd and the answers of live requests to the API it derives the transactions that remove it, or the reason why it
// stays.
//
// It is pure. The caller reads FirstRead into a Survey and then each host's ReadHost, asks the API for the pods and
// nodes named by Questions, and commits the steps of Decide, one transaction each. A step decides again on what it
// reads: an address that got a new owner in between stays.
package garbage

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// PodGrace is the minimum time between two lookups that both find no pod. If the pod's host is removed, one is
	// enough.
	PodGrace = 15 * time.Minute
	// NodeGrace is how long a Node must have been gone.
	NodeGrace = 5 * time.Minute
)

// orchestrator is the orchestrator of the pods' endpoints.
const orchestrator = "k8s"

// Pod identifies a pod.
type Pod struct{ Namespace, Name string }

// String returns the pod as kubectl and people write it.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Look is the answer of a live request to the API for one object. A failed request yields none.
type Look struct {
	At time.Time
	// Absent says that there is no such object, or that it is a pod in phase Failed or Succeeded, which holds nothing.
	Absent bool
	// UIDs are those of an existing object. A mirror pod has two: its own, and that of the static pod, which the
	// kubelet and the runtime use.
	UIDs []string
}

// Looks are the answers in one pass.
type Looks struct {
	Pods  map[Pod]Look
	Nodes map[string]Look
}

// Memory is what former passes have seen. The zero value has seen nothing; a process that restarts loses only time.
type Memory struct {
	pods  map[string]time.Time // by handle: the first lookup that didn't find the pod
	nodes map[string]time.Time // by host: the same for its Node
	spare map[netip.Prefix]spare
}

// Returned forgets that a host's Node was seen to be gone.
func (m Memory) Returned(host string) { delete(m.nodes, host) }

// spare is a block that was seen empty.
type spare struct{ since, seen time.Time }

// Step is one transaction.
type Step struct {
	What string // for the log
	// Addrs are the addresses that it frees.
	Addrs []netip.Addr
	Reads []model.Range
	// Decide returns an empty change if there is nothing left to do, and an error that wraps ErrLives if what should be
	// removed is alive after all.
	Decide func(v *model.View) (model.Change, error)
}

// String returns the step as one line for people.
func (s Step) String() string {
	if len(s.Addrs) == 0 {
		return s.What
	}
	return fmt.Sprintf("%s: %v", s.What, s.Addrs)
}

// Departure is a host to remove.
type Departure struct {
	Host string
	Node model.KubernetesNode
	// Whole says that the last step removes the host. Otherwise something of it stays, and only what is dead is
	// removed.
	Whole bool
	// Steps must be done in order, but none after one that failed or after the Node has returned.
	Steps []Step
}

// Names returns the Nodes that must stay absent while the host is removed.
func (d Departure) Names() []string { return nodeNames(d.Host, d.Node) }

// Kept is a candidate that stays, and the reason.
type Kept struct{ What, Why string }

// Decision is the result of a pass.
type Decision struct {
	// Free releases the addresses of pods whose hosts stay, Spare releases empty blocks. Their order doesn't matter.
	Free, Spare []Step
	Hosts       []Departure
	// Kept are pods and hosts that seem to be gone but aren't removed.
	Kept []Kept
	// Candidates counts addresses of pods that are gone or finished: those of Free, of Hosts and of Kept.
	Candidates int
	// Excess, if not nil, says why nothing may be done before a person has looked. The rest says what would be done.
	Excess *Excess
}
