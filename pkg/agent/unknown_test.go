// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// TestUnknownFieldsShown: a pool with a misspelt field is used, and the misspelling is shown; so is a misspelt key.
func TestUnknownFieldsShown(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	pool := model.PoolKey{CIDR: netip.MustParsePrefix("10.65.0.0/16")}
	h.raw(clientv3.OpPut(pool.Path(), `{"cidr":"10.65.0.0/16","disable":true}`))
	h.start()
	h.ready()
	shown := func() string {
		_, body := h.fetch(h.health, "/debug/invalid")
		return body
	}
	h.until("notice of a pool", func() bool {
		return strings.Contains(shown(), "notice "+pool.Path()+"\n") && strings.Contains(shown(), "disable: unknown")
	})
	if n := h.metric("calico_node_invalid_objects"); n != 0 {
		t.Errorf("%v objects are invalid", n)
	}
	slip := model.BGPPrefix() + "global/as_numm"
	h.raw(clientv3.OpPut(slip, "64513"))
	h.until("notice of a key", func() bool {
		return strings.Contains(shown(), "notice "+slip+"\n") && strings.Contains(shown(), "nothing is known of this key")
	})
	// Plugins alone read the settings of addresses, and what is wrong with them must not come out only when the last block is full.
	path := model.IPAMConfigKey{}.Path()
	h.raw(clientv3.OpPut(path, `{"strict_affinity":"true"}`))
	h.until("report of settings", func() bool { return strings.Contains(shown(), "object "+path+"\n") })
	h.put(model.IPAMConfigKey{}, model.IPAMConfig{StrictAffinity: true})
	h.until("its end", func() bool { return !strings.Contains(shown(), path) })
	reservation := model.ReservationKey{Name: "routers"}
	h.raw(clientv3.OpPut(reservation.Path(), `{"cidr":["10.65.0.0/28"]}`))
	h.until("notice of a reservation of nothing", func() bool {
		return strings.Contains(shown(), "notice "+reservation.Path()+"\n") && strings.Contains(shown(), "cidr: unknown")
	})
	h.put(reservation, model.Reservation{})
	misplaced := "/calico/v1/policies/x"
	h.raw(clientv3.OpPut(misplaced, "{}"))
	h.until("report of a key of no kind", func() bool { return strings.Contains(shown(), "object "+misplaced+"\n") })
	h.raw(clientv3.OpDelete(misplaced))
	h.raw(clientv3.OpDelete(slip))
	h.put(pool, model.Pool{CIDR: pool.CIDR, IPAM: true})
	h.until("its end", func() bool { return !strings.Contains(shown(), "notice") })
}
