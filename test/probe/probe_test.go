// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/calico-go/calico/test/netns"
	"github.com/calico-go/calico/test/probe"
)

type namespace struct {
	testing.TB
	file *os.File
}

func (n namespace) Do(fn func() error) (err error) {
	entered := false
	netns.Within(n, n.file, func() { entered, err = true, fn() })
	if !entered {
		return errors.New("the namespace can't be entered")
	}
	return err
}

// TestChange drops packets by a rule, and lets them through again.
func TestChange(t *testing.T) {
	ns := namespace{t, netns.New(t)}
	nft := func(args ...string) func() error {
		return func() error {
			return ns.Do(func() error { return exec.Command("nft", args...).Run() })
		}
	}
	err := ns.Do(func() error {
		return errors.Join(exec.Command("ip", "link", "set", "lo", "up").Run(), exec.Command("nft", "add table ip t; add chain ip t c { type filter hook input priority 0; }").Run())
	})
	if err != nil {
		t.Fatal(err)
	}
	path, err := probe.Open(ns, ns, netip.MustParseAddrPort("127.0.0.1:7000"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = path.Close() }() // nothing is written to it
	for _, step := range []struct {
		name   string
		allows bool
		change func() error
	}{
		{"deny", false, nft("add", "rule", "ip", "t", "c", "udp", "dport", "7000", "drop")},
		{"allow", true, nft("flush", "chain", "ip", "t", "c")},
		{"deny again", false, nft("add", "rule", "ip", "t", "c", "udp", "dport", "7000", "drop")},
	} {
		begin := time.Now()
		effect, err := path.Change(t.Context(), step.allows, step.change)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if !begin.Before(effect.Before) || !effect.Before.Before(effect.Since) || !effect.Since.Before(time.Now()) {
			t.Errorf("%s, begun at %v: %+v", step.name, begin, effect)
		}
	}
	fault := errors.New("fault")
	if _, err := path.Change(t.Context(), true, func() error { return fault }); !errors.Is(err, fault) {
		t.Errorf("a change that fails: %v", err)
	}
}
