// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestPoolOverEtcd has a block over the address of etcd, which is behind the racks' routers: no
// host routes it, even where a workload is given that address. A host whose former agent left
// such a route finds back when its agent is started.
func TestPoolOverEtcd(t *testing.T) {
	long.Test(t)
	r := New(t, lab.Config{Racks: [][]string{{"a"}, {"b"}}, Pool: encap(model.EncapAlways), Hostile: true})
	a, b := r.Host("a"), r.Host("b")
	web, db := a.Pod("web"), b.Pod("db")
	key := model.PoolKey{CIDR: netip.MustParsePrefix("172.20.0.0/26")}
	r.Put(model.Put{Key: key, Value: model.Pool{CIDR: key.CIDR, IPAM: true, VXLANMode: model.EncapAlways}})
	pod := a.Pod("inside", lab.PodConfig{Args: [][2]string{{"IP", "172.20.0.40"}}})
	thief := model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "default.thief", Endpoint: "eth0"}
	r.Put(model.Put{Key: thief, Value: model.WorkloadEndpoint{
		State: model.StateActive, Name: "calithief", MAC: model.MAC{2, 0, 0, 0, 0, 9}, ProfileIDs: []string{},
		IPv4Nets: []netip.Prefix{netip.MustParsePrefix("172.20.0.11/32")},
	}})
	clear := func(h *lab.Host) error {
		out, err := h.Exec(t.Context(), "ip", "route")
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "172.20.0.0/26") || strings.Contains(line, "172.20.0.11 ") {
				err = errors.Join(err, fmt.Errorf("host %s has %s", h.Name(), line))
			}
		}
		return err
	}
	for _, h := range r.Hosts() {
		r.Says(h, "kind=host-in-block", "172.20.0.11, the address of etcd, lies in it")
		if err := clear(h); err != nil {
			t.Error(err)
		}
	}
	b.Pod("later") // as its agent hears of it, etcd is there
	r.Reaches(web, pod, db)
	r.Delete(thief)
	if err := pod.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := b.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := b.Exec(t.Context(), "ip", "route", "add", "blackhole", key.CIDR.String(), "proto", "81", "metric", "1100"); err != nil {
		t.Fatal(err, string(out))
	}
	if err := b.Agent().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Says(b, "etcd doesn't answer, and routes of this host lead there", "172.20.0.0/26")
	if err := clear(b); err != nil {
		t.Error(err)
	}
}
