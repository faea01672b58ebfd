// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// rig is one host of a lab, with its plugins at hand.
type rig struct {
	*testing.T
	lab  *lab.Lab
	host *lab.Host
}

// newRig makes a lab with one host and without an agent.
func newRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	cfg.Hosts, cfg.NoAgent, cfg.NoFsync = []string{"a"}, true, true
	l := lab.ForTest(t, cfg)
	return &rig{t, l, l.Host("a")}
}

// namespace returns the namespace that pod made.
func (r *rig) namespace(path string) lab.Namespace {
	r.Helper()
	ns, err := r.lab.FindNamespace(filepath.Base(path))
	if err != nil {
		r.Fatal(err)
	}
	return ns
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Minute)
	r.Cleanup(cancel)
	return ctx
}

// pod makes a network namespace.
func (r *rig) pod(name string) string {
	r.Helper()
	ns, err := r.lab.NewNamespace(name)
	if err != nil {
		r.Fatal(err)
	}
	return ns.Path()
}

// conf returns a network configuration of version 1.1.0 with changed fields.
func (r *rig) conf(change map[string]any) []byte {
	r.Helper()
	c := r.host.PluginConf()
	c["cniVersion"], c["name"] = "1.1.0", "net1"
	maps.Copy(c, change)
	data, err := json.Marshal(c)
	if err != nil {
		r.Fatal(err)
	}
	return data
}

// call returns an ADD for container c1, unless changed.
func call(netns string, conf []byte) lab.Call {
	return lab.Call{Verb: "ADD", ContainerID: "c1", IfName: "eth0", Netns: netns, Stdin: conf}
}

func verb(v string, c lab.Call) lab.Call { c.Verb = v; return c }

func (r *rig) must(c lab.Call) lab.Reply {
	r.Helper()
	reply, err := r.host.CNI(r.ctx(), c)
	if err != nil {
		r.Fatalf("%s: %v\n%s", c.Verb, err, reply.Stderr)
	}
	return reply
}

// add does an ADD that must succeed, and returns its result.
func (r *rig) add(c lab.Call) *types100.Result {
	r.Helper()
	return r.result(r.must(verb("ADD", c)))
}

func (r *rig) result(reply lab.Reply) *types100.Result {
	r.Helper()
	var result types100.Result
	if err := json.Unmarshal(reply.Stdout, &result); err != nil {
		r.Fatalf("%v in %s", err, reply.Stdout)
	}
	return &result
}

// fails expects exactly this error from a call.
func (r *rig) fails(c lab.Call, code uint, msg string) {
	r.Helper()
	reply, err := r.host.CNI(r.ctx(), c)
	var said *types.Error
	if !errors.As(err, &said) {
		r.Errorf("%s: got %v, want an error with code %d\nstdout %s\nstderr %s", c.Verb, err, code, reply.Stdout, reply.Stderr)
		return
	}
	if diff := cmp.Diff(types.Error{Code: code, Msg: msg}, types.Error{Code: said.Code, Msg: said.Msg}); diff != "" {
		r.Errorf("%s (-want +got):\n%s\nstderr %s", c.Verb, diff, reply.Stderr)
	}
	if said.Details == "" {
		r.Errorf("%s: the error doesn't say what to do", c.Verb)
	}
	var object struct{ CNIVersion string }
	if err := json.Unmarshal(reply.Stdout, &object); err != nil || object.CNIVersion == "" {
		r.Errorf("%s: the error has no version: %v in %s", c.Verb, err, reply.Stdout)
	}
}

// empty checks that nothing of any pod is left in the kernel and in etcd, and that the content of etcd is sound.
func (r *rig) empty() {
	r.Helper()
	if err := r.host.CheckEmpty(); err != nil {
		r.Error(err)
	}
	for _, e := range r.sound() {
		k, isHandle := e.Key.(model.HandleKey)
		_, isEndpoint := e.Key.(model.WorkloadEndpointKey)
		if isEndpoint || isHandle && !strings.HasPrefix(k.ID, "gateway.") {
			r.Errorf("left in etcd: %s", e.Path)
		}
	}
}

// sound checks the invariants of etcd's content, and returns that content.
func (r *rig) sound() []model.Entry {
	r.Helper()
	dump, _, err := r.lab.Dump(r.ctx())
	if err != nil {
		r.Fatal(err)
	}
	for _, v := range invariants.Check(dump) {
		r.Errorf("invariant %d: %s: %s", v.Invariant, v.Key.Path(), v.Text)
	}
	return dump
}

func (r *rig) endpoints() map[string]model.WorkloadEndpoint {
	r.Helper()
	out := make(map[string]model.WorkloadEndpoint)
	for _, e := range r.sound() {
		if k, ok := e.Key.(model.WorkloadEndpointKey); ok {
			ep, ok := e.Value.(model.WorkloadEndpoint)
			if !ok {
				r.Fatalf("%s: %v", e.Path, e.Err)
			}
			out[k.Orchestrator+" "+k.Workload+" "+k.Endpoint] = ep
		}
	}
	return out
}

func (r *rig) handles() []string {
	r.Helper()
	var out []string
	for _, e := range r.sound() {
		if k, ok := e.Key.(model.HandleKey); ok {
			out = append(out, k.ID)
		}
	}
	return out
}

func (r *rig) put(k model.Key, v any) {
	r.Helper()
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Puts: []model.Put{{Key: k, Value: v}}}); err != nil {
		r.Fatal(err)
	}
}

// putText writes a text that need not parse, as a person may.
func (r *rig) putText(k model.Key, text string) {
	r.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: r.lab.Members().Sockets(), Logger: zap.NewNop()})
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = etcd.Close() }() // nothing is in flight
	if _, err := etcd.Put(r.ctx(), k.Path(), text); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) delete(k model.Key) {
	r.Helper()
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{k}}); err != nil {
		r.Fatal(err)
	}
}

// sh runs a command on the host.
func (r *rig) sh(command string) string {
	r.Helper()
	out, err := r.host.Exec(r.ctx(), "sh", "-c", command)
	if err != nil {
		r.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

// roundTrips returns the round trips of the last call, from its log line.
func (r *rig) roundTrips() int {
	r.Helper()
	all := r.allRoundTrips()
	return all[len(all)-1]
}

// allRoundTrips returns the round trips of every call so far.
func (r *rig) allRoundTrips() []int {
	r.Helper()
	var all []int
	for line := range strings.Lines(r.sh("grep round_trips " + filepath.Join(r.host.LogDir(), "cni.log"))) {
		_, after, _ := strings.Cut(line, "round_trips=")
		n, err := strconv.Atoi(strings.Fields(after)[0])
		if err != nil {
			r.Fatalf("log: %s", line)
		}
		all = append(all, n)
	}
	return all
}

// links returns the names of the host's workload interfaces.
func (r *rig) links() []string {
	r.Helper()
	entries, err := r.host.Exec(r.ctx(), "ip", "-json", "link", "show", "type", "veth")
	if err != nil {
		r.Fatal(err)
	}
	var links []struct {
		IfName string `json:"ifname"`
	}
	if err := json.Unmarshal(entries, &links); err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, l := range links {
		if strings.HasPrefix(l.IfName, "cali") {
			out = append(out, l.IfName)
		}
	}
	return out
}

func addrs(result *types100.Result) []netip.Addr {
	var out []netip.Addr
	for _, ip := range result.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		out = append(out, a.Unmap())
	}
	return out
}

// reference returns the directory with the reference plugins: beside the
// binaries of the build, or built into a directory that is kept.
func reference(t *testing.T) string {
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

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
