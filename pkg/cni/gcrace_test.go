// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// before returns an etcd endpoint at which the first request that contains the text waits until meanwhile has returned.
func (r *rig) before(text string, meanwhile func()) string {
	r.Helper()
	var first sync.Once
	return r.relay(func(_ net.Conn, data []byte) (more bool) {
		if bytes.Contains(data, []byte(text)) {
			first.Do(meanwhile)
		}
		return false
	})
}

// relay returns an etcd endpoint at which a function sees what a client sends before etcd does. If it returns more, the
// data is held back until the client sends more, and is lost if the client disconnects.
func (r *rig) relay(see func(client net.Conn, data []byte) (more bool)) string {
	r.Helper()
	dir, err := os.MkdirTemp("", "etcd") // a socket's path must be short
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			etcd, err := net.Dial("unix", strings.TrimPrefix(r.lab.Members().Sockets()[0], "unix://"))
			if err != nil {
				r.Error(err)
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, etcd) }()
			go func() {
				defer func() { _ = etcd.Close() }()
				buf := make([]byte, 64<<10)
				var kept []byte
				for {
					n, err := client.Read(buf)
					if err != nil {
						return
					}
					kept = append(kept, buf[:n]...)
					if see(client, buf[:n]) {
						continue
					}
					if _, err := etcd.Write(kept); err != nil {
						return
					}
					kept = nil
				}
			}()
		}
	}()
	return "unix://" + socket
}

// gcDuring runs GC of all of net1, and does something just before GC reads what the text names.
func (r *rig) gcDuring(text string, meanwhile func()) lab.Reply {
	r.Helper()
	return r.gcBy("calico", text, meanwhile)
}

// gcBy is gcDuring with one of the two plugins.
func (r *rig) gcBy(plugin, text string, meanwhile func()) lab.Reply {
	r.Helper()
	done := false
	conf := r.conf(map[string]any{
		"etcd_endpoints":            r.before(text, func() { meanwhile(); done = true }),
		"datastore_timeout_seconds": 240, // what is done meanwhile takes of it
	})
	reply := r.must(withAttachments(r, lab.Call{Plugin: plugin, Verb: "GC", Stdin: conf}))
	if !done {
		r.Errorf("GC reads nothing of %s\n%s", text, reply.Stderr)
	}
	return reply
}

// atTheGate begins an ADD, and returns once it has written its endpoint and waits for the agent.
func (r *rig) atTheGate(c lab.Call) *exec.Cmd {
	r.Helper()
	cmd := r.begin(c)
	if err := eventually.Wait(r.ctx(), "an endpoint", func() error {
		if len(r.endpoints()) == 1 && len(r.links()) == 1 {
			return nil
		}
		return errors.New("not yet")
	}); err != nil {
		r.Error(err)
	}
	return cmd
}

// begin begins an ADD.
func (r *rig) begin(c lab.Call) *exec.Cmd {
	r.Helper()
	cmd := exec.Command(filepath.Join(pathOf(r), "calico"))
	cmd.Env = append(append(os.Environ(), r.host.Env()...),
		"CNI_COMMAND=ADD", "CNI_CONTAINERID="+c.ContainerID, "CNI_IFNAME=eth0", "CNI_NETNS="+c.Netns)
	cmd.Stdin = bytes.NewReader(c.Stdin)
	if err := r.host.Do(cmd.Start); err != nil {
		r.Error(err)
	}
	return cmd
}

