// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// TestOwnerless: an endpoint that names no container is listed and counted while it has no interface.
func TestOwnerless(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.ready()
	p := h.newPod(1)
	listed := func(want bool) {
		t.Helper()
		h.until("the endpoint to be listed or not", func() bool {
			_, body := h.fetch(h.health, "/debug/invalid")
			n := h.metric("calico_node_endpoints_ownerless")
			return strings.Contains(body, "notice owner of "+p.key.Path()+"\n") == want && strings.Contains(body, "calicoctl delete workloadendpoint NAME -n NAMESPACE --force") == want && (n == 1) == want
		})
	}
	p.put()
	listed(true)
	p.wire()
	p.put() // with the interface's MAC address
	listed(false)
	p.unwire()
	listed(true)
	h.remove(p.key)
	listed(false)

	owned := h.newPod(2)
	owned.spec.ContainerID = "c2"
	owned.put()
	h.until("another to be down", func() bool { return h.metric(`calico_node_endpoints{status="down"}`) == 1 })
	listed(false)
}

// TestSetDown: an interface that was set down is listed until it is up again, and one that isn't up yet is not.
func TestSetDown(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	h.start()
	h.ready()
	p := h.newPod(1)
	p.wire()
	const listed = "as somebody has set it: run ip link set"
	for i, now := range []string{"down", "up", "down", "up"} {
		h.ip("link", "set", p.spec.Name, now)
		if i == 0 {
			p.put()
		}
		h.until("the endpoint of an interface that is set "+now, func() bool {
			status, _ := h.get(p.statusKey()).(model.EndpointStatus)
			_, body := h.fetch(h.health, "/debug/invalid")
			return status == map[string]model.EndpointStatus{"up": model.EndpointUp, "down": model.EndpointDown}[now] && strings.Contains(body, listed) == (i == 2)
		})
	}
}
