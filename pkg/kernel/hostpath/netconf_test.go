// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/test/netns"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// confWatcher is a watcher that a test reads.
func confWatcher(t *testing.T, h *Path) *watcher {
	t.Helper()
	w := &watcher{path: h, seen: make(map[int]sight), off: make(map[uint8]bool)}
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.file.Close() })
	return w
}

// heard notes all that the kernel has told of by now, and returns how often it told of sysctls,
// and what came of that.
func heard(t *testing.T, w *watcher) (times int, of Event) {
	t.Helper()
	raw, err := w.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for {
			n, _, err := unix.Recvfrom(int(fd), w.buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				if !errors.Is(err, unix.EAGAIN) {
					t.Error(err)
				}
				return
			}
			rtnl.Messages(w.buf[:n], func(h rtnl.Header, body []byte) {
				var other Event
				if h.Kind != unix.RTM_NEWNETCONF {
					w.note(&other, h, body)
					return
				}
				times++
				w.note(&of, h, body)
			})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	of.Interfaces = slices.Compact(of.Interfaces)
	return times, of
}

// TestConfAtRest: the kernel tells of what the Path writes, of all that a new link has, and of much
// that is nobody's here. None of it is an event.
func TestConfAtRest(t *testing.T) {
	netns.Host(t, func() {
		netns.SetSysctl(t, "ipv4/ip_forward", "0")
		h := newHostPath(t)
		a := wire(t, 1)
		w := confWatcher(t, h)
		mustRest := func(after string) {
			t.Helper()
			times, e := heard(t, w)
			if times == 0 {
				t.Errorf("%s: the kernel told of no sysctl, so nothing is tested", after)
			}
			if diff := cmp.Diff(Event{}, e); diff != "" {
				t.Errorf("%s (-want +got):\n%s", after, diff)
			}
		}
		v4 := a.endpoint
		v4.Addrs = v4.Addrs[:1]
		mustApply(t, h, v4)
		mustRest("the first Apply")
		netns.SetSysctl(t, "ipv6/conf/cali1/forwarding", "1")
		netns.SetSysctl(t, "ipv6/conf/cali1/forwarding", "0")
		mustRest("IPv6 forwarding, which no workload needs")
		mustApply(t, h, a.endpoint)
		mustRest("the first workload with IPv6")

		next := Endpoint{Interface: "cali2", Active: true, Addrs: a.endpoint.Addrs}
		if _, err := h.Apply(context.Background(), []Endpoint{a.endpoint, next}); err != nil {
			t.Fatal(err)
		}
		b := wire(t, 2)
		mustRest("a new link")
		mustApply(t, h, a.endpoint, b.endpoint)
		mustRest("its Apply")

		netns.IP(t, "link", "add", "eth9", "type", "veth", "peer", "name", "cali9")
		for _, name := range []string{"all/rp_filter", "default/forwarding", "eth9/proxy_arp", "cali9/proxy_arp"} {
			netns.SetSysctl(t, "ipv4/conf/"+name, "1")
			netns.SetSysctl(t, "ipv4/conf/"+name, "0")
		}
		mustRest("sysctls that are not ours")
		a.endpoint.Active = false
		mustApply(t, h, a.endpoint, b.endpoint)
		netns.SetSysctl(t, "ipv4/conf/cali1/proxy_arp", "0")
		mustRest("an inactive workload")
	})
}

// TestConfSwitched: where the host's forwarding is switched, the kernel tells of each link's, and
// no link is read for it, whether the host forwards again by then or not.
func TestConfSwitched(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		mustApply(t, h, a.endpoint, b.endpoint)
		w := confWatcher(t, h)
		want := func(after string, want Event) {
			t.Helper()
			if _, got := heard(t, w); !cmp.Equal(want, got) {
				t.Errorf("%s (-want +got):\n%s", after, cmp.Diff(want, got))
			}
		}
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			netns.SetSysctl(t, name, "0")
			want(name+" off", Event{Forwarding: true})
			netns.SetSysctl(t, name, "1")
			want(name+" on", Event{})
			netns.SetSysctl(t, name, "0")
			netns.SetSysctl(t, name, "1")
			want(name+" off and on", Event{Forwarding: true})
		}
		netns.SetSysctl(t, "ipv4/ip_forward", "0")
		netns.SetSysctl(t, "ipv4/conf/cali1/rp_filter", "2")
		want("a link's own besides", Event{Forwarding: true, Interfaces: []string{"cali1"}})
	})
}