// TestGCDuringAnAdd: an ADD commits after GC has begun: after GC has looked for links, or also for endpoints, and
// before it looks for addresses.
func TestGCDuringAnAdd(t *testing.T) {
	long.Test(t)
	addresses := model.AffinityPrefix("a")
	t.Run("at work", func(t *testing.T) {
		r := newRig(t, small())
		r.agentRan()
		c := call(r.pod("pod"), r.conf(map[string]any{"policy_setup_timeout_seconds": 300}))
		var cmd *exec.Cmd
		reply := r.gcDuring(addresses, func() { cmd = r.atTheGate(c) })
		if !strings.Contains(string(reply.Stderr), "leaving it: a call for it is at work") {
			t.Errorf("GC says nothing of the ADD:\n%s", reply.Stderr)
		}
		if got := r.handles(); !slices.Equal(got, []string{"net1.c1.eth0"}) || len(r.endpoints()) != 1 || len(r.links()) != 1 {
			t.Errorf("after GC: handles %v, endpoints %v, links %v", got, r.endpoints(), r.links())
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was interrupted
		r.empty()
	})
	for name, text := range map[string]string{"after the links": model.WorkloadEndpointPrefix("a"), "after the endpoints": addresses} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, its link lost: %t", name, lost), func(t *testing.T) {
				r := newRig(t, small())
				c := call(r.pod("pod"), r.conf(nil))
				c.Args = k8sArgs
				var links []string
				reply := r.gcDuring(text, func() {
					r.add(c)
					if lost {
						r.sh("ip link del " + r.links()[0])
					}
					links = r.links()
				})
				if got := r.handles(); !slices.Equal(got, []string{"net1.c1.eth0"}) || len(r.endpoints()) != 1 || !slices.Equal(r.links(), links) {
					t.Errorf("after GC: handles %v, endpoints %v, links %v\n%s", got, r.endpoints(), r.links(), reply.Stderr)
				}
				// Now it is there from the beginning.
				r.must(withAttachments(r, verb("GC", c)))
				r.empty()
			})
		}
	}
	t.Run("the pod's former sandbox", func(t *testing.T) {
		r := newRig(t, small())
		c := call(r.pod("pod"), r.conf(nil))
		c.Args = k8sArgs
		r.add(c)
		// Its endpoint is lost, and a new sandbox takes its place.
		key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "k8s", Workload: "default.web", Endpoint: "eth0"}
		if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{key}}); err != nil {
			t.Fatal(err)
		}
		next := c
		next.ContainerID, next.Netns = "c2", r.pod("next")
		r.gcDuring(addresses, func() { r.add(next) })
		if got := r.handles(); !slices.Equal(got, []string{"net1.c2.eth0"}) || len(r.endpoints()) != 1 || len(r.links()) != 1 {
			t.Errorf("after GC: handles %v, endpoints %v, links %v", got, r.endpoints(), r.links())
		}
		r.must(verb("DEL", next))
		r.empty()
	})
}

// TestGCOfAnEndpointWithoutAContainer: other software has rewritten an endpoint. GC removes it along with its
// addresses, which the block records as its own.
func TestGCOfAnEndpointWithoutAContainer(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	r.add(c)
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}
	ep := r.endpoints()["cni c1 eth0"]
	ep.ContainerID = ""
	r.put(key, ep)
	r.sh("ip link del " + r.links()[0])
	r.must(withAttachments(r, verb("GC", c)))
	r.empty()
}

// TestGCWithOthersAddresses: GC of a network with another plugin's addresses finds containers of other networks that
// have no link. Nothing shows whose endpoints they are.
func TestGCWithOthersAddresses(t *testing.T) {
	cfg := small()
	cfg.CNIPath = []string{reference(t)}
	r := newRig(t, cfg)
	hostLocal, dir := r.hostLocal(nil)
	own := call(r.pod("own"), r.conf(map[string]any{"name": "net2"}))
	own.ContainerID = "own"
	given, _ := r.hostLocal(map[string]any{"name": "net3"})
	other := call(r.pod("other"), given)
	other.ContainerID = "other"
	for _, c := range []lab.Call{own, other} {
		r.add(c)
	}
	for _, link := range r.links() {
		r.sh("ip link del " + link) // as a reboot does
	}
	mine := call(r.pod("mine"), hostLocal)
	r.add(mine)
	r.sh("ip link del " + r.links()[0])
	gc := withAttachments(r, verb("GC", mine))
	r.must(gc)
	stay := func(what string, want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(r.endpoints())); !slices.Equal(got, want) {
			t.Errorf("%s: endpoints %v, want %v", what, got, want)
		}
		if got := leases(t, dir); len(got) != 0 {
			t.Errorf("%s: host-local still has %v", what, got)
		}
	}
	stay("no link", "cni other eth0", "cni own eth0")

	// One is added after GC has looked for links.
	added := call(r.pod("added"), r.conf(map[string]any{"name": "net2"}))
	added.ContainerID = "added"
	gc.Stdin, _ = r.hostLocal(map[string]any{
		"etcd_endpoints": r.before(model.WorkloadEndpointPrefix("a"), func() { r.add(added) }), "datastore_timeout_seconds": 240,
	})
	r.must(withAttachments(r, gc))
	stay("added meanwhile", "cni added eth0", "cni other eth0", "cni own eth0")

	if len(r.links()) != 1 {
		t.Errorf("links %v", r.links())
	}
	for _, c := range []lab.Call{own, other, added} {
		r.must(verb("DEL", c))
	}
	r.empty()
}

// TestGCOfAddressesDuringAnAdd: calico-ipam assigns an address after its GC has begun and before the GC reads the
// blocks.
func TestGCOfAddressesDuringAnAdd(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(map[string]any{"type": "macvlan"}))
	c.Plugin = "calico-ipam"
	old := c
	old.ContainerID = "c0"
	r.must(old)
	reply := r.gcBy("calico-ipam", model.BlockPrefix(false), func() { r.must(c) })
	if got := r.handles(); !slices.Equal(got, []string{"gateway.10.1.0.0", "gateway.fd01::", "net1.c1.eth0"}) {
		t.Errorf("after GC: handles %v\n%s", got, reply.Stderr)
	}
	// Now it is there from the beginning.
	r.must(withAttachments(r, verb("GC", c)))
	r.empty()
}
