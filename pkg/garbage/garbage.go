// SPDX-License-Identifier: Apache-2.0

// Package garbage decides what in etcd is left over of Kubernetes' pods and nodes that are gone: from what etcd holds and
// what live requests to the API said to the transactions that take it away, or the reason why it stays.
//
// It is pure. The caller reads FirstRead into a Survey and each host's ReadHost after it, asks the API for the pods and
// nodes that Questions names, and commits the steps of Decide, one transaction each. A step decides anew on what it reads: an
// address that found a new owner in between stays.
package garbage

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// PodGrace is how far apart the two looks must be that find no pod. Where the pod's host goes one look is enough.
	PodGrace = 15 * time.Minute
	// NodeGrace is for how long a Node must have been gone.
	NodeGrace = 5 * time.Minute
)

// orchestrator is that of the pods' endpoints.
const orchestrator = "k8s"

// Pod names a pod.
type Pod struct{ Namespace, Name string }

// String is as kubectl and people write it.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Look is what a live request to the API for one object said. No request that failed makes one.
type Look struct {
	At time.Time
	// Absent: there is no such object, or it is a pod whose phase is Failed or Succeeded. One that is finished holds nothing.
	Absent bool
	// UIDs are those of the object where it is there. A mirror pod has two: its own, and that of the static pod, by which
	// the kubelet and the runtime know it.
	UIDs []string
}

// Looks are the answers of one pass.
type Looks struct {
	Pods  map[Pod]Look
	Nodes map[string]Look
}

// Memory is what former passes have seen. The zero value has seen nothing; a process that starts anew loses no more than time.
type Memory struct {
	pods  map[string]time.Time // by handle: the first look that didn't find the pod
	nodes map[string]time.Time // by host: the same of its Node
	spare map[netip.Prefix]spare
}

// Returned forgets that a host's Node was seen to be gone.
func (m Memory) Returned(host string) { delete(m.nodes, host) }

// spare is a block that was seen to be empty.
type spare struct{ since, seen time.Time }

// Step is one transaction.
type Step struct {
	What string // for the log
	// Addrs are freed by it.
	Addrs []netip.Addr
	Reads []model.Range
	// Decide returns an empty change where there is nothing to do any more, and an error that wraps ErrLives where what
	// is to be taken away lives after all.
	Decide func(v *model.View) (model.Change, error)
}

// String is one line for people.
func (s Step) String() string {
	if len(s.Addrs) == 0 {
		return s.What
	}
	return fmt.Sprintf("%s: %v", s.What, s.Addrs)
}

// Departure is a host that goes.
type Departure struct {
	Host string
	Node model.KubernetesNode
	// Whole: with the last step the host is gone. Otherwise something of it stays, and only what is dead goes.
	Whole bool
	// Steps are to be done in order, and none after one that failed or once the Node has returned.
	Steps []Step
}

// Names are the Nodes that must stay away while the host goes.
func (d Departure) Names() []string { return nodeNames(d.Host, d.Node) }

// Kept is a candidate that stays, and why.
type Kept struct{ What, Why string }

// Decision is what follows from a pass.
type Decision struct {
	// Free gives back the addresses of pods whose hosts stay, Spare empty blocks; their order doesn't matter.
	Free, Spare []Step
	Hosts       []Departure
	// Kept are pods and hosts that seem to be gone and aren't taken away.
	Kept []Kept
	// Candidates counts addresses of pods that are gone or finished: those of Free, of Hosts and of Kept.
	Candidates int
	// Excess says why nothing is to be done before a person has looked; nil = do it. The rest says what would be.
	Excess *Excess
}
