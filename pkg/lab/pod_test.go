// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sync/errgroup"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// noViolations checks the data model's invariants over what etcd holds now.
func noViolations(t *testing.T, l *Lab) {
	t.Helper()
	entries, _, err := l.Dump(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range invariants.Check(entries) {
		t.Error(v)
	}
}

func TestPods(t *testing.T) {
	var mu sync.Mutex
	var verbs []string
	l := ForTest(t, Config{Hosts: []string{"a"}, Trace: func(c Call, r Reply) {
		mu.Lock()
		defer mu.Unlock()
		verbs = append(verbs, c.Plugin+" "+c.Verb)
		if !json.Valid(c.Stdin) || (c.Verb == "ADD") != json.Valid(r.Stdout) {
			t.Errorf("%s: in %q, out %q", c.Verb, c.Stdin, r.Stdout)
		}
	}})
	a := l.Host("a")
	web, db := a.Pod("web"), a.Pod("db", PodConfig{Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "db"}}})
	for _, p := range []*Pod{web, db} {
		if len(p.Addrs()) != 2 || !p.Addrs()[0].Is4() || !p.Addrs()[1].Is6() {
			t.Errorf("pod %s has addresses %v, want one of each family", p.Name(), p.Addrs())
		}
		for _, target := range []Target{web, db, a} {
			if err := p.Ping(soon(t), target); err != nil {
				t.Error(err)
			}
		}
		if err := a.Ping(soon(t), p); err != nil {
			t.Error(err)
		}
		if err := p.Check(soon(t)); err != nil {
			t.Errorf("CHECK of pod %s: %v", p.Name(), err)
		}
	}
	if err := a.CheckEmpty(); err == nil {
		t.Error("a host with pods looks empty")
	}
	noViolations(t, l)

	// Another process sees the same.
	other, err := Open(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	pods, err := other.Pods()
	if err != nil || len(pods) != 2 || pods[0].Name() != "db" || fmt.Sprint(pods[1].Addrs()) != fmt.Sprint(web.Addrs()) {
		t.Errorf("as another process sees it: %v, %v", pods, err)
	}

	for _, p := range []*Pod{web, db} {
		if err := p.Delete(soon(t)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(p.Namespace().Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the namespace of pod %s: %v", p.Name(), err)
		}
	}
	if err := eventually.Wait(soon(t), "an empty host", a.CheckEmpty); err != nil {
		t.Error(err)
	}
	noViolations(t, l)
	if got, want := strings.Join(verbs, ", "), "calico ADD, calico ADD, calico CHECK, calico CHECK, calico DEL, calico DEL"; got != want {
		t.Errorf("ran %s; want %s", got, want)
	}
}

func TestManyPodsOnManyHosts(t *testing.T) {
	long.Test(t)
	l := ForTest(t, Config{Hosts: []string{"a", "b", "c"}})
	var group errgroup.Group
	group.SetLimit(8)
	for _, h := range l.Hosts() {
		for i := range 8 {
			group.Go(func() error {
				p, err := h.AddPod(t.Context(), fmt.Sprintf("%s-%d", h.Name(), i), PodConfig{})
				if err != nil {
					return err
				}
				return p.Ping(soon(t), h)
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	noViolations(t, l)
	pods, err := l.Pods()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Addr]string{}
	for _, p := range pods {
		for _, addr := range p.Addrs() {
			if seen[addr] != "" {
				t.Errorf("%s belongs to %s and to %s", addr, seen[addr], p.Name())
			}
			seen[addr] = p.Name()
		}
		group.Go(func() error { return p.Delete(t.Context()) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2*3*8 {
		t.Errorf("%d addresses, want %d", len(seen), 2*3*8)
	}
	for _, h := range l.Hosts() {
		if err := eventually.Wait(soon(t), "an empty host", h.CheckEmpty); err != nil {
			t.Error(err)
		}
	}
}

func TestFailedPodLeavesNothing(t *testing.T) {
	l := ForTest(t, Config{Hosts: []string{"a"}, NoAgent: true, Pools: []netip.Prefix{}})
	_, err := l.Host("a").AddPod(soon(t), "web", PodConfig{})
	var said *types.Error
	if !errors.As(err, &said) {
		t.Fatalf("without a pool: got %v, want the plugin's error", err)
	}
	for _, wrong := range []PodConfig{{IfName: "x/y"}, {ContainerID: "x/y"}, {ConfFile: "/nowhere"}} {
		if _, err := l.Host("a").AddPod(soon(t), "web", wrong); err == nil || errors.As(err, &said) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if pods, err := l.Pods(); len(pods) != 0 || err != nil {
		t.Errorf("pods: %v, %v", pods, err)
	}
	if _, err := l.FindNamespace("web"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its namespace: %v", err)
	}
	if err := l.Host("a").CheckEmpty(); err != nil {
		t.Error(err)
	}
}

func TestAgent(t *testing.T) {
	l := ForTest(t, Config{Hosts: []string{"a"}})
	a := l.Host("a")
	first, err := a.Agent().Process()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Agent().Launch(); err == nil {
		t.Error("a second agent was started")
	}
	for name, stop := range map[string]func() error{"stop": a.Agent().Stop, "kill": a.Agent().Kill} {
		if err := stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.Agent().Process(); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("after %s: got %v, want %v", name, err, os.ErrProcessDone)
		}
		if err := a.Agent().Start(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	if second, err := a.Agent().Process(); err != nil || second.PID == first.PID {
		t.Errorf("the agent after two restarts: %v, %v", second, err)
	}
	// The agent of another process's lab is found by its record.
	other, err := Open(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Host("a").Agent().Kill(); err != nil {
		t.Error(err)
	}
	if _, err := a.Agent().Process(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after the other process's kill: %v", err)
	}
	if files := l.LogFiles(); len(files) == 0 || filepath.Base(files[0]) != "agent-a.log" {
		t.Errorf("log files: %v", files)
	}
}
