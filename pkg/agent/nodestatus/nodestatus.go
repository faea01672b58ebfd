// SPDX-License-Identifier: Apache-2.0

// Package nodestatus answers the CalicoNodeStatuses of the Kubernetes API that ask for this node.
package nodestatus

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/resource"
)

// defaultPeriod is how often an object's status is looked at that doesn't say how often.
const defaultPeriod = 10 * time.Second

// API is the Kubernetes API.
type API interface {
	// Watch passes on each object, and each change, until the context ends.
	Watch(ctx context.Context, h Handler) error
	// SetStatus replaces an object's status.
	SetStatus(ctx context.Context, name string, status resource.NodeStatus) error
}

// Handler takes in objects by name; nil = it is gone.
type Handler func(name string, o *Object)

// Object is a CalicoNodeStatus.
type Object struct {
	Spec   resource.CalicoNodeStatus `json:"spec"`
	Status resource.NodeStatus       `json:"status"`
}

// Node is what statuses are made of.
type Node struct {
	Version  string
	Started  time.Time
	Unready  func() string // "" = it is ready
	Describe func(context.Context) (debugstate.Router, plan.State)
}

// Keeper keeps the statuses of the objects for one node.
type Keeper struct {
	node     string
	api      API
	of       Node
	problems *problems.Ledger
	loop     *reconcile.Loop

	mu      sync.Mutex
	objects map[string]*Object
}

// New returns a Keeper for the node of that name.
func New(node string, api API, of Node, trouble *problems.Ledger) *Keeper {
	k := &Keeper{node: node, api: api, of: of, problems: trouble, objects: map[string]*Object{}}
	k.loop = reconcile.New(reconcile.Timing{}, k.round)
	return k
}

// Run keeps the statuses until the context ends. The error is always nil.
func (k *Keeper) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { _ = k.loop.Run(ctx) }) // the error is always nil
	defer all.Wait()
	return k.api.Watch(ctx, k.note)
}

func (k *Keeper) note(name string, o *Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, was := k.objects[name]
	is := o != nil && o.Spec.Node == k.node
	if delete(k.objects, name); is {
		k.objects[name] = o
	}
	if was || is {
		k.loop.Wake()
	}
}

// round brings the statuses up to date, and returns after which time one is to be looked at again.
func (k *Keeper) round(ctx context.Context) (again time.Duration, failed error) {
	k.mu.Lock()
	objects := maps.Clone(k.objects)
	k.mu.Unlock()
	for name, o := range objects {
		period := defaultPeriod
		if s := o.Spec.UpdatePeriodSeconds; s != nil {
			period = time.Duration(*s) * time.Second
		}
		if period == 0 {
			continue
		}
		if again == 0 || period < again {
			again = period
		}
		status := k.of.status(ctx, o.Spec.Classes)
		if status.LastUpdated = o.Status.LastUpdated; status.LastUpdated == "" || !reflect.DeepEqual(status, o.Status) {
			status.LastUpdated = time.Now().UTC().Format(time.RFC3339)
			if err := k.api.SetStatus(ctx, name, status); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			k.mu.Lock()
			if k.objects[name] == o { // else the watch has told of another
				k.objects[name] = &Object{o.Spec, status}
			}
			k.mu.Unlock()
		}
	}
	k.problems.Tell(problems.Host, "statuses of CalicoNodeStatuses", failed)
	return again, failed
}

// status returns the parts of the node's status.
func (n Node) status(ctx context.Context, classes []resource.NodeStatusClass) (s resource.NodeStatus) {
	router, planned := n.Describe(ctx)
	if slices.Contains(classes, resource.ClassAgent) {
		v4 := resource.SpeakerStatus{State: "Ready", Version: n.Version, LastBootTime: n.Started.UTC().Format(time.RFC3339)}
		if n.Unready() != "" {
			v4.State = "NotReady"
		}
		if id := planned.Speaker.RouterID; id.IsValid() {
			v4.RouterID = id.String()
		}
		s.Agent = &resource.AgentStatus{BIRDV4: v4}
		if slices.ContainsFunc(router.Peers, func(p debugstate.Peer) bool { return p.Address.Is6() }) {
			s.Agent.BIRDV6 = &v4
		}
	}
	if slices.Contains(classes, resource.ClassBGP) {
		s.BGP = sessions(router.Peers)
	}
	if slices.Contains(classes, resource.ClassRoutes) {
		s.Routes = routes(planned.Routes, router.Lacks)
	}
	return s
}

// kinds are the types of peers, by the kind of neighbour.
var kinds = map[plan.NeighbourKind]string{
	plan.FromMesh: "NodeMesh", plan.FromGlobal: "GlobalPeer", plan.FromOwn: "NodePeer", plan.FromReflects: "NodePeer", plan.FromBack: "NodePeer",
}

// states are what Calico calls a session's states; the others it doesn't have.
var states = map[string]string{bgp.Idle: "Idle", bgp.Connecting: "Connect", bgp.OpenSent: "OpenSent", bgp.OpenConfirm: "OpenConfirm", bgp.Established: "Established"}

func sessions(peers []debugstate.Peer) *resource.BGPStatus {
	s := &resource.BGPStatus{}
	for _, p := range slices.SortedFunc(slices.Values(peers), func(a, b debugstate.Peer) int { return a.Address.Compare(b.Address) }) {
		list, up, down := &s.PeersV4, &s.EstablishedV4, &s.NotEstablishedV4
		if p.Address.Is6() {
			list, up, down = &s.PeersV6, &s.EstablishedV6, &s.NotEstablishedV6
		}
		if p.State == bgp.Established {
			*up++
		} else {
			*down++
		}
		if len(*list) == resource.MostInNodeStatus {
			continue // the numbers tell
		}
		said := resource.PeerStatus{PeerIP: p.Address.String(), Type: kinds[plan.NeighbourKind(p.Kind)], State: cmp.Or(states[p.State], p.State)}
		if !p.Since.IsZero() {
			said.Since = p.Since.UTC().Format(time.RFC3339)
		}
		*list = append(*list, said)
	}
	return s
}

func routes(all map[netip.Prefix]plan.Route, lacks map[string]string) *resource.RouteStatus {
	s := &resource.RouteStatus{}
	for _, to := range slices.SortedFunc(maps.Keys(all), netip.Prefix.Compare) {
		list := &s.V4
		if to.Addr().Is6() {
			list = &s.V6
		}
		if len(*list) == resource.MostInNodeStatus {
			s.Omitted++
			continue
		}
		r := resource.NodeRoute{Type: "FIB", Destination: to.String(), LearnedFrom: resource.LearnedFrom{SourceType: "Static"}}
		if lacks[to.String()] != "" {
			r.Type = "RIB"
		}
		if all[to].Origin == plan.FromBGP {
			r.LearnedFrom.SourceType = "BGPPeer"
		}
		if hops := all[to].Hops; len(hops) > 0 {
			r.Interface = hops[0].Device
			if hops[0].Gateway.IsValid() {
				r.Gateway = hops[0].Gateway.String()
			}
		}
		*list = append(*list, r)
	}
	return s
}
