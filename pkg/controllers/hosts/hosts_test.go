// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/controllers/hosts"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
	"github.com/calico-go/calico/test/keeper"
)

func run(t *testing.T, s *etcd.Server, endpoints bool, restored func(node, uid string, k model.Key)) (*hosts.Keeper, *keeper.Running) {
	k := hosts.New(hosts.Config{
		Etcd: s.Store, Problems: problems.New(slog.New(slog.DiscardHandler)), Endpoints: endpoints,
		Wrote: func(time.Duration) {}, Failed: func(k model.Key, err error) { t.Errorf("%s: %v", k.Path(), err) },
		Restored: restored,
	})
	return k, keeper.Run(s, k, model.HostPrefix(""))
}

func holds(t *testing.T, s *etcd.Server, key model.Key, want any) {
	t.Helper()
	eventually.Nil(t, key.Path(), func() error {
		if got := s.Get(key); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}

// TestEndpoints makes host endpoints of Nodes and takes them away, and nothing that is somebody else's.
func TestEndpoints(t *testing.T) {
	s := etcd.New(t)
	other := model.HostEndpointKey{Host: "a", Endpoint: "eth1"}
	theirs := model.HostEndpoint{Name: "eth1"}
	s.Put(other, theirs)
	s.Put(kubepolicy.NodeEndpointKey("c"), theirs) // by our name, but not of our making

	var restored atomic.Int32
	k, running := run(t, s, true, func(node, uid string, key model.Key) {
		if restored.Add(1); node != "a" || uid != "uid-a" || key != kubepolicy.NodeEndpointKey("a") {
			t.Errorf("restored %s, uid %s, %s", node, uid, key.Path())
		}
	})
	one, two := kubepolicy.Node{Labels: map[string]string{"x": "1"}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, kubepolicy.Node{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}
	k.Set("a", "uid-a", one)
	k.Set("b", "uid-b", kubepolicy.Node{})
	holds(t, s, model.HostMetadataKey{Host: "a"}, model.HostMetadata{Labels: one.Labels, Kubernetes: model.KubernetesNode{Name: "a", UID: "uid-a"}})
	endpoint, _ := kubepolicy.NodeEndpoint(one)
	holds(t, s, kubepolicy.NodeEndpointKey("a"), endpoint)
	k.Set("a", "uid-a", two)
	endpoint, _ = kubepolicy.NodeEndpoint(two)
	holds(t, s, kubepolicy.NodeEndpointKey("a"), endpoint)
	running.Settle()
	s.Put(kubepolicy.NodeEndpointKey("a"), theirs)
	holds(t, s, kubepolicy.NodeEndpointKey("a"), endpoint)
	holds(t, s, model.HostMetadataKey{Host: "b"}, model.HostMetadata{Kubernetes: model.KubernetesNode{Name: "b", UID: "uid-b"}})
	if got := s.Get(kubepolicy.NodeEndpointKey("b")); got != nil {
		t.Errorf("a Node without an address has %+v", got)
	}
	eventually.True(t, "who reads events is told of the change", func() bool { return restored.Load() == 1 })
	// A Node that is gone keeps what its host has, until all of the host goes.
	k.Remove("a")
	k.Set("b", "uid-b", two)
	holds(t, s, kubepolicy.NodeEndpointKey("b"), endpoint)
	holds(t, s, kubepolicy.NodeEndpointKey("a"), endpoint)
	running.Stop()

	k, running = run(t, s, false, nil)
	k.Set("b", "uid-b", one)
	for _, node := range []string{"a", "b"} {
		holds(t, s, kubepolicy.NodeEndpointKey(node), nil)
	}
	running.Stop()
	holds(t, s, other, theirs)
	holds(t, s, kubepolicy.NodeEndpointKey("c"), theirs)
}

// TestMetadata has the entry of a host damaged, changed and deleted.
func TestMetadata(t *testing.T) {
	s := etcd.New(t)
	restored := make(chan string, 10)
	k, running := run(t, s, false, func(node, uid string, key model.Key) { restored <- fmt.Sprint(node, " ", uid, " ", key.Path()) })
	key := model.HostMetadataKey{Host: "a"}
	junk := func() {
		s.Client(func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, key.Path(), "junk")
			return err
		})
	}
	junk() // before the Node is known
	k.Set("a", "uid-a", kubepolicy.Node{Labels: map[string]string{"x": "1"}})
	want := model.HostMetadata{Labels: map[string]string{"x": "1"}, Kubernetes: model.KubernetesNode{Name: "a", UID: "uid-a"}}
	holds(t, s, key, want)
	for what, spoil := range map[string]func(){
		"junk": junk, "another value": func() { s.Put(key, model.HostMetadata{}) }, "nothing": func() { s.Remove(key) },
	} {
		running.Settle()
		spoil()
		if got := eventually.Receive(t, what+" is told of", restored); got != "a uid-a "+key.Path() {
			t.Errorf("%s: %s", what, got)
		}
		holds(t, s, key, want)
	}
}
