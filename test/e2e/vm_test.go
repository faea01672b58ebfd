// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestVirtualMachine boots a real virtual machine. It gets its address by DHCP, reaches a pod on another host, is stopped by a policy,
// and moves to another host as it runs: a connection of its goes on.
func TestVirtualMachine(t *testing.T) {
	ctx := within(t, 5*time.Minute)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	kernel, image := filepath.Join(root, "bin/vm/kernel"), filepath.Join(t.TempDir(), "initramfs")
	if err := guestImage(kernel, image); err != nil {
		t.Fatal(err)
	}
	l := newMachines(ctx, t, "a", "b", "c")
	pod := l.Host("c").Pod("pod")
	m := &machine{t: t, lab: l, host: l.Host("a"), name: "vm", spec: machineSpec("vm")}
	m.spec.Labels = map[string]string{"role": "vm"}
	m.spec.ProfileIDs = profilesOf(ctx, t, l, pod)
	for _, h := range []string{"a", "b"} {
		if out, err := l.Host(h).Exec(ctx, "sh", "-ec", "ip tuntap add dev tapvm mode tap; ip link set tapvm up"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	g := startGuest(ctx, t, m.host, kernel, image, "tapvm", m.spec.MAC.String(), "")
	m.write(ctx)
	if out, _ := g.sh("until [ -e /leased ]; do sleep 0.1; done; cat /leased"); !strings.Contains(out, "192.168.200.24/24 192.168.200.1 192.168.200.53 vm.example.com 1400") {
		log, _ := g.sh("cat /udhcpc")
		t.Fatalf("leased: %s\n%s", out, log)
	}

	ping := "ping -c 1 -W 2 " + pod.Addrs()[0].String()
	eventually.Nil(t, "the machine to reach a pod", func() error { return g.passes(ping) })
	deny := model.PolicyKey{Tier: "default", Policy: "no-vm"}
	commit(ctx, t, l, model.Change{Puts: []model.Put{{Key: deny, Value: model.Policy{Selector: `role == "vm"`, Outbound: []model.Rule{{Action: model.ActionDeny}}}}}})
	eventually.Nil(t, "the policy to deny it", func() error {
		if g.passes(ping) == nil {
			return errors.New("the pod answers")
		}
		return nil
	})
	commit(ctx, t, l, model.Change{Deletes: []model.Key{deny}})
	eventually.Nil(t, "the machine to reach the pod again", func() error { return g.passes(ping) })

	say := dialEcho(ctx, t, pod, "192.168.200.24:7")
	say("before it moves")
	way := "unix:" + filepath.Join(t.TempDir(), "move")
	moved := startGuest(ctx, t, l.Host("b"), kernel, image, "tapvm", m.spec.MAC.String(), way)
	g.moveTo(way)
	old := m.key()
	m.host = l.Host("b")
	commit(ctx, t, l, model.Change{Puts: []model.Put{{Key: m.key(), Value: m.spec}}, Deletes: []model.Key{old}})
	say("after it moved")
	moved.said = g.said
	if err := moved.passes(ping); err != nil {
		t.Errorf("from its new host: %v", err)
	}
}

// passes says whether a command in the guest succeeds.
func (g *guest) passes(command string) error {
	if out, status := g.sh(command); status != 0 {
		return fmt.Errorf("%s: status %d: %s", command, status, out)
	}
	return nil
}

// profilesOf are those of a pod.
func profilesOf(ctx context.Context, t *testing.T, l *lab.Lab, p *lab.Pod) []string {
	t.Helper()
	entries, _, err := l.Dump(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if k, ok := e.Key.(model.WorkloadEndpointKey); ok && k.Host == p.Host().Name() {
			return e.Value.(model.WorkloadEndpoint).ProfileIDs
		}
	}
	t.Fatalf("%s has no endpoint", p.Name())
	return nil
}

// dialEcho connects a pod to an echo server, and returns what has the server say something.
func dialEcho(ctx context.Context, t *testing.T, p *lab.Pod, addr string) (say func(string)) {
	t.Helper()
	var conn net.Conn
	err := p.Do(func() (err error) {
		d := net.Dialer{Timeout: eventually.Limit}
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // nothing is lost
	echo := bufio.NewScanner(conn)
	return func(text string) {
		t.Helper()
		err := conn.SetDeadline(time.Now().Add(eventually.Limit))
		if err == nil {
			_, err = fmt.Fprintln(conn, text)
		}
		if err != nil || !echo.Scan() || echo.Text() != text {
			t.Fatalf("say %q: %q is said: %v, %v", text, echo.Text(), err, echo.Err())
		}
	}
}
