// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// TestPartition parts hosts on one wire and behind routers.
func TestPartition(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Hosts: []string{"y", "z"}, Racks: [][]string{{"a", "b"}, {"c", "d"}}, NoAgent: true})
	want := func(step string, names []string) {
		t.Helper()
		// A neighbour that didn't answer is asked again after a second, not at once.
		if err := eventually.Wait(soon(t), step, func() error {
			if diff := cmp.Diff(names, reachable(t, l)); diff != "" {
				return fmt.Errorf("(-want +got):\n%s", diff)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want("at first", pairs("abcdyz"))
	fail(l.Partition("a", "c", "y"))
	want("a, c and y parted", pairs("acy", "bdz"))

	fail(l.Partition("d"))
	want("and then d", pairs("acy", "bz", "d"))
	if _, err := l.Router(2).AddHost(soon(t), "e"); err != nil {
		t.Fatal(err)
	}
	want("with a host more", pairs("acy", "bez", "d"))
	fail(l.PartitionFromEtcd("b", "z"))
	want("without etcd", slices.DeleteFunc(pairs("acy", "bez", "d"), func(s string) bool { return s == "b etcd" || s == "z etcd" }))
	if f, err := l.Host("z").Faults(); err != nil || f != (Faults{NoEtcd: true}) {
		t.Errorf("faults of z: %+v, %v", f, err)
	}
	fail(l.Heal())
	want("healed", pairs("abcdeyz"))
	if err := l.Partition("nobody"); err == nil || !strings.Contains(err.Error(), "no host nobody") {
		t.Errorf("partition of a host that isn't there: %v", err)
	}
}

// TestPartitionOfPods parts packets that have neither a host's address nor, after a router, a host's mark.
func TestPartitionOfPods(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Racks: [][]string{{"a", "b"}, {"c"}}, NoAgent: true})
	pod := netip.MustParsePrefix("10.99.0.1/32")
	a := l.Host("a")
	err := a.ns.links(func(nl *netlink.Handle) error {
		lo, err := nl.LinkByName("lo")
		if err != nil {
			return err
		}
		return addAddr(nl, lo, pod)
	})
	if err != nil {
		t.Fatal(err)
	}
	for ns, via := range map[Namespace]netip.Addr{
		l.Router(1).ns: a.IPv4(), l.Router(2).ns: l.Router(1).Uplinks()[0], l.Host("b").ns: a.IPv4(),
	} {
		if err := ns.links(func(nl *netlink.Handle) error { return addRoute(nl, pod, via) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		parted []string
		b, c   bool
	}{{nil, true, true}, {[]string{"b"}, false, true}, {[]string{"a", "b"}, true, false}} {
		if err := errors.Join(l.Heal(), l.Partition(c.parted...)); err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]bool{"b": c.b, "c": c.c} {
			if err := eventually.Wait(soon(t), fmt.Sprintf("%v parted", c.parted), func() error {
				if got := reaches(t, l.Host(host), Address(pod.Addr())); got != want {
					return fmt.Errorf("host %s reaches the pod on a: %v, want %v", host, got, want)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestLoss(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Hosts: []string{"a", "b", "c"}, NoAgent: true})
	a, b, c := l.Host("a"), l.Host("b"), l.Host("c")
	for _, h := range []*Host{a, b, c} {
		if err := h.Ping(soon(t), a); err != nil { // and the neighbours know each other
			t.Fatal(err)
		}
	}
	if err := b.SetLoss(50); err != nil {
		t.Fatal(err)
	}
	// A quarter of the requests gets an answer; that fewer than 4 or more than
	// 100 of 200 do has a chance of less than one in 10^12.
	if n := answered(t, a, b, 200); n < 4 || n > 100 {
		t.Errorf("half of all packets lost each way: %d of 200 requests answered", n)
	}
	if err := b.SetLoss(100); err != nil {
		t.Fatal(err)
	}
	if reaches(t, a, b) || reaches(t, b, a) {
		t.Error("all packets are lost, and there is an answer")
	}
	if n := answered(t, a, c, 100); n != 100 { // so many have room in the socket
		t.Errorf("a loss of b's is felt between a and c: %d of 100 requests answered", n)
	}
	if err := b.SetLoss(0); err != nil {
		t.Fatal(err)
	}
	if err := a.Ping(soon(t), b); err != nil {
		t.Error(err)
	}
	for _, bad := range []float64{-1, 100.5} {
		if err := b.SetLoss(bad); err == nil {
			t.Errorf("a loss of %g %% was taken", bad)
		}
	}
}

func carrier(t *testing.T, h *Host) bool {
	t.Helper()
	var up bool
	err := h.ns.links(func(nl *netlink.Handle) error {
		eth0, err := nl.LinkByName("eth0")
		if err == nil {
			up = eth0.Attrs().OperState == netlink.OperUp
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return up
}

func TestLink(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Hosts: []string{"a", "b"}, NoAgent: true})
	a, b := l.Host("a"), l.Host("b")
	if err := a.CutLink(); err != nil {
		t.Fatal(err)
	}
	// The kernel says it a little later than it does it.
	if err := eventually.Wait(soon(t), "a's link cut", func() error {
		if carrier(t, a) || !carrier(t, b) {
			return fmt.Errorf("a has a carrier %v, b %v; want false, true", carrier(t, a), carrier(t, b))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if reaches(t, b, a) {
		t.Error("a's link is cut, and a answers")
	}
	if err := a.JoinLink(); err != nil {
		t.Fatal(err)
	}
	if err := b.Ping(soon(t), a); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.FlapLink(ctx, 10*time.Millisecond) }()
	for _, want := range []bool{false, true, false} {
		if err := eventually.Wait(soon(t), "flap", func() error {
			if carrier(t, a) != want {
				return fmt.Errorf("carrier %v", !want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := b.Ping(soon(t), a); err != nil {
		t.Error(err)
	}
}

func TestHostDeath(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Hosts: []string{"a", "b"}})
	a, b := l.Host("a"), l.Host("b")
	pod := b.Pod("web")
	server, err := pod.Start("server", "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Return(t.Context()); err == nil || !strings.Contains(err.Error(), "not dead") {
		t.Errorf("return of a living host: %v", err)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Agent().Process(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the dead host's agent: %v", err)
	}
	if reaches(t, a, b) {
		t.Error("the dead host answers")
	}
	if err := b.Return(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Ping(soon(t), b), b.Ping(soon(t), pod), pod.Check(soon(t))); err != nil {
		t.Error(err)
	}
	if !server.Alive() {
		t.Error("what ran in the pod is gone, although its host has only been away")
	}

	// After a loss of power there is nothing but the disk.
	for _, dir := range []string{b.RunDir(), b.VarDir()} {
		if err := os.WriteFile(filepath.Join(dir, "witness"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Kill(), b.Reboot(soon(t))); err != nil {
		t.Fatal(err)
	}
	if server.Alive() {
		t.Error("what ran in the pod has survived a reboot")
	}
	if _, err := os.Stat(filepath.Join(b.RunDir(), "witness")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file in RunDir after a reboot: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.VarDir(), "witness")); err != nil {
		t.Error(err)
	}
	if err := a.Ping(soon(t), b); err != nil {
		t.Error(err)
	}
	pod, err = l.FindPod("web")
	if err != nil {
		t.Fatal(err)
	}
	if pod.Exists() {
		t.Error("the pod has survived a reboot")
	}
	if _, err := b.AddPod(soon(t), "web", PodConfig{}); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a second pod of the name: %v", err)
	}
	if err := pod.Delete(soon(t)); err != nil {
		t.Errorf("DEL of a pod that has gone with its host: %v", err)
	}
	if err := b.Ping(soon(t), b.Pod("web")); err != nil {
		t.Error(err)
	}
}

// TestDeathWithoutAgents has hosts of a lab that starts no agents die: the one that had an agent has it again.
func TestDeathWithoutAgents(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Hosts: []string{"a", "b"}, NoAgent: true})
	a, b := l.Host("a"), l.Host("b")
	if err := a.Agent().Start(soon(t)); err != nil {
		t.Fatal(err)
	}
	for _, back := range []func(*Host) error{
		func(h *Host) error { return h.Return(soon(t)) },
		func(h *Host) error { return h.Reboot(soon(t)) },
	} {
		for _, h := range l.Hosts() {
			if err := errors.Join(h.Kill(), h.Kill(), back(h)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.Agent().Process(); err != nil {
			t.Errorf("the agent that ran before: %v", err)
		}
		if _, err := b.Agent().Process(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("an agent that nobody has started: %v", err)
		}
	}
}
