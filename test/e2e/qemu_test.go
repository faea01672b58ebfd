// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/vm/cpio"
)

// A guest is a real virtual machine, emulated by QEMU: Debian's kernel with busybox, a network interface at a tap and a
// shell at its console.
type guest struct {
	t       *testing.T
	cmd     *exec.Cmd
	console io.Writer
	lines   chan string
	monitor net.Conn
	answers *json.Decoder
	said    int
}

// guestInit is a guest's first process. Busybox's DHCP client and an echo server run in the background.
const guestInit = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for m in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net; do insmod /modules/$m.ko; done
ip link set lo up
ip link set eth0 up
udhcpc -b -q -S -t 100 -T 1 -i eth0 -s /lease 2>/udhcpc &
nc -ll -p 7 -e cat &
stty -echo
echo guest-is-ready
while read -r command; do eval "$command"; done
`

// guestLease does what DHCP says.
const guestLease = `#!/bin/sh
[ "$1" = bound ] || exit 0
ip link set eth0 mtu $mtu
ip addr add $ip/$mask dev eth0
ip route add default via $router
echo $ip/$mask $router $dns $hostname.$domain $mtu >/leased
`

// guestImage writes a guest's initial file system, from the kernel's modules in a directory.
func guestImage(kernel, file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	w := cpio.NewWriter(f)
	err = errors.Join(w.Dir("dev"), w.Dir("proc"), w.File("bin/busybox", busybox), w.Bytes("init", []byte(guestInit)), w.Bytes("lease", []byte(guestLease)))
	modules, globErr := filepath.Glob(filepath.Join(kernel, "lib/modules/*/kernel"))
	if err = errors.Join(err, globErr); err != nil || len(modules) != 1 {
		return errors.Join(err, fmt.Errorf("%s has %d versions of modules: want one", kernel, len(modules)))
	}
	for _, m := range []string{
		"virtio/virtio", "virtio/virtio_ring", "virtio/virtio_pci_modern_dev", "virtio/virtio_pci_legacy_dev", "virtio/virtio_pci", "net/net_failover", "net/virtio_net",
	} {
		err = errors.Join(err, w.File("modules/"+filepath.Base(m)+".ko", filepath.Join(modules[0], "drivers", m+".ko")))
	}
	return errors.Join(err, w.File("modules/failover.ko", filepath.Join(modules[0], "net/core/failover.ko")), w.Close())
}

// startGuest starts a guest on a host, at a tap that is there. Where from isn't empty it waits for another that moves here.
func startGuest(ctx context.Context, t *testing.T, host *lab.Host, kernel, image, tap, mac, from string) *guest {
	t.Helper()
	monitor := filepath.Join(t.TempDir(), "qmp")
	args := []string{
		"-accel", "tcg", "-cpu", "max", "-m", "160", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-qmp", "unix:" + monitor + ",server=on,wait=off",
		"-kernel", filepath.Join(kernel, "vmlinuz"), "-initrd", image, "-append", "console=ttyS0 panic=-1 quiet mitigations=off random.trust_cpu=on",
		"-netdev", "tap,id=net0,ifname=" + tap + ",script=no,downscript=no", "-device", "virtio-net-pci,netdev=net0,romfile=,mac=" + mac,
	}
	if from != "" {
		args = append(args, "-incoming", from)
	}
	g := &guest{t: t, cmd: exec.CommandContext(ctx, "qemu-system-x86_64", args...), lines: make(chan string, 1000)}
	out, err := g.cmd.StdoutPipe()
	if err == nil {
		g.console, err = g.cmd.StdinPipe()
	}
	g.cmd.Stderr = t.Output()
	if err = errors.Join(err, host.Do(g.cmd.Start)); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			g.lines <- strings.TrimSpace(lines.Text())
		}
		close(g.lines)
	}()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill() // it may have ended
		for range g.lines {
		}
		<-read
		_ = g.cmd.Wait() // it was killed
	})
	eventually.Nil(t, "the machine's monitor", func() (err error) {
		g.monitor, err = net.Dial("unix", monitor)
		return err
	})
	t.Cleanup(func() { _ = g.monitor.Close() }) // nothing is lost
	g.answers = json.NewDecoder(g.monitor)
	g.control("qmp_capabilities", nil)
	if from == "" {
		g.until("guest-is-ready")
	}
	return g
}

// sh runs a command in the guest, and returns what it writes and its exit status.
func (g *guest) sh(command string) (string, int) {
	g.t.Helper()
	g.said++
	mark := fmt.Sprintf("end-%d-is", g.said)
	// Quotes keep the mark out of an echo of the command.
	if _, err := fmt.Fprintf(g.console, "%s; echo 'end'-%d-is $?\n", command, g.said); err != nil {
		g.t.Errorf("%s: %v", command, err) // what the machine said last comes below
	}
	out, status := g.until(mark)
	code, err := strconv.Atoi(strings.TrimSpace(status))
	if err != nil {
		g.t.Fatal(err)
	}
	return out, code
}

// until returns what the guest writes before a mark, and what stands behind that on its line.
func (g *guest) until(mark string) (out, rest string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), eventually.Limit)
	defer cancel()
	for {
		select {
		case line, ok := <-g.lines:
			if !ok {
				g.t.Fatalf("the machine ended:\n%s", out)
			}
			before, rest, found := strings.Cut(line, mark)
			out += before
			if found {
				return out, rest
			}
			out += "\n"
		case <-ctx.Done():
			g.t.Fatalf("the machine doesn't say %s:\n%s", mark, out)
		}
	}
}

// control has the emulator execute a command (QMP), and returns the status that it answers with, if it has one.
func (g *guest) control(command string, arguments map[string]any) (status string) {
	g.t.Helper()
	question := struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{command, arguments}
	if err := json.NewEncoder(g.monitor).Encode(question); err != nil {
		g.t.Fatal(err)
	}
	for {
		var answer struct {
			Return *struct{ Status string }
			Error  *struct{ Desc string }
		}
		switch err := g.answers.Decode(&answer); {
		case err != nil:
			g.t.Fatalf("%s: %v", command, err)
		case answer.Error != nil:
			g.t.Fatalf("%s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return answer.Return.Status
		}
	}
}

// moveTo moves the guest, as it runs, to another emulator that waits for it.
func (g *guest) moveTo(address string) {
	g.t.Helper()
	g.control("migrate", map[string]any{"uri": address})
	eventually.Nil(g.t, "the machine to be moved", func() error {
		if status := g.control("query-migrate", nil); status != "completed" {
			return errors.New(status)
		}
		return nil
	})
}
