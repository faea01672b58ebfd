// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// TestEndpointGone: the clients of an endpoint that vanishes are connected to another one.
func TestEndpointGone(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b")
	first := r.lab.Host("a").Pod("first")
	process := r.serve(first, "vpn", "-pools", "10.60.0.0/24")
	near, far := r.lab.Host("a").Pod("near"), r.lab.Host("b").Pod("far")
	r.connect(near, "vpn")
	r.connect(far, "vpn")
	second := r.lab.Host("b").Pod("second")
	r.serve(second, "vpn", "-pools", "10.61.0.0/24")
	if err := errors.Join(process.Kill(), first.Delete(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*lab.Pod{near, far} {
		eventually.Nil(t, p.Name()+" has another endpoint", func() error {
			if out := r.ip(p, "-o", "addr", "show", "scope", "global"); !strings.Contains(out, "10.61.") || !strings.Contains(out, "nsm0") {
				return fmt.Errorf("it has %s", out)
			}
			return nil
		})
		reply := r.connect(p, "vpn")
		if reply["endpoint"] != "second" || reply["interface"] != "nsm0" {
			t.Error(reply)
		}
	}
}

// TestKilled kills the manager of either side at each step of a connection. When it is back, the client has what it asked
// for, and when the clients have gone nothing is left.
func TestKilled(t *testing.T) {
	long.Test(t)
	r := newRig(t, "killpoints", "a", "b")
	gw := r.lab.Host("a").Pod("gw")
	r.serve(gw, "vpn", "-pools", "10.60.0.0/24")
	var clients []*lab.Pod
	for i, tt := range []struct{ killed, client, step string }{
		{"a", "a", "reserved"}, {"a", "a", "linked"}, {"a", "a", "ready"},
		{"b", "b", "remote reserved"}, {"b", "b", "remote agreed"}, {"b", "b", "remote linked"}, {"b", "b", "remote ready"},
		{"a", "b", "accept reserved"}, {"a", "b", "accept linked"}, {"a", "b", "accept ready"},
	} {
		p := r.lab.Host(tt.client).Pod(fmt.Sprintf("client%d", i))
		clients = append(clients, p)
		if err := r.process("nsm-" + tt.killed).Kill(); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CALICO_KILL_STEP", tt.step+" 1")
		manager := r.manage(tt.killed)
		t.Setenv("CALICO_KILL_STEP", "")
		asked := make(chan error, 1)
		go func() {
			_, err := r.request(t.Context(), p, "vpn")
			asked <- err
		}()
		if err := manager.Wait(t.Context()); err != nil {
			t.Fatalf("%s: %v", tt.step, err)
		}
		r.manage(tt.killed)
		if err := <-asked; err != nil {
			t.Fatalf("killed at %q: %v", tt.step, err)
		}
		r.connect(p, "vpn")
		if n, err := r.interfaces(gw); n != len(clients) || err != nil {
			t.Errorf("killed at %q: the endpoint has %d interfaces of %d connections: %v", tt.step, n, len(clients), err)
		}
	}
	for _, p := range clients {
		if err := p.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r.nothingLeft([]string{"a", "b"}, gw)
}

// interfaces are how many of connections a pod has.
func (r *rig) interfaces(p *lab.Pod) (int, error) {
	out, err := p.Exec(r.Context(), "ip", "-o", "link")
	return strings.Count(string(out), ": nsm"), err
}
