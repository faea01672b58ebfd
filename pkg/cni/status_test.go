// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// agent answers at the gate as the test specifies.
type agent struct {
	wait  func(context.Context, gate.Request) error
	ready error
	asked string                                                   // for which host it was asked that
	pod   func(context.Context, gate.PodRequest) (gate.Pod, error) // nil: it doesn't read the Kubernetes API
}

func (a *agent) Wait(ctx context.Context, r gate.Request) error { return a.wait(ctx, r) }
func (a *agent) Pod(ctx context.Context, r gate.PodRequest) (gate.Pod, error) {
	if a.pod == nil {
		return gate.Pod{}, &gate.RejectedError{Reason: "it doesn't read the Kubernetes API"}
	}
	return a.pod(ctx, r)
}

func (a *agent) Ready(host string) error {
	a.asked = host
	return a.ready
}

// serve answers on the host's socket until the end of the test, replacing an earlier server.
func (r *rig) serve(a *agent) (stop func()) {
	r.Helper()
	former, _ := os.Stat(r.host.AgentSocket())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gate.Serve(ctx, r.host.AgentSocket(), a) }()
	if err := eventually.Wait(r.ctx(), "the agent's socket", func() error {
		now, err := os.Stat(r.host.AgentSocket())
		if err == nil && os.SameFile(former, now) {
			err = errors.New("it is still the former agent's")
		}
		return err
	}); err != nil {
		r.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
		}
	}
	r.Cleanup(stop)
	return stop
}

// agentRan marks the node as one on which an agent has run.
func (r *rig) agentRan() {
	r.Helper()
	for name, content := range map[string]string{"nodename": "a\n", "mtu": "1500\n"} {
		if err := os.WriteFile(filepath.Join(r.host.VarDir(), name), []byte(content), 0o644); err != nil {
			r.Fatal(err)
		}
	}
}

func TestGate(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(map[string]any{"policy_setup_timeout_seconds": 1}))
	patient := c
	patient.Stdin = r.conf(map[string]any{"policy_setup_timeout_seconds": 300})
	if reply := r.must(patient); !strings.Contains(string(reply.Stderr), "no agent: it never ran on this node") {
		t.Errorf("no warning: %s", reply.Stderr)
	}
	r.must(verb("DEL", c))

	r.agentRan()
	r.failsLike(c, 11, `the agent didn't confirm within [0-9ms]+ that the pod's network is programmed: .*no agent listens`)
	r.empty()

	var asked gate.Request
	answers := []error{&gate.RejectedError{Reason: "starting", Retry: true}, nil}
	var n atomic.Int64
	a := &agent{wait: func(_ context.Context, req gate.Request) error {
		asked = req
		return answers[min(int(n.Add(1)), len(answers))-1]
	}}
	stop := r.serve(a)
	r.add(patient)
	_, revision, err := r.lab.Dump(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	want := gate.Request{Endpoint: model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}, Revision: revision}
	if asked != want || n.Load() != 2 {
		t.Errorf("asked %d times for %+v, want twice for %+v", n.Load(), asked, want)
	}
	// The same again asks for the revision at which the endpoint was written.
	r.put(model.GlobalConfigKey{Name: "LogSeverityScreen"}, model.Text("info"))
	r.add(patient)
	if asked != want {
		t.Errorf("asked for %+v, want %+v", asked, want)
	}
	r.must(verb("DEL", c))

	a.wait = func(context.Context, gate.Request) error {
		return &gate.RejectedError{Reason: "no such interface prefix"}
	}
	r.failsLike(patient, 109, `endpoint /calico/v1/host/a/workload/cni/c1/endpoint/eth0: the agent refused: no such interface prefix`)
	r.empty()
	a.wait = func(ctx context.Context, _ gate.Request) error { <-ctx.Done(); return ctx.Err() }
	r.failsLike(c, 11, `the agent didn't confirm within [0-9ms]+ that the pod's network is programmed: .*`)
	r.empty()
	stop()

	c.Stdin = r.conf(map[string]any{"policy_setup_timeout_seconds": 0})
	r.add(c) // an ADD that waits for an agent that doesn't answer fails
	r.must(verb("DEL", c))
	r.empty()
}

