// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

const (
	network = "net1"
	// bareNetwork is served by calico-ipam behind another main plugin.
	bareNetwork = "bare"
)

// rig is one host of a lab whose plugins can be killed at their steps.
type rig struct {
	*testing.T
	lab      *lab.Lab
	host     *lab.Host
	dir      string
	conf     []byte
	plugin   string
	count    int // of containers
	live     []*container
	keep     *container // lives all the time
	baseline holdingsOf
	agent    bool
	turnAway atomic.Bool // the gate lets nobody through
}

// container is one that a runtime has made: its ADD, whether done or not.
type container struct {
	add lab.Call
	ns  lab.Namespace
}

func newRig(t *testing.T, s scenario, bin string) *rig {
	t.Helper()
	cfg := lab.Config{NoFsync: true, NoAgent: !s.agent, BinDir: bin, CNIPath: []string{tools(t)}}
	cfg.Hosts = []string{"a"}
	l := lab.ForTest(t, cfg)
	r := &rig{T: t, lab: l, host: l.Host("a"), dir: t.TempDir(), plugin: s.plugin, agent: s.agent}
	conf := r.host.PluginConf()
	conf["cniVersion"], conf["name"] = "1.1.0", network
	if s.conf != nil {
		s.conf(r, conf)
	}
	r.conf = r.encode(conf)
	if r.plugin != "" {
		r.noDAD(r.host.Namespace())
	}
	if s.gate {
		r.serveGate()
	}
	return r
}

func (r *rig) encode(conf map[string]any) []byte {
	r.Helper()
	data, err := json.Marshal(conf)
	if err != nil {
		r.Fatal(err)
	}
	return data
}

// withMTU is the configuration with another MTU.
func (r *rig) withMTU(mtu int) []byte {
	r.Helper()
	var conf map[string]any
	if err := json.Unmarshal(r.conf, &conf); err != nil {
		r.Fatal(err)
	}
	conf["mtu"] = mtu
	return r.encode(conf)
}

// tools is the directory of the reference plugins.
func tools(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{os.Getenv("CALICO_BIN_DIR"), "../../bin"} {
		dir, err := filepath.Abs(filepath.Join(dir, "tools"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "host-local")); err == nil {
			return dir
		}
	}
	t.Fatal("the reference plugins are not built: make tools")
	return ""
}

// serveGate is an agent that has programmed everything, or never will.
func (r *rig) serveGate() {
	r.Helper()
	for name, content := range map[string]string{"nodename": "a", "mtu": "1500"} {
		if err := os.WriteFile(filepath.Join(r.host.VarDir(), name), []byte(content), 0o644); err != nil {
			r.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- gate.Serve(ctx, r.host.AgentSocket(), r) }()
	r.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
	})
	r.until("the gate", func() error { return gate.Ping(ctx, r.host.AgentSocket(), r.host.Name()) })
}

// Pod is of gate.Waiter: there is no Kubernetes.
func (r *rig) Pod(context.Context, gate.PodRequest) (gate.Pod, error) {
	return gate.Pod{}, &gate.RejectedError{Reason: "there is no Kubernetes"}
}

// Wait is the gate's answer.
func (r *rig) Wait(context.Context, gate.Request) error {
	if r.turnAway.Load() {
		return &gate.RejectedError{Reason: "nobody gets through"}
	}
	return nil
}

// Ready is the gate's answer.
func (r *rig) Ready(string) error { return nil }

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
	r.Cleanup(cancel)
	return ctx
}

func (r *rig) until(what string, condition func() error) {
	r.Helper()
	if err := eventually.Wait(r.ctx(), what, condition); err != nil {
		r.Fatal(err)
	}
}

// container makes one, with a network namespace of its own.
func (r *rig) container(args string) *container {
	r.Helper()
	r.count++
	// Not in the order of their making: what goes through a list meets either first.
	name := fmt.Sprintf("%c%d", 'z'-r.count%26, r.count)
	ns, err := r.lab.NewNamespace(name)
	if err != nil {
		r.Fatal(err)
	}
	if r.plugin != "" {
		r.noDAD(ns) // the reference plugins wait until their addresses are known to be nobody else's
	}
	c := &container{ns: ns, add: lab.Call{
		Plugin: r.plugin, Verb: "ADD", ContainerID: name, IfName: "eth0", Netns: ns.Path(), Args: args, Stdin: r.conf,
	}}
	r.live = append(r.live, c)
	return c
}

// noDAD turns off duplicate address detection for links to come.
func (r *rig) noDAD(ns lab.Namespace) {
	r.Helper()
	if err := ns.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/dad_transmits", []byte("0"), 0o644)
	}); err != nil {
		r.Fatal(err)
	}
}

func (c *container) verb(verb string) lab.Call {
	call := c.add
	call.Verb = verb
	return call
}

// must makes a call that works.
func (r *rig) must(c lab.Call) {
	r.Helper()
	if reply, err := r.host.CNI(r.ctx(), c); err != nil {
		r.Fatalf("%s %s: %v\n%s", c.Verb, c.ContainerID, err, reply.Stderr)
	}
}

// del is what containerd does: once, and once more without the namespace.
func (r *rig) del(c *container) {
	r.Helper()
	call := c.verb("DEL")
	r.must(call)
	call.Netns = ""
	r.must(call)
}

func (r *rig) remove(ns lab.Namespace) {
	r.Helper()
	if err := ns.Remove(); err != nil {
		r.Fatal(err)
	}
}

// gcCall says that only the container that always lives is valid. The main
// plugins of the CNI project have no GC: their IPAM plugin is asked itself.
func (r *rig) gcCall() lab.Call {
	r.Helper()
	valid, err := json.Marshal([]any{map[string]string{"containerID": r.keep.add.ContainerID, "ifname": "eth0"}})
	if err != nil {
		r.Fatal(err)
	}
	call := lab.Call{Verb: "GC", Stdin: []byte(strings.TrimSuffix(string(r.conf), "}") + `,"cni.dev/valid-attachments":` + string(valid) + "}")}
	if r.plugin != "" {
		call.Plugin = "calico-ipam"
	}
	return call
}

// begin has one container live all the time, and takes note of what there is.
// One that has come and gone has left what stays: the profile of the network, a
// bridge.
func (r *rig) begin() {
	r.Helper()
	r.keep = r.container("")
	r.must(r.keep.add)
	first := r.container("")
	r.must(first.add)
	r.del(first)
	r.live = nil
	r.until("an agent that has nothing to do", func() (err error) {
		if r.baseline, err = take(r.ctx(), r.lab, r.host, r.leases()); err != nil {
			return err
		}
		return r.settled()
	})
}

// settled says whether the agent has reported on all that was there at the
// beginning, and on nothing else.
func (r *rig) settled() error {
	endpoints, statuses := 0, 0
	for path := range r.baseline.etcd {
		switch k, _ := model.ParseKey(path); k.(type) {
		case model.WorkloadEndpointKey:
			endpoints++
		case model.WorkloadStatusKey:
			statuses++
		}
	}
	if r.agent && endpoints != statuses {
		return fmt.Errorf("%d statuses of %d endpoints", statuses, endpoints)
	}
	return nil
}

// leases is where host-local keeps its.
func (r *rig) leases() string { return filepath.Join(r.dir, network) }
