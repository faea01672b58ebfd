// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// brief matches the short time that a test gives a call, without its end.
var brief = regexp.MustCompile(`(_timeout_seconds":[1-9]0?)\b`)

// failsLike expects an error whose text matches. A call that timed out before it knew the reason is repeated with ten
// times the time.
func (r *rig) failsLike(c lab.Call, code uint, pattern string) lab.Reply {
	r.Helper()
	reply, err := r.host.CNI(r.ctx(), c)
	var said *types.Error
	if !errors.As(err, &said) || said.Code != code || !regexp.MustCompile("^"+pattern+"$").MatchString(said.Msg) || said.Details == "" {
		if said != nil && strings.Contains(said.Msg, "deadline exceeded") && brief.Match(c.Stdin) {
			c.Stdin = brief.ReplaceAll(c.Stdin, []byte("${1}0"))
			return r.failsLike(c, code, pattern)
		}
		r.Errorf("%s: got %#v, want code %d and %s, and details\nstderr %s", c.Verb, err, code, pattern, reply.Stderr)
	}
	if said != nil && strings.Contains(said.Msg, "\n") {
		r.Errorf("%s: more than a sentence: %q", c.Verb, said.Msg)
	}
	return reply
}

// exactly matches the complete text; TIME in it stands for a duration. Whether the last attempt reached the deadline
// itself, or there was no time for another one, is chance.
func exactly(text string) string {
	return strings.NewReplacer("TIME", `[0-9.]+m?s`, `\(after `, `\((context deadline exceeded )?after `).Replace(regexp.QuoteMeta(text))
}

func TestEtcdUnreachable(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	good := call(r.pod("pod"), r.conf(nil))
	bad := good
	bad.Stdin = r.conf(map[string]any{"etcd_endpoints": "http://127.0.0.1:1", "datastore_timeout_seconds": 4})
	// Nothing listens there: the call doesn't wait until its time is over.
	saying := func(what string) string {
		return exactly(what + ": etcd is unavailable: http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused (after TIME): check that etcd runs and that the endpoints are right")
	}
	r.failsLike(bad, 11, saying("read /calico/v1/Ready and 11 more"))
	r.empty()
	// DEL deletes the link all the same, and must be repeated.
	r.must(good)
	r.failsLike(verb("DEL", bad), 11, saying("read /calico/v1/Ready and 7 more"))
	if got := r.links(); len(got) != 0 {
		t.Errorf("links %v", got)
	}
	r.failsLike(verb("STATUS", bad), 50, saying("read /calico/v1/Ready and 11 more"))
	r.failsLike(verb("DEL", bad), 11, saying("read /calico/v1/Ready and 7 more"))
	r.failsLike(verb("GC", withAttachments(r, bad)), 11, saying("read /calico/v1/Ready"))
	r.must(verb("DEL", good))
	r.empty()
}

func withAttachments(r *rig, c lab.Call) lab.Call {
	c.Stdin = []byte(strings.TrimSuffix(string(c.Stdin), "}") + `,"cni.dev/valid-attachments":[]}`)
	return c
}

// TestEtcdSlow uses an etcd that takes longer to answer than two concurrent calls wait.
func TestEtcdSlow(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	other := call(r.pod("other"), c.Stdin)
	other.ContainerID = "c2"
	r.add(other)
	if err := r.lab.Members().Pause(1); err != nil {
		t.Fatal(err)
	}
	saying := func(what string) string {
		return exactly(what + ": etcd is unavailable: " + r.lab.Members().Endpoints()[0] + ": no answer (after TIME): check that etcd runs and that the endpoints are right")
	}
	impatient := func(verb string, c lab.Call) lab.Call {
		c.Verb, c.Stdin = verb, r.conf(map[string]any{"datastore_timeout_seconds": 2})
		return c
	}
	var calls sync.WaitGroup
	calls.Go(func() { r.failsLike(impatient("ADD", c), 11, saying("read /calico/v1/Ready and 13 more")) })
	calls.Go(func() { r.failsLike(impatient("DEL", other), 11, saying("read /calico/v1/Ready and 7 more")) })
	calls.Wait()
	if err := r.lab.Members().Resume(1); err != nil {
		t.Fatal(err)
	}
	r.must(verb("DEL", c))
	r.must(verb("DEL", other))
	r.empty()
}

