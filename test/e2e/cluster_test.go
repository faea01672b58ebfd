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
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// isolated is set by scripts/isolate.
const isolated = "CALICO_ISOLATED"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == recorded {
		record()
	}
	if os.Getenv(isolated) == "" {
		fmt.Fprintln(os.Stderr, "these tests start a container runtime: run them by `make e2e`, which keeps it away from the machine")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A cluster is one node with containerd and Calico, and a machine beside it, on a network of their own.
type cluster struct {
	t       *testing.T
	lab     *lab.Lab
	node    *lab.Host
	outside *lab.Host
	bin     string // CNI plugins of the node
	*daemon
	*runtimeClient

	clean hostState // before the first pod
}

// A network is what a cluster's network configuration has beyond the lab's.
type network struct {
	fields  map[string]any   // of our plugin
	chained []map[string]any // plugins after ours
}

// newCluster makes a cluster.
func newCluster(ctx context.Context, t *testing.T, n network) *cluster {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := lab.ForTest(t, lab.Config{Hosts: []string{"node", "outside"}, BinDir: filepath.Join(root, "bin"), NoFsync: true})
	c := &cluster{t: t, lab: l, node: l.Host("node"), outside: l.Host("outside"), bin: t.TempDir()}
	ours, err := filepath.Glob(filepath.Join(root, "bin", "calico*"))
	if err != nil || len(ours) == 0 {
		t.Fatalf("binaries in %s/bin: %v, %v; `make build` puts them there", root, ours, err)
	}
	for _, name := range []string{"loopback", "portmap", "bandwidth"} {
		ours = append(ours, filepath.Join(root, "bin", "tools", name))
	}
	for _, path := range ours {
		if err := os.Symlink(path, filepath.Join(c.bin, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	conf, plugin := t.TempDir(), c.node.PluginConf()
	plugin["datastore_timeout_seconds"] = 60 // dozens of pods at once take their time on a busy machine
	maps.Copy(plugin, n.fields)
	list, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0", // what Debian's containerd speaks
		"name":       "k8s-pod-network",
		"plugins":    append([]map[string]any{plugin}, n.chained...),
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "10-calico.conflist"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	c.daemon = startContainerd(ctx, t, c.node.Namespace().Path(), c.node.VarDir(), conf, c.bin)
	c.runtimeClient = dial(ctx, t, c.daemon)
	c.clean = c.state(ctx)
	return c
}

// must runs a pod.
func (c *cluster) must(ctx context.Context, name string, options ...podOption) *pod {
	c.t.Helper()
	p, err := c.run(ctx, name, options...)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// restart ends containerd with a signal and starts it again.
func (c *cluster) restart(ctx context.Context, end func()) {
	c.t.Helper()
	end()
	c.start(ctx)
	c.waitReady(ctx, c.t)
}

// fetch asks for a page over HTTP from a host's network.
func fetch(ctx context.Context, from *lab.Host, to netip.AddrPort) (page string, err error) {
	err = from.Do(func() error {
		conn, err := (&net.Dialer{Timeout: eventually.Limit / 2}).DialContext(ctx, "tcp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(eventually.Limit / 2)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		data, err := io.ReadAll(reply.Body)
		page = strings.TrimSpace(string(data))
		return err
	})
	return page, err
}

// answers waits until a host gets the pod's name from an address.
func (c *cluster) answers(ctx context.Context, from *lab.Host, to netip.AddrPort, p *pod) {
	c.t.Helper()
	eventually.Nil(c.t, fmt.Sprintf("an answer of %s to %s at %v", p.name, from.Name(), to), func() error {
		page, err := fetch(ctx, from, to)
		if err == nil && page != p.name {
			err = fmt.Errorf("the page is %q", page)
		}
		return err
	})
}

// reachable waits until a pod answers its host on all its addresses.
func (c *cluster) reachable(ctx context.Context, p *pod) {
	c.t.Helper()
	for _, a := range p.addrs {
		c.answers(ctx, c.node, netip.AddrPortFrom(a, 80), p)
	}
}

// reachableFrom waits until a pod answers another pod on all its addresses.
func (c *cluster) reachableFrom(ctx context.Context, from, to *pod) {
	c.t.Helper()
	for _, a := range to.addrs {
		eventually.Nil(c.t, fmt.Sprintf("an answer of %s to %s at %v", to.name, from.name, a), func() error {
			out, err := c.exec(ctx, from, "/bin/sh", "-c", fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 %v 80`, a))
			if err == nil && !strings.HasSuffix(strings.TrimSpace(out), "\n"+to.name) {
				err = fmt.Errorf("the answer is %q", out)
			}
			return err
		})
	}
}

// endpoint is what etcd holds of a pod.
func (c *cluster) endpoint(ctx context.Context, p *pod) (model.WorkloadEndpoint, bool) {
	c.t.Helper()
	key := model.WorkloadEndpointKey{Host: c.node.Name(), Orchestrator: "k8s", Workload: "default." + p.name, Endpoint: "eth0"}
	for _, e := range c.dump(ctx) {
		if e.Key == key {
			return e.Value.(model.WorkloadEndpoint), true
		}
	}
	return model.WorkloadEndpoint{}, false
}

// dump is all that etcd holds; every entry of it must parse.
func (c *cluster) dump(ctx context.Context) []model.Entry {
	c.t.Helper()
	entries, _, err := c.lab.Dump(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Err != nil {
			c.t.Errorf("%s: %v", e.Path, e.Err)
		}
	}
	return entries
}

// A hostState is what pods may change on their host.
type hostState struct {
	Links      []string
	Routes     []string
	Namespaces []string
}

// state reads the host's state from the kernel.
func (c *cluster) state(ctx context.Context) hostState {
	c.t.Helper()
	var s hostState
	err := c.node.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			s.Links = append(s.Links, l.Name)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, family := range []string{"-4", "-6"} {
		out, err := c.node.Exec(ctx, "ip", family, "route", "show", "table", "all")
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			// What the kernel makes of addresses comes with them, goes with their link, and changes with forwarding. A
			// block stays the host's when its last pod goes, and so does its blackhole.
			if !strings.Contains(line, "proto kernel") && !strings.HasPrefix(line, "blackhole ") {
				s.Routes = append(s.Routes, strings.TrimSpace(line))
			}
		}
	}
	mounts, err := os.ReadDir(c.path("state/io.containerd.grpc.v1.cri/netns"))
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	for _, m := range mounts {
		s.Namespaces = append(s.Namespaces, m.Name())
	}
	slices.Sort(s.Links)
	slices.Sort(s.Routes)
	return s
}

// nothingLeft checks that etcd and the kernel are as they were before the first pod. What is the agent's to take away,
// routes and reports, follows when it hears of it; the invariants hold always.
func (c *cluster) nothingLeft(ctx context.Context) {
	c.t.Helper()
	eventually.Nil(c.t, "nothing to be left", func() error {
		entries := c.dump(ctx)
		for _, v := range invariants.Check(entries) {
			c.t.Errorf("invariant %d: %s", v.Invariant, v.Text)
		}
		var left []error
		if diff := cmp.Diff(c.clean, c.state(ctx)); diff != "" {
			left = append(left, fmt.Errorf("kernel (-before +now):\n%s", diff))
		}
		for _, e := range entries {
			switch e.Key.(type) {
			case model.WorkloadEndpointKey, model.HandleKey, model.WorkloadStatusKey:
				left = append(left, fmt.Errorf("etcd: %s", e.Path))
			case model.BlockKey:
				if b, ok := e.Value.(model.Block); ok && len(b.Unallocated) != len(b.Allocations) {
					left = append(left, fmt.Errorf("etcd: %d addresses of %s", len(b.Allocations)-len(b.Unallocated), e.Path))
				}
			}
		}
		return errors.Join(left...)
	})
}
