// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// TestConfigureAgain: an ADD that takes over the link of the pod's former sandbox decides again after a conflict in
// etcd. The pod gets the result of the last decision.
func TestConfigureAgain(t *testing.T) {
	l := lab.ForTest(t, lab.Config{NoAgent: true, NoFsync: true})
	open := func(name string) *pod.Namespace {
		made, err := l.NewNamespace(name)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := pod.OpenNamespace(made.Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Close)
		return ns
	}
	id := protocol.NewIdentity("net1", "a", protocol.Environ{ContainerID: "next", IfName: "eth0"})
	left := pod.Veth{HostName: id.HostIf, PodName: "eth0", Alias: protocol.LinkAlias("net1", "net1.former.eth0")}
	if _, _, err := pod.CreateVeth(open("former"), left); err != nil {
		t.Fatal(err)
	}
	w := &Veth{
		ID: id, NS: open("next"), MTU: 1500, MAC: protocol.PodMAC(id.Handle), Log: quiet(),
		Owner: func(context.Context, string) (string, bool, error) { return "", false, nil },
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, last := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	for _, addr := range []netip.Addr{first, last, last} {
		w.Configure(pod.Net{IfName: "eth0", Addrs: []netip.Addr{addr}, DefaultV4: true})
	}
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	held, err := pod.Read(w.NS, "eth0")
	want := []netip.Prefix{netip.PrefixFrom(last, 32)}
	if err != nil || held.MAC != model.MAC(w.MAC) || !slices.Equal(held.Addrs, want) {
		t.Errorf("the pod has %+v, %v", held, err)
	}
	if err := w.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := link.Find(id.HostIf); err == nil {
		t.Error("the link is left")
	}
}

// TestKernelError: the error for a read-only /proc/sys names the remedy.
func TestKernelError(t *testing.T) {
	err := kernelError(fmt.Errorf("set sysctl: %w", &os.PathError{Op: "open", Path: "/proc/sys/net/ipv4/ip_forward", Err: syscall.EROFS}))
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok || e.Code != protocol.CodeKernel || !strings.Contains(e.Text, "/proc/sys/net/ipv4/ip_forward: read-only file system") || !strings.HasPrefix(e.Hint, "mount /proc/sys read-write") {
		t.Errorf("got %+v", err)
	}
	if e, _ := errors.AsType[*protocol.Error](kernelError(syscall.ENOBUFS)); e == nil || e.Hint != "see the kernel's log" {
		t.Errorf("got %+v", e)
	}
}
