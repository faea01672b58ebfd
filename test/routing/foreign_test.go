// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// TestForeignRoutes has another program make routes to blocks, of both families and of both hosts:
// they are named as long as they are there.
func TestForeignRoutes(t *testing.T) {
	r := New(t, lab.Config{Hosts: []string{"a", "b"}, Pool: encap(model.EncapAlways)})
	a, b := r.Host("a"), r.Host("b")
	r.Reaches(a.Pod("here"), b.Pod("there"))
	foreign := func(verb string) (blocks int) {
		t.Helper()
		for _, h := range r.Hosts() {
			for _, p := range r.Blocks(h) {
				blocks++
				family, via := "-4", b.IPv4()
				if p.Addr().Is6() {
					family, via = "-6", b.IPv6()
				}
				if out, err := a.Exec(t.Context(), "ip", family, "route", verb, p.String(), "via", via.String(), "dev", "eth0"); err != nil {
					t.Fatal(err, string(out))
				}
			}
		}
		return blocks
	}
	problems := `calico_node_route_problems{kind="foreign-route"}`
	r.Counts(a, problems, Exactly(float64(foreign("add"))))
	for _, h := range r.Hosts() {
		for _, p := range r.Blocks(h) {
			r.Says(a, "kind=foreign-route", "subject="+p.String(), "dev eth0")
		}
	}
	foreign("del")
	r.Counts(a, problems, Exactly(0))
}
