// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestSlips breaks what says how hosts reach each other, one key after the other, as an
// editor's slip does: each is reported, and nothing that works ceases to.
func TestSlips(t *testing.T) {
	long.Test(t)
	for _, mode := range []model.EncapMode{model.EncapAlways, model.EncapNever} {
		t.Run(nameOf(mode), func(t *testing.T) {
			r := New(t, lab.Config{Hosts: []string{"a", "b", "c"}, Pool: encap(mode), Hostile: true})
			etcd, err := clientv3.New(clientv3.Config{Endpoints: r.Members().Sockets(), Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = etcd.Close() }() // etcd may be gone first
			put := func(path, value string) {
				t.Helper()
				if _, err := etcd.Put(t.Context(), path, value); err != nil {
					t.Fatal(err)
				}
			}
			const as = "/calico/bgp/v1/global/as_num"
			neighbour := r.Host("b").IPv4().String()
			peer := "/calico/bgp/v1/host/a/peer_v4/" + neighbour
			put(as, "64999")
			put("/calico/bgp/v1/host/b/as_num", "64999")
			put(peer, fmt.Sprintf(`{"ip":%q,"as_num":"64999"}`, neighbour))
			from, to := r.Host("a").Pod("from"), r.Host("b").Pod("to")
			for _, h := range r.Hosts() {
				r.Until("the AS of host "+h.Name(), func() error {
					if state := r.State(h); !strings.Contains(state, "as 64999;") {
						return errors.New(state)
					}
					return nil
				})
				r.Established(h, 4)
			}
			r.Reaches(from, to)
			traffic := StartTraffic(t, from, to, false)
			before := r.pictures()
			broken := []string{as, peer, "/calico/bgp/v1/host/b/as_num"}
			for _, p := range lab.DefaultPools() {
				broken = append(broken, model.PoolKey{CIDR: p}.Path())
			}
			for _, path := range broken {
				put(path, `{"slip`)
				r.Says(r.Host("a"), path, "what it held before counts")
			}
			// A host corrects its own addresses, mostly before others have seen the slip.
			for _, path := range []string{"/calico/bgp/v1/host/b/ip_addr_v4", "/calico/bgp/v1/host/b/ip_addr_v6"} {
				put(path, `{"slip`)
				r.Until(path+" is corrected", func() error {
					got, err := etcd.Get(t.Context(), path)
					if err != nil {
						return err
					}
					if value := string(got.Kvs[0].Value); strings.Contains(value, "slip") {
						return errors.New(value)
					}
					return nil
				})
			}
			for _, name := range []string{"fe80::1", "fe80::1%25eth0"} {
				path := "/calico/bgp/v1/global/peer_v6/" + name
				put(path, `{"ip":"fe80::1","as_num":"65010"}`)
				r.Says(r.Host("a"), "kind=bad-value", path, "link-local")
			}
			if diff := cmp.Diff(before, r.pictures()); diff != "" {
				t.Errorf("sessions, routes and tunnels (-before +since):\n%s", diff)
			}
			traffic.StopWhole()
		})
	}
}

// pictures are each host's routes, tunnels and neighbours, and how often sessions went.
func (r *Rig) pictures() (all []string) {
	for _, h := range r.Hosts() {
		_, rest, _ := strings.Cut(r.State(h), "# routes\n")
		picture, _, _ := strings.Cut(rest, "# problems\n")
		all = append(all, fmt.Sprintf("host %s, sessions down %d times\n%s", h.Name(), strings.Count(r.Log(h), `msg="BGP session down"`), picture))
	}
	return all
}