// TestConfFollows: while the host is known not to forward, no link is asked about because of that; afterwards
// each is its own.
func TestConfFollows(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2)
		mustApply(t, h, a.endpoint, b.endpoint)
		w := confWatcher(t, h)
		want := func(after string, want Event) {
			t.Helper()
			if _, got := heard(t, w); !cmp.Equal(want, got) {
				t.Errorf("%s (-want +got):\n%s", after, cmp.Diff(want, got))
			}
		}
		h.sock.Close() // a link that can't be asked about is to be read
		netns.SetSysctl(t, "ipv4/ip_forward", "0")
		want("off", Event{Forwarding: true})
		netns.SetSysctl(t, "ipv4/ip_forward", "1")
		netns.SetSysctl(t, "ipv4/conf/cali1/forwarding", "0")
		want("on, and a link off", Event{Interfaces: []string{"cali1"}})
		netns.SetSysctl(t, "ipv4/ip_forward", "0")
		want("off again", Event{Forwarding: true})
		netns.SetSysctl(t, "ipv4/ip_forward", "1")
		if err := errors.Join(rtnl.Discard(w.file, w.buf), w.learn()); err != nil { // as where notices were lost
			t.Fatal(err)
		}
		netns.SetSysctl(t, "ipv4/conf/cali2/forwarding", "0")
		want("on, and another link off", Event{Interfaces: []string{"cali2"}})
	})
}

// TestConfByHand sets sysctls wrong, and repairs what events are of: nothing is audited.
func TestConfByHand(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		a, b := wire(t, 1), wire(t, 2)
		all := []Endpoint{a.endpoint, b.endpoint}
		mustApply(t, h, all...)
		events, err := h.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct{ name, wrong string }{
			{"ipv4/ip_forward", "0"},
			{"ipv4/conf/all/forwarding", "0"},
			{"ipv4/conf/cali1/forwarding", "0"},
			{"ipv4/conf/cali1/proxy_arp", "0"},
			{"ipv4/conf/cali2/rp_filter", "2"},
			{"ipv6/conf/all/forwarding", "0"},
			{"ipv6/conf/cali1/forwarding", "0"},
			{"ipv6/conf/cali2/proxy_ndp", "0"},
		} {
			netns.SetSysctl(t, s.name, s.wrong)
			repairs, timeout := 0, time.After(netns.Patience)
			for repairs == 0 {
				select {
				case e := <-events:
					if e.All {
						t.Fatalf("%s: events were lost", s.name)
					}
					some := slices.DeleteFunc(slices.Clone(all), func(w Endpoint) bool { return !slices.Contains(e.Interfaces, w.Interface) })
					if len(some) == 0 && !e.Forwarding {
						continue
					}
					r, err := h.ApplySome(ctx, some, nil)
					if err != nil {
						t.Fatal(err)
					}
					mustBeProgrammed(t, r)
					repairs += r.Repairs
				case <-timeout:
					t.Fatalf("%s: no event", s.name)
				}
			}
			if v, err := rtnl.ReadSysctl(s.name); err != nil || v != 1 {
				t.Errorf("%s is %d, %v", s.name, v, err)
			}
			// What the switch did to links went with it.
			if r := mustApply(t, h, all...); r.Writes > 0 {
				t.Errorf("%s: %d writes were left", s.name, r.Writes)
			}
		}
	})
}
