// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// frrDir is where Debian has FRR's daemons.
const frrDir = "/usr/lib/frr"

// FRR is zebra and bgpd of FRR in a namespace of a lab.
type FRR struct {
	tb          testing.TB
	ns          lab.Namespace
	dir         string
	zebra, bgpd *exec.Cmd
	log         *output
}

// StartFRR starts them with that configuration of bgpd.
func StartFRR(tb testing.TB, ns lab.Namespace, config string) *FRR {
	tb.Helper()
	// The daemons become another user, for whom a test's own directory is closed.
	dir, err := os.MkdirTemp("", "frr")
	if err != nil {
		tb.Fatal(err)
	}
	f := &FRR{tb: tb, ns: ns, dir: dir, log: new(output)}
	tb.Cleanup(func() {
		f.Kill()
		_ = f.zebra.Process.Kill()
		_ = f.zebra.Wait() // it was killed, which is an error
		if tb.Failed() {
			tb.Logf("FRR's log:\n%s", f.log)
		}
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	if out, err := exec.Command("chown", "frr:frr", dir).CombinedOutput(); err != nil {
		tb.Fatalf("chown: %v: %s", err, out)
	}
	for name, text := range map[string]string{"zebra.conf": "log stdout\n", "bgpd.conf": "log stdout\n" + config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	f.zebra = f.daemon("zebra")
	eventually.Nil(tb, "zebra starts", func() error { // bgpd would ask again after 10 s
		_, err := os.Stat(filepath.Join(dir, "zserv"))
		return err
	})
	f.Start()
	return f
}

func (f *FRR) daemon(name string, args ...string) *exec.Cmd {
	f.tb.Helper()
	in := func(file string) string { return filepath.Join(f.dir, file) }
	cmd := exec.Command(filepath.Join(frrDir, name), append(args, "-f", in(name+".conf"), "-i", in(name+".pid"),
		"-z", in("zserv"), "--vty_socket", f.dir, "-A", "127.0.0.1", "-P", "0", "-u", "frr", "-g", "frr")...)
	cmd.Stdout, cmd.Stderr = f.log, f.log
	if err := f.ns.Do(cmd.Start); err != nil {
		f.tb.Fatal(err)
	}
	return cmd
}

// Start starts bgpd again after Kill.
func (f *FRR) Start() {
	f.tb.Helper()
	f.bgpd = f.daemon("bgpd")
}

// Kill ends bgpd at once. zebra stays, and keeps the kernel's routes for a while.
func (f *FRR) Kill() {
	_ = f.bgpd.Process.Kill() // it may have ended
	_ = f.bgpd.Wait()         // it was killed, which is an error
}

// Ask has vtysh do something.
func (f *FRR) Ask(commands ...string) (string, error) {
	args := []string{"--vty_socket", f.dir}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := exec.Command("vtysh", args...).CombinedOutput()
	return string(out), err
}

var frrRoute = regexp.MustCompile(`^B[ >*]*([0-9a-f.:]+/[0-9]+) \[.* via ([0-9a-f.:]+),`)

var frrStale = regexp.MustCompile(`(?m)^ ?S[ *>]`)

// Learned are the prefixes that zebra has from BGP, with next hops; what cannot
// be asked is said instead.
func (f *FRR) Learned() (list []string) {
	for _, show := range []string{"show ip route bgp", "show ipv6 route bgp"} {
		out, err := f.Ask(show)
		if err != nil {
			return []string{"vtysh: " + out}
		}
		for line := range strings.Lines(out) {
			if m := frrRoute.FindStringSubmatch(line); m != nil {
				list = append(list, fmt.Sprintf("%s via %s", m[1], m[2]))
			}
		}
	}
	slices.Sort(list)
	return list
}

// Recovering is BIRD.Recovering.
func (f *FRR) Recovering() bool {
	for _, show := range []string{"show bgp ipv4 unicast", "show bgp ipv6 unicast"} {
		out, err := f.Ask(show)
		if err != nil || frrStale.MatchString(out) {
			return true
		}
	}
	return false
}
