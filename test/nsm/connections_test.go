// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
	"github.com/google/go-cmp/cmp"
)

// podNetwork is what a pod has of the pod network.
func (r *rig) podNetwork(p *lab.Pod) string {
	return r.ip(p, "-o", "addr", "show", "eth0") + r.ip(p, "route", "show", "dev", "eth0") + r.ip(p, "route", "show", "default")
}

// TestConnections connects clients of two nodes to an endpoint, in and out of its node, and ends them.
func TestConnections(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b")
	gw, near, far := r.lab.Host("a").Pod("gw"), r.lab.Host("a").Pod("near"), r.lab.Host("b").Pod("far")
	before := map[*lab.Pod]string{}
	for _, p := range []*lab.Pod{gw, near, far} {
		before[p] = r.podNetwork(p)
	}
	if _, err := r.request(t.Context(), near, "vpn", "-timeout", "1ns"); err == nil {
		t.Error("a service without an endpoint was connected to")
	}
	if _, err := r.etcd().Put(t.Context(), "/calico/nsm/v1/service/vpn", `{"payload": "IPv4"}`); err != nil {
		t.Fatal(err)
	}
	endpoint := r.serve(gw, "vpn", "-pools", "10.60.0.0/24", "-routes", "192.0.2.0/24,0.0.0.0/0")
	local := r.connect(near, "vpn")
	remote := r.connect(far, "vpn", "-interface", "intranet")
	if diff := cmp.Diff(map[string]string{
		"interface": "nsm0", "endpoint": "gw", "endpoint_host": "a", "mechanism": "veth", "payload": "IPv4",
		"address": "10.60.0.2/30", "peer_address": "10.60.0.1/30", "routes": "192.0.2.0/24",
	}, local); diff != "" {
		t.Error(diff)
	}
	vni := remote["vni"]
	delete(remote, "vni")
	if diff := cmp.Diff(map[string]string{
		"interface": "intranet", "endpoint": "gw", "endpoint_host": "a", "mechanism": "vxlan", "payload": "IPv4",
		"address": "10.60.0.6/30", "peer_address": "10.60.0.5/30", "routes": "192.0.2.0/24",
	}, remote); diff != "" || vni == "" {
		t.Error(vni, diff)
	}
	if out := r.ip(far, "route", "get", "192.0.2.9"); !strings.Contains(out, "via 10.60.0.5 dev intranet") {
		t.Error(out)
	}
	if again := r.connect(near, "vpn"); cmp.Diff(local, again) != "" || r.connections("a") != 2 {
		t.Error("the same request made another connection:", again)
	}
	if _, err := r.request(t.Context(), near, "vpn", "-interface", "other"); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Error("a changed request:", err)
	}
	for p, want := range before {
		if diff := cmp.Diff(want, r.podNetwork(p)); diff != "" {
			t.Errorf("the pod network of %s changed: %s", p.Name(), diff)
		}
		if err := p.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	eventually.Nil(t, "the pod network goes on", func() error { return near.Ping(t.Context(), far) })
	if err := endpoint.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	r.reaches(far, remote) // what there is stays
	if _, err := r.request(t.Context(), far, "vpn", "-timeout", "1s", "-request-id", "new"); err == nil {
		t.Error("an endpoint that was removed was connected to")
	}
	for _, p := range []*lab.Pod{near, far} {
		if err := p.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r.nothingLeft([]string{"a", "b"}, gw)
}

// TestAtOnce makes connections at once, in both directions.
func TestAtOnce(t *testing.T) {
	long.Test(t)
	const each = 50
	r := newRig(t, "", "a", "b")
	clients := []*lab.Pod{r.lab.Host("a").Pod("client-a"), r.lab.Host("b").Pod("client-b")}
	r.serve(r.lab.Host("a").Pod("gw-a"), "to-a", "-pools", "10.60.0.0/20")
	r.serve(r.lab.Host("b").Pod("gw-b"), "to-b", "-pools", "10.61.0.0/20")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]string{}
	for i := range each {
		for _, p := range clients {
			for _, service := range []string{"to-a", "to-b"} {
				wg.Go(func() {
					id := fmt.Sprintf("%s-%d", p.Name(), i)
					reply, err := r.request(t.Context(), p, service, "-request-id", id)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					for _, what := range []string{"address " + reply["address"], "vni " + reply["vni"]} {
						if other := seen[what]; other != "" && what != "vni " {
							t.Errorf("%s and %s have %s", other, id, what)
						}
						seen[what] = id + " " + service
					}
				})
			}
		}
	}
	wg.Wait()
	for _, p := range clients {
		if err := p.Delete(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	r.nothingLeft([]string{"a", "b"}, r.lab.Host("a").Pod("other"))
}