// TestAnswerLost: an ADD twice loses its connection to etcd during its commit.
func TestAnswerLost(t *testing.T) {
	r := newRig(t, small())
	var commits atomic.Int32
	c := call(r.pod("pod"), r.conf(map[string]any{"etcd_endpoints": r.relay(func(client net.Conn, data []byte) (more bool) {
		// Nothing that is only read has a block's value.
		if !bytes.Contains(data, []byte(`"allocations"`)) || commits.Add(1) > 2 {
			return false
		}
		_ = client.Close()
		return true
	})}))
	result := r.add(c)
	if n := commits.Load(); n != 3 {
		t.Errorf("%d commits, want those that were lost, and one more", n)
	}
	if ep := r.endpoints()["cni c1 eth0"]; !slices.Equal(ep.Addrs(), addrs(result)) {
		t.Errorf("endpoint %+v, result %+v", ep, result)
	}
	r.must(verb("DEL", c))
	r.empty()
}

// TestAnswerLostAndUndone: ADDs lose the answer to their first commit, which may take effect, and then wait for an
// agent in vain. They undo what they wrote.
func TestAnswerLostAndUndone(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	r.agentRan()
	pod := r.pod("pod")
	for range 3 {
		var commits atomic.Int32
		c := call(pod, r.conf(map[string]any{
			"policy_setup_timeout_seconds": 1,
			"etcd_endpoints": r.relay(func(client net.Conn, data []byte) (more bool) {
				if bytes.Contains(data, []byte(`"allocations"`)) && commits.Add(1) == 1 {
					_ = client.Close()
				}
				return false
			}),
		}))
		r.failsLike(c, 11, "the agent didn't confirm within [0-9ms]+ that the pod's network is programmed: .*no agent listens")
		r.empty()
	}
}

func TestEtcdReadOnly(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	other := call(r.pod("other"), r.conf(nil))
	other.ContainerID = "c2"
	r.add(other)
	if err := r.lab.Members().SetReadOnly(r.ctx(), true); err != nil {
		t.Fatal(err)
	}
	saying := func(what string) string {
		return what + ": etcd is read-only: " + r.lab.Members().Endpoints()[0] + ": etcdserver: mvcc: database space exceeded: the space quota is used up: compact and defragment etcd, then etcdctl alarm disarm"
	}
	r.fails(c, 102, saying("write /calico/ipam/v2/assignment/ipv4/block/10.1.0.0-26 and 3 more"))
	r.fails(verb("STATUS", c), 50, saying("write /calico/ipam/v2/handle/net1..status.eth0 and 3 more"))
	r.must(verb("DEL", c)) // nothing to write
	if got := len(r.links()); got != 1 {
		t.Errorf("links %v", r.links())
	}
	if err := r.lab.Members().SetReadOnly(r.ctx(), false); err != nil {
		t.Fatal(err)
	}
	r.must(verb("STATUS", c))
	r.must(verb("DEL", other))
	r.empty()
}

func TestEtcdRefuses(t *testing.T) {
	cfg := small()
	cfg.TLS, cfg.Auth = true, true
	r := newRig(t, cfg)
	pod := r.pod("pod")
	with := func(change map[string]any) lab.Call {
		change["datastore_timeout_seconds"] = 60
		return call(pod, r.conf(change))
	}
	good := with(map[string]any{})
	r.add(good)
	pod = r.pod("other")
	wrong := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(wrong, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		user = "etcdserver: authentication failed, invalid user ID or password: check the etcd user, its roles and the password file"
		file = " (after TIME): check the certificate files and that etcd's certificate names the endpoint"
	)
	for _, tt := range []struct {
		name string
		call lab.Call
		why  string
	}{
		{"a stranger's certificate", with(map[string]any{"etcd_cert_file": r.lab.Members().PKI("other-client.crt"), "etcd_key_file": r.lab.Members().PKI("other-client.key")}), "remote error: tls: unknown certificate authority" + file},
		{"another authority", with(map[string]any{"etcd_ca_cert_file": r.lab.Members().PKI("other-ca.crt")}), "tls: failed to verify certificate: x509: certificate signed by unknown authority" + file},
		{"wrong password", with(map[string]any{"etcd_password_file": wrong}), user},
		{"unknown user", with(map[string]any{"etcd_username": "nobody"}), user},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &rig{t, r.lab, r.host}
			c := tt.call
			c.ContainerID = "c2"
			saying := func(what string) string {
				return exactly(what + ": etcd access refused: " + r.lab.Members().Endpoints()[0] + ": " + tt.why)
			}
			r.failsLike(c, 101, saying("read /calico/v1/Ready and 13 more"))
			r.failsLike(verb("DEL", c), 101, saying("read /calico/v1/Ready and 7 more"))
			r.failsLike(verb("STATUS", c), 50, saying("read /calico/v1/Ready and 11 more"))
		})
	}
	r.fails(with(map[string]any{"etcd_cert_file": "/nonexistent", "etcd_key_file": "/nonexistent"}), 7, "etcd client certificate: open /nonexistent: no such file or directory: name PEM files that this process may read")
	r.must(verb("DEL", good))
	r.empty()
}