// TestAgentOfAnotherHost: an agent objects to deleting what belongs to this node's name.
func TestAgentOfAnotherHost(t *testing.T) {
	r := newRig(t, small())
	r.agentRan()
	c := call(r.pod("pod"), r.conf(map[string]any{"policy_setup_timeout_seconds": 0}))
	r.add(c)
	r.sh("ip link del " + r.links()[0])
	r.serve(&agent{ready: &gate.RejectedError{Reason: "this is the agent of host b"}})
	r.failsLike(verb("DEL", c), 109, "node a isn't this one: .*this is the agent of host b")
	if got := len(r.endpoints()); got != 1 {
		t.Errorf("%d endpoints", got)
	}
}

func TestStatus(t *testing.T) {
	r := newRig(t, small())
	c := lab.Call{Verb: "STATUS", Stdin: r.conf(nil)}
	if out := r.must(c).Stdout; len(out) != 0 {
		t.Errorf("STATUS wrote %s", out)
	}
	before, _, err := r.lab.Dump(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range before {
		if _, ok := e.Key.(model.BlockKey); ok {
			t.Errorf("STATUS left %s", e.Path)
		}
	}
	r.agentRan()
	r.failsLike(c, 51, `the agent can't serve an ADD: .*no agent listens`)
	a := &agent{ready: errors.New("not in sync with etcd")}
	r.serve(a)
	r.failsLike(c, 51, `the agent can't serve an ADD: the agent is not ready: not in sync with etcd`)
	// etcd is the reason, and says what to do.
	r.put(model.ReadyKey{}, model.Ready(false))
	r.fails(c, 50, "calico's data in etcd is not ready: /calico/v1/Ready is false")
	r.put(model.ReadyKey{}, model.Ready(true))
	a.ready = nil
	r.must(c)
	if a.asked != "a" {
		t.Errorf("asked whether the agent is ready for host %q", a.asked)
	}
	a.ready = &gate.RejectedError{Reason: "this is the agent of host b"}
	r.fails(c, 50, "the agent can't serve an ADD: the agent refused: this is the agent of host b")
	a.ready = nil
	// What every ADD would be refused for.
	for ipam, msg := range map[string]string{
		"":                   "ipam.type: missing",
		`{}`:                 "ipam.type: missing",
		`{"type":"nothing"}`: "IPAM plugin nothing: not in CNI_PATH " + pathOf(r),
	} {
		bad := c
		fields := map[string]any{"ipam": nil}
		if ipam != "" {
			fields["ipam"] = json.RawMessage(ipam)
		}
		bad.Stdin = r.conf(fields)
		r.fails(bad, 7, msg)
	}
	small := c
	small.Stdin = r.conf(map[string]any{"mtu": 68})
	r.fails(small, 7, "mtu: IPv6 needs 1280 bytes, and it is 68")
	small.Stdin = r.conf(map[string]any{"mtu": 68, "ipam": map[string]any{"type": "calico-ipam"}})
	r.must(small)
	for _, plugin := range []string{"calico", "calico-ipam"} {
		named := c
		named.Plugin, named.Stdin = plugin, r.conf(map[string]any{"name": strings.Repeat("x", 1000)})
		r.fails(named, 7, "name: of 1000 bytes: at most 943")
		named.Stdin = r.conf(map[string]any{"nodename": strings.Repeat("x", 2000)})
		r.fails(named, 7, "nodename: host name of 2000 characters: at most 253")
		none := c
		none.Plugin = plugin
		none.Stdin = r.conf(map[string]any{"ipam": map[string]any{"type": "calico-ipam", "ipv4_pools": []string{"10.99.0.0/16"}}})
		r.fails(none, 50, "requested pool 10.99.0.0/16: no such pool, there are 10.1.0.0/26")
	}
	old := c
	old.Stdin = r.conf(map[string]any{"cniVersion": "1.0.0"})
	r.fails(old, 1, "cniVersion 1.0.0 does not know STATUS")
}

// TestStatusOfAddressesByNumber uses configurations with which an ADD succeeds, or doesn't.
func TestStatusOfAddressesByNumber(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	conf := func(ipam string, more map[string]any) []byte {
		fields := map[string]any{"ipam": json.RawMessage(ipam)}
		maps.Copy(fields, more)
		return r.conf(fields)
	}
	const none = `{"type":"calico-ipam","assign_ipv4":false}`
	byArgs := func(addr string) map[string]any {
		return map[string]any{"args": map[string]any{"cni": map[string]any{"ips": []string{addr}}}}
	}
	for _, plugin := range []string{"calico", "calico-ipam"} {
		status := func(conf []byte) lab.Call { return lab.Call{Plugin: plugin, Verb: "STATUS", Stdin: conf} }
		r.must(status(conf(none, nil))) // runtimeConfig.ips comes with an ADD alone
		r.must(status(conf(none, byArgs("10.1.0.9"))))
		r.must(status(conf(none, byArgs("fd01::9"))))
		r.fails(status(conf(none, byArgs("10.9.9.9"))), 50, "address 10.9.9.9: in no pool; pools that may serve this node: 10.1.0.0/26")
		c := call(r.pod(plugin), conf(none, byArgs("10.1.0.9")))
		c.Plugin = plugin
		r.must(c)
		r.must(status(c.Stdin)) // it is the container's that it is for
		r.must(verb("DEL", c))
	}
	r.empty()
}

func TestStatusWithoutIPv6(t *testing.T) {
	r := newRig(t, small())
	both := r.conf(map[string]any{"ipam": json.RawMessage(`{"type":"calico-ipam","assign_ipv6":true}`)})
	r.must(lab.Call{Verb: "STATUS", Stdin: both})
	r.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
	r.fails(lab.Call{Verb: "STATUS", Stdin: both}, 50,
		"pods are to have IPv6 addresses, and IPv6 is disabled on the host: sysctl net.ipv6.conf.default.disable_ipv6 is 1")
	r.failsLike(call(r.pod("pod"), both), 108, ".*IPv6 is disabled on the host.*")
	r.must(lab.Call{Verb: "STATUS", Stdin: r.conf(map[string]any{"ipam": json.RawMessage(`{"type":"calico-ipam"}`)})})
	r.must(lab.Call{Plugin: "calico-ipam", Verb: "STATUS", Stdin: both})
	r.empty()
}

// TestStatusWithoutPermission asks as a user who may not open the agent's socket.
func TestStatusWithoutPermission(t *testing.T) {
	r := newRig(t, small())
	r.agentRan()
	r.serve(&agent{})
	if err := os.Chmod(r.host.AgentSocket(), 0); err != nil {
		t.Fatal(err)
	}
	// root, without the capability to pass over a file's mode
	cmd := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", filepath.Join(pathOf(r), "calico"))
	cmd.Env = append(append(os.Environ(), r.host.Env()...), "CNI_COMMAND=STATUS")
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(r.conf(nil)), &stdout
	if err := r.host.Do(cmd.Run); err == nil || !strings.Contains(stdout.String(), `"code": 50`) ||
		!strings.Contains(stdout.String(), "run the plugin as root") {
		t.Errorf("%v, %s", err, &stdout)
	}
}

func TestVersion(t *testing.T) {
	r := newRig(t, small())
	const want = `{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`
	for _, plugin := range []string{"calico", "calico-ipam"} {
		if got := strings.TrimSpace(string(r.must(lab.Call{Plugin: plugin, Verb: "VERSION"}).Stdout)); got != want {
			t.Errorf("%s VERSION: %s", plugin, got)
		}
	}
}

// TestStatusDenied removes from etcd's user, one by one, the permissions that an ADD needs: STATUS reports the same as
// the ADD, and neither writes.
func TestStatusDenied(t *testing.T) {
	long.Test(t)
	cfg := small()
	cfg.Auth = true
	r := newRig(t, cfg)
	c := call(r.pod("pod"), r.conf(nil))
	password, err := os.ReadFile(filepath.Join(filepath.Dir(r.lab.Members().PasswordFile()), "root-password"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: r.lab.Members().Sockets(), Username: lab.EtcdRootUser,
		Password: strings.TrimSpace(string(password)), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	grant := func(prefix string, what clientv3.PermissionType) {
		t.Helper()
		if _, err := root.RoleGrantPermission(r.ctx(), lab.EtcdUser, prefix, clientv3.GetPrefixRangeEnd(prefix), what); err != nil {
			t.Fatal(err)
		}
	}
	revoke := func(prefix string) {
		t.Helper()
		if _, err := root.RoleRevokePermission(r.ctx(), lab.EtcdUser, prefix, clientv3.GetPrefixRangeEnd(prefix)); err != nil {
			t.Fatal(err)
		}
	}
	const all = clientv3.PermissionType(clientv3.PermReadWrite)
	needed := []string{"/calico/ipam/v2/assignment/", "/calico/ipam/v2/handle/", "/calico/ipam/v2/host/", "/calico/v1/host/", "/calico/v1/policy/"}
	for _, prefix := range needed {
		grant(prefix, all)
	}
	const read = clientv3.PermissionType(clientv3.PermRead)
	for _, prefix := range []string{"/calico/ipam/v2/config", "/calico/ipam/v2/reservation/", "/calico/v1/Ready", "/calico/v1/ipam/"} {
		grant(prefix, read) // an ADD doesn't write there
	}
	revoke("/calico/")
	r.must(verb("STATUS", c))
	for _, prefix := range needed {
		revoke(prefix)
		says := ".*: the user calico may not read .*" + prefix + ".*"
		r.failsLike(verb("STATUS", c), 50, says)
		r.failsLike(c, 101, says)
		grant(prefix, read)
		says = ".*: the user calico may not write " + prefix + ".*"
		r.failsLike(verb("STATUS", c), 50, says)
		r.failsLike(c, 101, says)
		grant(prefix, all)
	}
	got := r.add(c)
	r.must(verb("STATUS", c))
	// The configured address is in use: there is nothing to choose.
	taken := verb("STATUS", c)
	taken.Plugin, taken.Stdin = "calico-ipam", r.conf(map[string]any{"args": map[string]any{"cni": map[string]any{"ips": []string{got.IPs[0].Address.IP.String()}}}})
	r.must(taken)
	r.must(verb("DEL", c))
	r.empty()
}

// TestMTUIsNotKnown: the node's agent has not found out the MTU, so a pod's would be a guess.
func TestMTUIsNotKnown(t *testing.T) {
	r := newRig(t, small())
	r.agentRan()
	r.serve(&agent{wait: func(context.Context, gate.Request) error { return nil }})
	if err := os.Remove(filepath.Join(r.host.VarDir(), "mtu")); err != nil {
		t.Fatal(err)
	}
	c := call(r.pod("pod"), r.conf(nil))
	short := c
	short.Stdin = r.conf(map[string]any{"policy_setup_timeout_seconds": 1})
	r.failsLike(short, 11, "calico-node has not found out the MTU of pods yet: stat .*/mtu: no such file or directory")
	r.failsLike(verb("STATUS", c), 50, "calico-node has not found out the MTU of pods yet: .*")
	r.empty()
	c.Stdin = r.conf(map[string]any{"mtu": 1400})
	r.must(c)
	r.must(verb("STATUS", c))
	r.must(verb("DEL", c))
	r.empty()
}

// TestAgentStarts begins an ADD before the agent of a new node has written its files for plugins.
func TestAgentStarts(t *testing.T) {
	r := newRig(t, small())
	log := filepath.Join(t.TempDir(), "cni.log")
	c := call(r.pod("pod"), r.conf(map[string]any{"nodename": "", "nodename_file": "", "nodename_file_optional": false,
		"policy_setup_timeout_seconds": 300, "log_file_path": log}))
	cmd := r.begin(c)
	for _, file := range []struct{ name, content, missed string }{{"nodename", "a\n", "this node's name"}, {"mtu", "1400\n", "has not found out the MTU"}} {
		eventually.Nil(t, "the plugin waits for "+file.name, func() error {
			text, err := os.ReadFile(log)
			if err == nil && !strings.Contains(string(text), file.missed) {
				err = fmt.Errorf("it doesn't say %q: %s", file.missed, text)
			}
			return err
		})
		if file.name == "mtu" {
			r.serve(&agent{wait: func(context.Context, gate.Request) error { return nil }})
		}
		whole := filepath.Join(r.host.VarDir(), file.name)
		if err := errors.Join(os.WriteFile(whole+".new", []byte(file.content), 0o644), os.Rename(whole+".new", whole)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for _, e := range r.endpoints() {
		if e.MTU != 1400 {
			t.Errorf("an MTU of %d", e.MTU)
		}
	}
	r.must(verb("DEL", c))
	r.empty()
}
