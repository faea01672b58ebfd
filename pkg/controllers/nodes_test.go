// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-go/calico/pkg/controllers/invalid"
	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
	"github.com/calico-go/calico/test/keeper"
)

// nodes wraps the keeper of what hosts have in etcd.
type nodes struct {
	*controllers
	*etcd.Server
	*keeper.Running

	mu       sync.Mutex
	restored []string
}

// updated passes a keeper the part of updates that belongs to Nodes.
type updated struct{ *owned.Keeper }

func (k updated) Update(u model.Update) { k.Keeper.Update(ofNodes(u)) }

func newNodes(s *etcd.Server, protected ...model.Port) *nodes {
	log := slog.New(slog.DiscardHandler)
	ledger := problems.New(log)
	n := &nodes{Server: s, controllers: &controllers{
		cfg: Config{Enabled: map[string]bool{Nodes: true}, ProtectedPorts: protected}, log: log, invalid: invalid.New(log, nil, ledger),
	}}
	n.hosts = n.newHosts(writer.Config{Etcd: s.Store, Problems: ledger, Reporter: n})
	n.Running = keeper.Run(s, updated{n.hosts}, model.HostPrefix(""))
	return n
}

func (n *nodes) Wrote(writer.Object, time.Duration) {}

func (n *nodes) Failed(of writer.Object, k model.Key, err error) {
	n.Errorf("%v: %s: %v", of, k.Path(), err)
}

func (n *nodes) Restored(of writer.Object, k model.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.restored = append(n.restored, fmt.Sprint(of, " ", k.Path()))
}

// node reports a Node, with or without an address.
func (n *nodes) node(name, addr string, labels map[string]string) {
	of := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels}}
	if addr != "" {
		of.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
	}
	if wrong := n.setIn(n.hosts, n.keepNode(of).translation); len(wrong) > 0 {
		n.Errorf("%s: %v", name, wrong)
	}
}

func (n *nodes) holds(key model.Key, want any) {
	n.Helper()
	eventually.Nil(n.Server, key.Path(), func() error {
		if got := n.Get(key); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}

// told waits until exactly one key was restored, and forgets it.
func (n *nodes) told(want string) {
	n.Helper()
	eventually.Nil(n.Server, "who reads events is told of the change", func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if got := n.restored; len(got) != 1 || got[0] != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		n.restored = nil
		return nil
	})
}

// TestNodeEndpoints makes host endpoints of Nodes and deletes them, and touches none that others made.
func TestNodeEndpoints(t *testing.T) {
	s := etcd.New(t)
	other, ours := model.HostEndpointKey{Host: "a", Endpoint: "eth1"}, kubepolicy.NodeEndpointKey
	theirs := model.HostEndpoint{Name: "eth1"}
	s.Put(other, theirs)
	s.Put(ours("c"), theirs) // by our name, but not of our making

	n := newNodes(s, model.Port{Min: 22, Max: 22})
	endpoint := func(addr string) any {
		of, _ := kubepolicy.NodeOf(&corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}}})
		e, _ := kubepolicy.NodeEndpoint(of)
		return e
	}
	labels := map[string]string{"x": "1"}
	n.node("a", "10.0.0.1", labels)
	n.node("b", "", nil)
	n.holds(model.HostMetadataKey{Host: "a"}, model.HostMetadata{Labels: labels, Kubernetes: model.KubernetesNode{Name: "a", UID: "uid-a"}})
	n.holds(ours("a"), endpoint("10.0.0.1"))
	n.node("a", "10.0.0.2", nil)
	n.holds(ours("a"), endpoint("10.0.0.2"))
	n.Settle()
	s.Put(ours("a"), theirs)
	n.holds(ours("a"), endpoint("10.0.0.2"))
	n.holds(model.HostMetadataKey{Host: "b"}, model.HostMetadata{Kubernetes: model.KubernetesNode{Name: "b", UID: "uid-b"}})
	if got := s.Get(ours("b")); got != nil {
		t.Errorf("a Node without an address has %+v", got)
	}
	n.told("{Node  a uid-a} " + ours("a").Path())
	// What the host of a deleted Node has stays until the whole host goes.
	n.hosts.Remove(writer.Object{Kind: kindNode, Name: "a"})
	n.node("b", "10.0.0.2", nil)
	n.holds(ours("b"), endpoint("10.0.0.2"))
	n.holds(ours("a"), endpoint("10.0.0.2"))
	n.Running.Stop()

	junk(s, ours("d")) // whose it is can't be read
	n = newNodes(s)
	n.node("b", "10.0.0.1", labels)
	for _, node := range []string{"a", "b"} {
		n.holds(ours(node), nil)
	}
	n.Settle()
	n.Running.Stop()
	n.holds(other, theirs)
	n.holds(ours("c"), theirs)
	for _, node := range []string{"a", "b"} {
		if s.Get(model.HostMetadataKey{Host: node}) == nil {
			t.Errorf("the entry of %s is gone", node)
		}
	}
	if snapshot, err := s.Store.Read(t.Context(), model.KeyRange(ours("d"))); err != nil || len(snapshot.Entries()) != 1 {
		t.Errorf("what can't be read is gone: %v", err)
	}
}

// TestNodeEntry: the entry of a host is damaged, changed and deleted.
func TestNodeEntry(t *testing.T) {
	s := etcd.New(t)
	n := newNodes(s)
	key := model.HostMetadataKey{Host: "a"}
	junk(s, key) // before the Node is known
	n.node("a", "", map[string]string{"x": "1"})
	want := model.HostMetadata{Labels: map[string]string{"x": "1"}, Kubernetes: model.KubernetesNode{Name: "a", UID: "uid-a"}}
	n.holds(key, want)
	for _, spoil := range []func(){
		func() { junk(s, key) }, func() { s.Put(key, model.HostMetadata{}) }, func() { s.Remove(key) },
	} {
		n.Settle()
		spoil()
		n.told("{Node  a uid-a} " + key.Path())
		n.holds(key, want)
	}
}

func junk(s *etcd.Server, key model.Key) {
	s.Client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, key.Path(), "junk")
		return err
	})
}