func TestNotReady(t *testing.T) {
	cfg := small()
	cfg.NoReady = true
	r := newRig(t, cfg)
	c := call(r.pod("pod"), r.conf(nil))
	const missing = "calico's data in etcd is not ready: /calico/v1/Ready is missing"
	r.fails(c, 11, missing)
	r.fails(verb("STATUS", c), 50, missing)
	r.must(verb("DEL", c))
	ipam := func(c lab.Call) lab.Call { c.Plugin = "calico-ipam"; return c }
	gc := withAttachments(r, verb("GC", c))
	r.fails(gc, 11, missing)
	r.fails(ipam(gc), 11, missing)
	r.put(model.ReadyKey{}, model.Ready(true))
	r.add(c)
	written := func() (keys []string) {
		for _, e := range r.sound() {
			if e.Key != (model.ReadyKey{}) {
				keys = append(keys, fmt.Sprintf("%s %d", e.Path, e.Revision))
			}
		}
		return keys
	}
	before := written()
	r.put(model.ReadyKey{}, model.Ready(false))
	const isFalse = "calico's data in etcd is not ready: /calico/v1/Ready is false"
	r.fails(c, 11, isFalse)
	r.fails(gc, 11, isFalse)
	r.fails(ipam(gc), 11, isFalse)
	if after := written(); !slices.Equal(after, before) || len(r.links()) != 1 {
		t.Errorf("links %v, in etcd %v, before %v", r.links(), after, before)
	}
	r.fails(verb("DEL", c), 11, isFalse)
	r.put(model.ReadyKey{}, model.Ready(true))
	r.must(verb("STATUS", c))
	r.must(gc)
	r.empty()
}

func TestLogDiskFull(t *testing.T) {
	r := newRig(t, small())
	pod := r.pod("pod")
	for _, file := range []string{"/dev/full", "/proc/nonexistent/cni.log", t.TempDir(), ""} {
		c := call(pod, r.conf(map[string]any{"log_file_path": file}))
		reply := r.must(c)
		if !strings.Contains(string(reply.Stderr), "msg=done") {
			t.Errorf("%s: stderr %s", file, reply.Stderr)
		}
		r.must(verb("DEL", c))
	}
	r.empty()
}

func TestStateDirectoryNotWritable(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	c.Env = []string{"CALICO_RUN_DIR=/proc/nonexistent"}
	if reply := r.must(c); !strings.Contains(string(reply.Stderr), "lock") {
		t.Errorf("no warning: %s", reply.Stderr)
	}
	r.must(verb("DEL", c))
	r.empty()
}

// TestResultNobodyReads closes stdout before the plugin writes.
func TestResultNobodyReads(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	script := fmt.Sprintf(`CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_IFNAME=eth0 CNI_NETNS=%s %s/calico >/dev/full <<'CONF'
%s
CONF
echo status $?`, c.Netns, pathOf(r), c.Stdin)
	if out := r.sh(script); out != "status 1\n" {
		t.Errorf("got %q", out)
	}
	r.empty()
}

// TestInterrupted stops an ADD that waits for the agent, like a runtime that gives up.
func TestInterrupted(t *testing.T) {
	r := newRig(t, small())
	r.agentRan()
	c := call(r.pod("pod"), r.conf(map[string]any{"policy_setup_timeout_seconds": 300}))
	cmd := exec.Command(filepath.Join(pathOf(r), "calico"))
	cmd.Env = append(append(os.Environ(), r.host.Env()...),
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS="+c.Netns)
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(c.Stdin), &stdout
	if err := r.host.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := eventually.Wait(r.ctx(), "an endpoint", func() error {
		if len(r.endpoints()) == 1 && len(r.links()) == 1 {
			return nil
		}
		return errors.New("not yet")
	}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(stdout.String(), `"code": 11`) ||
		!strings.Contains(stdout.String(), "the call was interrupted by a signal") {
		t.Errorf("the interrupted ADD: %v, %s", err, &stdout)
	}
	r.empty()
}
