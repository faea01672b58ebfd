// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
)

// auditAndRepair does what who audits does: what is in doubt is applied.
func auditAndRepair(h *Path, all []Endpoint) (Report, error) {
	report, doubtful, err := h.Audit(context.Background())
	if err != nil {
		return Report{}, err
	}
	some := slices.DeleteFunc(slices.Clone(all), func(e Endpoint) bool { return !slices.Contains(doubtful, e.Interface) })
	r, err := h.ApplySome(context.Background(), some, nil)
	r.Writes, r.Repairs = r.Writes+report.Writes, r.Repairs+report.Repairs
	r.Problems = append(r.Problems, report.Problems...)
	return r, err
}

func mustDoubt(t *testing.T, h *Path, after string, want ...string) {
	t.Helper()
	_, got, err := h.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("doubtful after %s (-want +got):\n%s", after, diff)
	}
}

func TestAudit(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b, c := wire(t, 1), wire(t, 2), wire(t, 3)
		absent := Endpoint{Interface: "cali9", Active: true, Addrs: a.endpoint.Addrs[:1]}
		b.endpoint.Active = false
		all := []Endpoint{a.endpoint, b.endpoint, absent}
		if _, err := h.Apply(context.Background(), all); err != nil {
			t.Fatal(err)
		}
		mustDoubt(t, h, "Apply")
		mustBeUnchanged(t, h, true, "an audit that found nothing")
		netns.IP(t, "route", "add", "10.65.9.9", "dev", "cali3", "proto", "80")
		mustDoubt(t, h, "a route of ours by a link that no endpoint has", "cali3")
		mustBeUnchanged(t, h, false, "an audit that found something")
		some := func(changed, removed []Endpoint) {
			t.Helper()
			if _, err := h.ApplySome(context.Background(), changed, removed); err != nil {
				t.Fatal(err)
			}
		}
		some(nil, []Endpoint{c.endpoint})
		mustDoubt(t, h, "its removal")
		netns.IP(t, "link", "set", "cali1", "down")
		mustDoubt(t, h, "a link went down", "cali1")
		some(all[:1], nil)
		mustDoubt(t, h, "it was reported")
		netns.IP(t, "link", "set", "cali1", "up")
		pods.AwaitSettled(t, "cali1")
		mustDoubt(t, h, "it came up", "cali1")
		some(all[:1], nil)
		netns.IP(t, "link", "del", "cali2")
		netns.IP(t, "link", "add", "cali2", "type", "veth", "peer", "name", "other")
		mustDoubt(t, h, "a link of the same name took the place of one without access", "cali2")
	})
}

// TestStrays: links that the plugin made and no endpoint has are told of.
func TestStrays(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		wire(t, 3)
		netns.IP(t, "link", "set", "cali3", "alias", "") // somebody else's
		netns.IP(t, "link", "set", "cali2", "alias", "net.c2.eth0")
		netns.IP(t, "link", "add", "cali4", "type", "veth", "peer", "name", "other")
		netns.IP(t, "link", "set", "cali4", "alias", "net.c4.eth0") // down
		report, err := h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		if err != nil || len(report.Strays) > 0 {
			t.Fatalf("Apply: %v, %v", report.Strays, err)
		}
		want := []Stray{{"cali2", "net.c2.eth0"}}
		report, err = h.ApplySome(context.Background(), nil, []Endpoint{b.endpoint})
		if diff := cmp.Diff(want, report.Strays); diff != "" || err != nil {
			t.Errorf("ApplySome, %v (-want +got):\n%s", err, diff)
		}
		report, _, err = h.Audit(context.Background())
		if diff := cmp.Diff(want, report.Strays); diff != "" || err != nil {
			t.Errorf("Audit, %v (-want +got):\n%s", err, diff)
		}
		report, err = h.Apply(context.Background(), []Endpoint{a.endpoint})
		if diff := cmp.Diff(want, report.Strays); diff != "" || err != nil {
			t.Errorf("Apply, %v (-want +got):\n%s", err, diff)
		}
	})
}

// TestAnothersInterface: a pod that is made anew has its interface by the same name. What
// led to the former container must not lead to it before etcd tells of it.
func TestAnothersInterface(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		netns.IP(t, "link", "set", "cali1", "alias", "calico net.c1.eth0")
		a.endpoint.Container = "c1"
		// Its address is another's as well, which comes second.
		b.endpoint.Addrs = append(b.endpoint.Addrs, a.endpoint.Addrs[0])
		h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		mustLead := func(to string) {
			t.Helper()
			if route := strings.Join(netns.IP(t, "route", "show", a.endpoint.Addrs[0].String(), "proto", "80"), " "); !strings.Contains(route, "dev "+to) {
				t.Errorf("the route is %q, want it to lead to %s", route, to)
			}
		}
		mustLead("cali1")

		netns.IP(t, "link", "set", "cali1", "alias", "calico net.c2.eth0")
		report, err := h.Apply(context.Background(), []Endpoint{a.endpoint, b.endpoint})
		want := map[string]string{"cali1": `interface cali1 is not of container c1: its alias is "calico net.c2.eth0"`, "cali2": ""}
		if diff := cmp.Diff(want, errorsOf(report)); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff([]Stray{{"cali1", "calico net.c2.eth0"}}, report.Strays); diff != "" {
			t.Errorf("strays (-want +got):\n%s", diff)
		}
		mustLead("cali2")
		for _, what := range []string{"route", "neigh"} {
			if left := strings.Join(netns.IP(t, what, "show", "dev", "cali1"), " "); strings.Contains(left, a.endpoint.Addrs[0].String()) {
				t.Errorf("%s by cali1 is left: %s", what, left)
			}
		}

		a.endpoint.Container = "c2"
		if _, err := h.ApplySome(context.Background(), []Endpoint{a.endpoint}, nil); err != nil {
			t.Fatal(err)
		}
		mustLead("cali1")
	})
}

// TestAuditBeside has endpoints come and go while all is read, again and again:
// what is doubtful is right when it is looked at, and at rest nothing is.
func TestAuditBeside(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		moved := b.endpoint
		moved.Addrs = a.endpoint.Addrs
		mustApply(t, h, a.endpoint, b.endpoint)
		var wait sync.WaitGroup
		stop := make(chan struct{})
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r, _, err := h.Audit(context.Background()); err != nil || r.Writes > 0 {
					t.Errorf("an audit made %d writes: %v", r.Writes, err)
				}
			}
		})
		for range 100 {
			for _, step := range []struct{ changed, removed []Endpoint }{
				{[]Endpoint{moved}, []Endpoint{a.endpoint}},
				{nil, []Endpoint{moved}},
				{[]Endpoint{a.endpoint, b.endpoint}, nil},
			} {
				r, err := h.ApplySome(context.Background(), step.changed, step.removed)
				if err != nil {
					t.Fatal(err)
				}
				mustBeProgrammed(t, r)
				if r.Writes == 0 || r.Repairs > 0 {
					t.Errorf("%d writes, %d repairs", r.Writes, r.Repairs)
				}
			}
		}
		close(stop)
		wait.Wait()
		mustDoubt(t, h, "all that")
		if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes > 0 {
			t.Errorf("%d writes were left", r.Writes)
		}
	})
}
