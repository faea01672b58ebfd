// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
)

// TestToken: etcd checks the password once; later calls make no more round trips than without one.
func TestToken(t *testing.T) {
	cfg := small()
	cfg.Auth = true
	r := newRig(t, cfg)
	pod := r.pod("pod")
	var calls []lab.Call
	var trips []int
	// The first ADD claims a block; one that isn't answered for two seconds has etcd look at the password again.
	for i := range 10 {
		c := call(pod, r.conf(nil))
		c.Plugin, c.ContainerID = "calico-ipam", fmt.Sprintf("c%d", i)
		r.must(c)
		calls, trips = append(calls, c), append(trips, r.roundTrips())
		if i > 0 && trips[i] == 2 {
			break
		}
	}
	if trips[len(trips)-1] != 2 {
		t.Errorf("round trips: %v, want 2 at last", trips)
	}
	for _, c := range calls {
		r.must(verb("DEL", c))
	}
	r.empty()
}
