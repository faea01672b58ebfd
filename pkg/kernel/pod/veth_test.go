// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/netns"
)

func TestCreateVeth(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		before := netns.OfThread(t)
		want := mac("02:00:00:00:00:01")
		got, undo, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", MTU: 1400, PodMAC: want, Alias: "calico net.box.eth0"})
		if err != nil || got != want {
			t.Fatal(got, err)
		}
		var l link.Link
		// The kernel reports a moment later that both ends are up (linkwatch).
		eventually.True(t, "the host's end to run", func() bool { l, err = link.Find("cali1"); return err != nil || l.Running })
		if err != nil {
			t.Fatal(err)
		}
		type facts struct {
			Alias, Kind, MAC string
			MTU              int
			Up, Running      bool
		}
		if diff := cmp.Diff(facts{"calico net.box.eth0", "veth", "ee:ee:ee:ee:ee:ee", 1400, true, true},
			facts{l.Alias, l.Kind, l.MAC.String(), l.MTU, l.Up, l.Running}); diff != "" {
			t.Errorf("host end (-want +got):\n%s", diff)
		}
		pod, err := Read(ns, "eth0")
		if err != nil || pod.MAC != want || pod.MTU != 1400 || !pod.Up || pod.HostIndex != l.Index || l.Parent != pod.Index {
			t.Errorf("workload's end: %+v, %v", pod, err)
		}
		if diff := cmp.Diff([]string{"fe80::ff:fe00:1/64"}, texts(pod.LinkLocal)); diff != "" {
			t.Errorf("link-local of the workload's end (-want +got):\n%s", diff)
		}
		if got := strings.Join(netns.IP(t, "-6", "-o", "addr", "show", "dev", "cali1"), "\n"); !strings.Contains(got, "inet6 fe80::ecee:eeff:feee:eeee/128 scope link nodad") || strings.Contains(got, "tentative") {
			t.Errorf("addresses of the host end: %s", got)
		}
		if after := netns.OfThread(t); after != before {
			t.Errorf("the thread went from %s to %s", before, after)
		}
		if err := undo(); err != nil {
			t.Error(err)
		}
		if err := undo(); err != nil {
			t.Errorf("undone twice: %v", err)
		}
		if _, err := link.Find("cali1"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("host end after undo: %v", err)
		}
		if _, err := Read(ns, "eth0"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("workload's end after undo: %v", err)
		}
	})
}

func texts[T fmt.Stringer](values []T) []string {
	var s []string
	for _, v := range values {
		s = append(s, v.String())
	}
	return s
}

func TestNamesTaken(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0", Alias: "calico mine"}); err != nil {
			t.Fatal(err)
		}
		_, _, err := CreateVeth(newPod(t), Veth{HostName: "cali1", PodName: "eth0"})
		var exists *LinkExistsError
		if !errors.As(err, &exists) || exists.Link.Alias != "calico mine" || exists.Link.Kind != "veth" || !errors.Is(err, os.ErrExist) {
			t.Errorf("host end's name taken: %v", err)
		}
		_, _, err = CreateVeth(ns, Veth{HostName: "cali2", PodName: "eth0"})
		if errors.As(err, &exists) && exists.Link.Name == "cali2" || !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "has an interface eth0 already") {
			t.Errorf("workload's end's name taken: %v", err)
		}
		if _, err := link.Find("cali2"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("half a veth was left: %v", err)
		}
	})
}

func TestBadVeth(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		before, err := link.List("") // a kernel with tunnels makes some itself
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []Veth{
			{HostName: "", PodName: "eth0"},
			{HostName: "cali1", PodName: ""},
			{HostName: "cali0123456789ab", PodName: "eth0"},
			{HostName: "cali/1", PodName: "eth0"},
			{HostName: "cali1", PodName: "eth 0"},
			{HostName: "cali1", PodName: "eth0", MTU: -1},
			{HostName: "cali1", PodName: "eth0", MTU: 1 << 20},
			{HostName: "cali1", PodName: "eth0", Alias: strings.Repeat("x", 256)},
			{HostName: "cali1", PodName: "eth0", PodMAC: mac("01:00:00:00:00:01")},
			{HostName: "cali1", PodName: "lo"},
			{HostName: "lo", PodName: "eth0"},
			{HostName: "cali1", PodName: "eth%d"},
			{HostName: "cali1", PodName: "100%"},
			{HostName: "cali1", PodName: "all"},
			{HostName: "cali1", PodName: "default"},
		} {
			_, undo, err := CreateVeth(ns, v)
			if err == nil || undo != nil {
				t.Errorf("CreateVeth(%+v): %v", v, err)
			}
		}
		after, err := link.List("")
		if err != nil || len(after) != len(before) {
			t.Errorf("links left: %+v, %v", after, err)
		}
	})
}

// TestCreateVethRace: of many that create the same link at once one succeeds; the others get an error.
func TestCreateVethRace(t *testing.T) {
	netns.Host(t, func() {
		// Goroutines leave this thread: they enter the namespace themselves.
		here, err := ns.GetCurrentNS()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = here.Close() }()
		var wg sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for range 8 {
			pod := newPod(t)
			wg.Go(func() {
				err := here.Do(func(ns.NetNS) error {
					_, _, err := CreateVeth(pod, Veth{HostName: "cali1", PodName: "eth0", Alias: "x"})
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				var exists *LinkExistsError
				switch {
				case err == nil:
					made++
				case !errors.As(err, &exists):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if made != 1 {
			t.Errorf("%d made the link", made)
		}
	})
}

func TestDeleteLink(t *testing.T) {
	netns.Host(t, func() {
		ns := newPod(t)
		if _, _, err := CreateVeth(ns, Veth{HostName: "cali1", PodName: "eth0"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := link.Delete("cali1"); err != nil {
				t.Error(err)
			}
		}
		if _, err := Read(ns, "eth0"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("workload's end: %v", err)
		}
		if err := link.Delete("lo"); err == nil {
			t.Error("lo was deleted")
		}
		if err := link.Delete("a/b"); err == nil {
			t.Error("no error for a bad name")
		}
	})
}

func mac(s string) model.MAC {
	m, err := model.ParseMAC(s)
	if err != nil {
		panic(err) // a test's own literal
	}
	return m
}
