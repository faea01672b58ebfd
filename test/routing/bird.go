// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
)

// output is what a process writes, to read while it does.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// BIRD is a BIRD 2 in a namespace of a lab.
type BIRD struct {
	tb  testing.TB
	ns  lab.Namespace
	dir string
	cmd *exec.Cmd
	log *output
}

// StartBIRD starts one with that configuration. Protocol device and the log are
// configured for all.
func StartBIRD(tb testing.TB, ns lab.Namespace, config string) *BIRD {
	tb.Helper()
	b := &BIRD{tb: tb, ns: ns, dir: tb.TempDir(), log: new(output)}
	b.write(config)
	b.Start()
	tb.Cleanup(func() {
		b.Kill()
		if tb.Failed() {
			tb.Logf("BIRD's log:\n%s", b.log)
		}
	})
	return b
}

func (b *BIRD) write(config string) {
	b.tb.Helper()
	config = "log stderr all;\nprotocol device { scan time 1; }\n" + config
	if err := os.WriteFile(filepath.Join(b.dir, "bird.conf"), []byte(config), 0o600); err != nil {
		b.tb.Fatal(err)
	}
}

// Start starts it again after Kill; "-R" says that it recovers.
func (b *BIRD) Start(args ...string) {
	b.tb.Helper()
	b.cmd = exec.Command("bird", append(args, "-f", "-c", filepath.Join(b.dir, "bird.conf"),
		"-s", filepath.Join(b.dir, "ctl"), "-P", filepath.Join(b.dir, "pid"))...)
	b.cmd.Stderr = b.log
	if err := b.ns.Do(b.cmd.Start); err != nil {
		b.tb.Fatal(err)
	}
}

// Kill ends it at once.
func (b *BIRD) Kill() {
	b.tb.Helper()
	_ = b.cmd.Process.Kill() // it may have ended
	_ = b.cmd.Wait()         // it was killed, which is an error
}

// Configure has it take another configuration.
func (b *BIRD) Configure(config string) {
	b.tb.Helper()
	b.write(config)
	if out, err := b.Ask("configure"); err != nil || !strings.Contains(out, "econfigur") {
		b.tb.Fatalf("configure BIRD: %v: %s", err, out)
	}
}

// Ask has birdc do something.
func (b *BIRD) Ask(words ...string) (string, error) {
	out, err := exec.Command("birdc", slices.Concat([]string{"-s", filepath.Join(b.dir, "ctl")}, words)...).CombinedOutput()
	return string(out), err
}

// Learned are the prefixes that it has from neighbours, with the next hops of
// their best paths; what cannot be asked is said instead.
func (b *BIRD) Learned() []string {
	out, err := b.Ask("show", "route", "where", "source", "=", "RTS_BGP")
	if err != nil {
		return []string{"birdc: " + out}
	}
	var list []string
	hops := false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && strings.Contains(f[0], "/"):
			list = append(list, f[0])
			hops = strings.Contains(line, "* (")
		case len(f) > 1 && f[0] == "unicast": // another path to the same
			hops = strings.Contains(line, "* (")
		case len(f) > 1 && f[0] == "via" && len(list) > 0 && hops:
			list[len(list)-1] += " via " + f[1]
		}
	}
	slices.Sort(list)
	return list
}

// Recovering says whether a neighbour has yet to say all that it has after a
// restart: what it doesn't say leaves then.
func (b *BIRD) Recovering() bool {
	out, err := b.Ask("show", "protocols", "all")
	return err != nil || strings.Contains(out, "Neighbor graceful restart active")
}

// A Neighbour is a routing daemon.
type Neighbour interface {
	Learned() []string
	Recovering() bool
}

// Has says whether a prefix was learned, with or without saying by whom.
func Has(learned []string, want string) bool {
	return slices.ContainsFunc(learned, func(l string) bool { return l == want || strings.HasPrefix(l, want+" via ") })
}

// Settled waits until it has all of the prefixes, "192.168.1.0/26 via
// 172.20.1.1", and nobody is restarting: who restarts once more before that is
// forgotten (RFC 4724, 4.2).
func (r *Rig) Settled(n Neighbour, want ...string) {
	r.Helper()
	r.Until(fmt.Sprintf("the daemon has %q", want), func() error {
		got := n.Learned()
		for _, w := range want {
			if !Has(got, w) {
				return fmt.Errorf("it has %q", got)
			}
		}
		if n.Recovering() {
			return errors.New("a neighbour is restarting")
		}
		return nil
	})
}
