// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/pods"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestShrinkMTU(t *testing.T) {
	netns.Host(t, func() {
		h := newHostPath(t)
		a, b := wire(t, 1), wire(t, 2) // of 1450
		inhabit(t, a.ns)
		netns.IP(t, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
		mustApply(t, h, a.endpoint, b.endpoint)
		mtus := func() (all [4]int) {
			for i, w := range []wired{a, b} {
				host, err := link.Find(w.endpoint.Interface)
				if err != nil {
					t.Fatal(err)
				}
				all[2*i] = host.MTU
				netns.Within(t, w.ns, func() {
					pod, err := link.Find("eth0")
					if err != nil {
						t.Fatal(err)
					}
					all[2*i+1] = pod.MTU
				})
			}
			return all
		}
		shrink := func(mtu, changed int, refused string, want [4]int) {
			t.Helper()
			n, err := h.ShrinkMTU(context.Background(), mtu)
			if n != changed || (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
				t.Errorf("%d: %d changed, %v; want %d, %q", mtu, n, err, changed, refused)
			}
			if got := mtus(); got != want {
				t.Errorf("%d: MTUs are %v, want %v", mtu, got, want)
			}
		}
		shrink(1500, 0, "", [4]int{1450, 1450, 1450, 1450})
		shrink(1400, 1, "set MTU of cali2 to 1400: at the workload's end: its network namespace is neither", [4]int{1400, 1400, 1450, 1450})
		place := filepath.Join(t.TempDir(), "a place")
		mountNamespace(t, b.ns, place)
		shrink(1400, 1, "", [4]int{1400, 1400, 1400, 1400})
		shrink(1400, 0, "", [4]int{1400, 1400, 1400, 1400})
		netns.IP(t, "link", "set", "cali1", "mtu", "1450")
		netns.Within(t, b.ns, func() { netns.IP(t, "link", "set", "eth0", "mtu", "1450") })
		shrink(1400, 2, "", [4]int{1400, 1400, 1400, 1400})
		shrink(1200, 0, "would lose IPv6", [4]int{1400, 1400, 1400, 1400})
		shrink(0, 0, "not positive", [4]int{1400, 1400, 1400, 1400})
		if l, err := link.Find("other0"); err != nil || l.MTU != 1500 {
			t.Errorf("a foreign link: %v, %v", l.MTU, err)
		}
		for _, to := range b.endpoint.Addrs {
			pods.Ping(t, a.ns, to)
		}
		if r := mustApply(t, h, a.endpoint, b.endpoint); r.Writes != 0 {
			t.Errorf("%d writes after it", r.Writes)
		}
	})
}

// mountNamespace mounts a namespace at a path until the test ends, as a runtime does.
func mountNamespace(tb testing.TB, ns *pod.Namespace, path string) {
	tb.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	var err error
	netns.Within(tb, ns, func() { err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "") })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
}

func TestNamespaceMounts(t *testing.T) {
	const table = `23 28 0:22 / /proc rw,relatime shared:13 - proc proc rw
602 26 0:4 net:[4026532177] /run/netns/x rw shared:330 - nsfs nsfs rw
603 26 0:4 net:[4026532178] /run/a\040b\134c rw - nsfs nsfs rw
604 26 0:4 mnt:[4026532179] /run/mnt rw - nsfs nsfs rw

605 26 0:4
`
	if diff := cmp.Diff([]string{"/run/netns/x", `/run/a b\c`}, namespaceMounts(table)); diff != "" {
		t.Error(diff)
	}
}

// inhabit runs a process in a namespace until the test ends.
func inhabit(tb testing.TB, ns *pod.Namespace) {
	tb.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe() // at whose end it ends
	if err != nil {
		tb.Fatal(err)
	}
	netns.Within(tb, ns, func() { err = cmd.Start() })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
}
