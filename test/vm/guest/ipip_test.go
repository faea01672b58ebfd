// SPDX-License-Identifier: Apache-2.0

//go:build e2evm

package guest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/routing"
)

// newLab makes a lab whose IPv4 pool has that mode of IPIP.
func newLab(t *testing.T, mode model.EncapMode, cfg lab.Config) *lab.Lab {
	t.Helper()
	cfg.Pool = func(p *model.Pool) {
		if p.CIDR.Addr().Is4() {
			p.IPIP, p.IPIPMode = "tunl0", mode
		} else if mode == model.EncapCrossSubnet { // the racks' routers don't know of IPv6 pods either
			p.VXLANMode = mode
		}
	}
	cfg.NoFsync, cfg.AgentEnv = true, []string{"IP6=autodetect"}
	return lab.ForTest(t, cfg)
}

// reaches waits until a pod has an answer from another.
func reaches(t *testing.T, from *lab.Pod, to lab.Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	if err := from.Ping(ctx, to); err != nil {
		t.Fatal(err)
	}
}

// tunnelled is how many packets a host has sent by tunl0.
func tunnelled(t *testing.T, h *lab.Host) int {
	t.Helper()
	out, err := h.Exec(t.Context(), "ip", "-s", "link", "show", "tunl0")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	n, err := strconv.Atoi(strings.Fields(lines[len(lines)-1])[1])
	if err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return n
}

// transfer sends bytes over TCP from one pod to another, which must get the same.
func transfer(t *testing.T, from, to *lab.Pod, size int) {
	t.Helper()
	var listener net.Listener
	err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp4", net.JoinHostPort(to.Addrs()[0].String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := make(chan error, 1)
	sum := sha256.New()
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			err = conn.SetDeadline(time.Now().Add(eventually.Limit))
		}
		if err == nil {
			_, err = io.Copy(sum, conn)
		}
		got <- err
	}()
	data := make([]byte, size)
	noise := rand.NewChaCha8([32]byte{1})
	_, _ = noise.Read(data) // it never fails
	err = from.Do(func() error {
		conn, err := net.DialTimeout("tcp4", listener.Addr().String(), eventually.Limit)
		if err != nil {
			return err
		}
		if err := conn.SetDeadline(time.Now().Add(eventually.Limit)); err != nil {
			return err
		}
		_, err = conn.Write(data)
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		listener.Close()
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(data); string(sum.Sum(nil)) != string(want[:]) {
		t.Error("what arrived isn't what was sent")
	}
}

// Pods of two hosts talk through tunl0.
func TestIPIPAlways(t *testing.T) {
	l := newLab(t, model.EncapAlways, lab.Config{Hosts: []string{"a", "b"}})
	a, b := l.Host("a"), l.Host("b")
	pa, pb := a.Pod("pod-a"), b.Pod("pod-b")
	reaches(t, pa, pb)
	reaches(t, pb, pa)
	before := [2]int{tunnelled(t, a), tunnelled(t, b)}
	const size = 4 << 20
	transfer(t, pa, pb, size)
	transfer(t, pb, pa, size)
	// Segments may be joined on their way, up to 64 KiB.
	for i, h := range []*lab.Host{a, b} {
		if n := tunnelled(t, h) - before[i]; n < size>>16 {
			t.Errorf("host %s sent %d packets by tunl0 in a transfer of %d bytes", h.Name(), n, size)
		}
	}
	for _, p := range []*lab.Pod{pa, pb} {
		out, err := p.Exec(t.Context(), "ip", "link", "show", "eth0")
		if err != nil || !strings.Contains(string(out), "mtu 1480") {
			t.Errorf("%s: %v\n%s", p.Name(), err, out)
		}
	}
	// The hosts have addresses in the tunnel.
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	if err := a.Ping(ctx, tunnelAddr(t, b)); err != nil {
		t.Error(err)
	}
}

// tunnelAddr is the host's own on tunl0.
func tunnelAddr(t *testing.T, h *lab.Host) lab.Address {
	t.Helper()
	out, err := h.Exec(t.Context(), "ip", "-4", "-o", "addr", "show", "dev", "tunl0")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), " inet ")
	p, err := netip.ParsePrefix(strings.Fields(rest + " none")[0])
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return lab.Address(p.Addr())
}

// Hosts of one subnet need no tunnel; others do.
func TestIPIPCrossSubnet(t *testing.T) {
	l := newLab(t, model.EncapCrossSubnet, lab.Config{Racks: [][]string{{"a", "c"}, {"b"}}})
	pods := map[string]*lab.Pod{}
	for _, h := range l.Hosts() {
		pods[h.Name()] = h.Pod("pod-" + h.Name())
	}
	for _, way := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "c"}, {"c", "a"}, {"b", "c"}} {
		reaches(t, pods[way[0]], pods[way[1]])
	}
	for to, through := range map[string]bool{"b": true, "c": false} {
		before := tunnelled(t, l.Host("a"))
		transfer(t, pods["a"], pods[to], 1<<20)
		if n := tunnelled(t, l.Host("a")) - before; (n > 0) != through {
			t.Errorf("from a to %s: %d packets by tunl0", to, n)
		}
	}
}

// A pool's mode changes live: the tunnel goes when no pool wants it, and comes back, also from one of another kind.
func TestIPIPModeChanges(t *testing.T) {
	l := newLab(t, model.EncapAlways, lab.Config{Hosts: []string{"a", "b"}})
	pa, pb := l.Host("a").Pod("pod-a"), l.Host("b").Pod("pod-b")
	reaches(t, pa, pb)
	key := model.PoolKey{CIDR: netip.MustParsePrefix("192.168.0.0/16")}
	flow := routing.StartTraffic(t, pa, pb, false)
	for _, device := range []string{"", "tunl0", "vxlan.calico", "tunl0"} {
		if device == "tunl0" {
			gone(t, l, device)
		}
		setPool(t, l, key, func(p *model.Pool) {
			switch device {
			case "tunl0":
				p.IPIP = device
			case "vxlan.calico":
				p.VXLANMode = model.EncapAlways
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
		err := eventually.Wait(ctx, fmt.Sprintf("the routes follow to device %q", device), func() error {
			out, err := l.Host("a").Exec(ctx, "ip", "route", "get", pb.Addrs()[0].String())
			if err == nil && !strings.Contains(string(out), "dev "+cmp.Or(device, "eth0")+" ") {
				err = fmt.Errorf("the way is %s", out)
			}
			return err
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		reaches(t, pa, pb)
		transfer(t, pa, pb, 1<<20)
	}
	// An emulated host may take longer to follow than another waits for it.
	if sent, lost := flow.Stop(); lost > sent/50 {
		t.Errorf("%d of %d datagrams were lost", lost, sent)
	}
}

// gone waits until no host has a tunnel any more.
func gone(t *testing.T, l *lab.Lab, device string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	for _, h := range l.Hosts() {
		err := eventually.Wait(ctx, device+" leaves host "+h.Name(), func() error {
			out, err := h.Exec(ctx, "ip", "-o", "link", "show", "up")
			if err == nil && strings.Contains(string(out), device+"@NONE") {
				err = fmt.Errorf("there is %s", out)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// setPool changes a pool in etcd.
func setPool(t *testing.T, l *lab.Lab, key model.PoolKey, change func(*model.Pool)) {
	t.Helper()
	p := model.Pool{CIDR: key.CIDR, IPAM: true}
	change(&p)
	if _, err := l.Etcd().Commit(t.Context(), model.Change{Puts: []model.Put{{Key: key, Value: p}}}); err != nil {
		t.Fatal(err)
	}
}
