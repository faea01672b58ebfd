// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/eventually"
	"github.com/calico-go/calico/test/lab"
)

// TestAddAgainWithHostLocal has an ADD repeated whose addresses come from a
// plugin that refuses that. The answer is the first one, byte for byte.
func TestAddAgainWithHostLocal(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 10.0.0.53\nsearch example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	conf, dir := r.hostLocal(map[string]any{"routes": []any{map[string]any{"dst": "192.168.0.0/16"}, map[string]any{"dst": "fd99::/48"}}})
	conf = bytes.Replace(conf, []byte(`"type":"host-local"`), []byte(`"type":"host-local","resolvConf":"`+resolv+`"`), 1)
	c := call(r.pod("pod"), conf)
	first := r.must(c)
	result := r.result(first)
	if len(result.IPs) != 2 || len(result.Routes) != 2 || !slices.Equal(result.DNS.Nameservers, []string{"10.0.0.53"}) {
		t.Fatalf("the first ADD: %s", first.Stdout)
	}
	given := leases(t, dir)
	again := func(what string) {
		t.Helper()
		if got := r.must(c); !bytes.Equal(got.Stdout, first.Stdout) {
			t.Errorf("ADD again, %s:\n%s\nfirst:\n%s", what, got.Stdout, first.Stdout)
		}
		if got := leases(t, dir); !slices.Equal(got, given) {
			t.Errorf("%s: host-local has %v, before %v", what, got, given)
		}
		if ep := r.endpoints()["cni c1 eth0"]; !slices.Equal(ep.Addrs(), addrs(result)) {
			t.Errorf("%s: endpoint %+v", what, ep)
		}
		r.must(verb("CHECK", withResult(r, c, first)))
	}
	again("nothing happened")
	r.sh("ip link del " + r.links()[0])
	again("its link is gone")
	r.sh("nsenter --net=" + c.Netns + " ip addr flush dev eth0 scope global")
	again("its addresses and routes are gone")
	c.Stdin = bytes.Replace(conf, []byte(`"10.8.0.0/24"`), []byte(`"10.9.0.0/24"`), 1)
	again("host-local is to give others from now on")
	c.Stdin = conf

	// One that fails leaves the pod as it is.
	const wait = `"policy_setup_timeout_seconds":`
	refused := c
	refused.Stdin = bytes.Replace(conf, []byte(wait+"60"), []byte(wait+"1"), 1)
	r.agentRan()
	r.failsLike(refused, 11, "the agent didn't confirm within 1s that the pod's network is programmed: .*")
	c.Stdin = bytes.Replace(conf, []byte(wait+"60"), []byte(wait+"0"), 1)
	again("one has failed")

	r.must(verb("DEL", c))
	r.nothingDelegated(dir)
}

// nothingDelegated checks that nothing is left, what is remembered of other plugins'
// addresses and the leases in host-local's directory, if it has one, included.
func (r *rig) nothingDelegated(dir string) {
	r.Helper()
	r.empty()
	if dir != "" {
		if got := leases(r.T, dir); len(got) != 0 {
			r.Errorf("host-local still has %v", got)
		}
	}
	if left, err := os.ReadDir(filepath.Join(r.host.VarDir(), "delegated")); err != nil || len(left) > 0 {
		r.Errorf("still remembered: %v, %v", left, err)
	}
}

// TestAddAgainOfWhatIsNotKnown repeats an ADD where it is not known what
// host-local has given, or where it is no longer in use: it is asked to take that
// back, and then again.
func TestAddAgainOfWhatIsNotKnown(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	c := call(r.pod("pod"), conf)
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}
	delegated := filepath.Join(r.host.VarDir(), "delegated")
	answers := func() []string {
		files, err := filepath.Glob(filepath.Join(delegated, "*.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("answers %v, %v", files, err)
		}
		return files
	}
	write := func(text string) func() error {
		return func() error { return os.WriteFile(answers()[0], []byte(text), 0o600) }
	}
	for what, spoil := range map[string]func() error{
		"the call died before it was written": func() error { return os.Remove(answers()[0]) },
		"half of the answer":                  write(`{"plugin":"host-local","result":{"cniVersion":"1.1.0","ips":[{"addr`),
		"an empty file":                       write(""),
		"no result":                           write(`{"plugin":"host-local"}`),
		"null addresses":                      write(`{"plugin":"host-local","result":{"cniVersion":"1.1.0","ips":[null]}}`),
		"another plugin's":                    write(`{"plugin":"other","result":{"cniVersion":"1.1.0","ips":[]}}`),
		"the note is lost":                    func() error { return os.RemoveAll(delegated) },
		"no endpoint": func() error {
			_, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{key}})
			return err
		},
		"an endpoint with other addresses": func() error {
			ep := r.endpoints()["cni c1 eth0"]
			ep.IPv4Nets = []netip.Prefix{prefix("10.8.0.77/32")}
			r.put(key, ep)
			return nil
		},
	} {
		first := addrs(r.add(c))
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		reply := r.must(c)
		second := addrs(r.result(reply))
		if slices.Equal(first, second) || len(second) != 2 {
			t.Errorf("%s: first %v, then %v", what, first, second)
		}
		if got := leases(t, dir); !slices.Equal(got, []string{second[0].String(), second[1].String()}) {
			t.Errorf("%s: host-local has %v, the pod %v", what, got, second)
		}
		r.must(verb("CHECK", withResult(r, c, reply)))
		if third := r.must(c); !bytes.Equal(third.Stdout, reply.Stdout) {
			t.Errorf("%s: the third ADD %s\nthe second %s", what, third.Stdout, reply.Stdout)
		}
		r.must(verb("DEL", c))
		r.nothingDelegated(dir)
	}

	// Where that fails the pod's endpoint and link go, along with its addresses.
	r.add(c)
	if err := os.Remove(answers()[0]); err != nil {
		t.Fatal(err)
	}
	broken := c
	broken.Stdin = bytes.Replace(conf, []byte(`"10.8.0.0/24"`), []byte(`"10.8.0.0/33"`), 1)
	if _, err := r.host.CNI(r.ctx(), broken); err == nil {
		t.Error("a subnet of /33 is no error")
	}
	r.empty()
	r.must(verb("DEL", c))
	r.nothingDelegated(dir)

	// Nothing can be remembered.
	if err := os.RemoveAll(delegated); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(delegated, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.add(c)
	second := addrs(r.add(c))
	if got := leases(t, dir); !slices.Equal(got, []string{second[0].String(), second[1].String()}) {
		t.Errorf("host-local has %v, the pod %v", got, second)
	}
	r.must(verb("DEL", c))
	r.empty()
}

// slowIPAM is an IPAM plugin that says that it has begun and waits for a word.
const slowIPAM = `#!/bin/sh
dir=$(dirname "$0")
if [ "$CNI_COMMAND" = ADD ]; then
	: >"$dir/begun"
	read -r word <"$dir/go"
fi
exec "$dir/host-local"
`

// slowAdd is an ADD under way.
type slowAdd struct {
	*rig
	call lab.Call
	cmd  *exec.Cmd
	out  bytes.Buffer
	bin  string // of the slow IPAM plugin, and its fifo
	dir  string // of host-local
}

// beginSlowAdd returns when the IPAM plugin has been asked.
func beginSlowAdd(t *testing.T) *slowAdd {
	t.Helper()
	return beginSlowAddWith(t, nil, func(*slowAdd) {})
}

// beginSlowAddWith has the network configuration changed, and something done before.
func beginSlowAddWith(t *testing.T, change map[string]any, before func(*slowAdd)) *slowAdd {
	t.Helper()
	s := &slowAdd{bin: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.bin, "slow"), []byte(slowIPAM), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(reference(t), "host-local"), filepath.Join(s.bin, "host-local")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(s.bin, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.rig = newRig(t, lab.Config{CNIPath: []string{s.bin}, Pools: []netip.Prefix{}})
	before(s)
	var conf []byte
	conf, s.dir = s.hostLocal(change)
	s.call = call(s.pod("pod"), bytes.Replace(conf, []byte(`"host-local"`), []byte(`"slow"`), 1))
	s.cmd = exec.Command(filepath.Join(pathOf(s.rig), "calico"))
	s.cmd.Env = append(append(os.Environ(), s.host.Env()...), "CNI_PATH="+s.bin,
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS="+s.call.Netns)
	s.cmd.Stdin, s.cmd.Stdout = bytes.NewReader(s.call.Stdin), &s.out
	if err := s.host.Do(s.cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := eventually.Wait(s.ctx(), "the IPAM plugin", func() error {
		_, err := os.Stat(filepath.Join(s.bin, "begun"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestInterruptedWhileAnotherPluginWorks stops an ADD whose IPAM plugin waits.
// That is stopped too, with all its processes.
func TestInterruptedWhileAnotherPluginWorks(t *testing.T) {
	r := beginSlowAdd(t)
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err == nil || !strings.Contains(r.out.String(), `"code": 11`) {
		t.Errorf("the interrupted ADD: %v, %s", err, &r.out)
	}
	r.nothingDelegated(r.dir)
}

// TestKilledWhileAnotherPluginWorks kills an ADD whose IPAM plugin goes on. The
// DEL that follows waits for that, and gives back what it has given.
func TestKilledWhileAnotherPluginWorks(t *testing.T) {
	r := beginSlowAdd(t)
	c, conf, bin, dir, cmd := r.call, r.call.Stdin, r.bin, r.dir, r.cmd
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the ADD was not killed")
	}
	// A DEL that can't wait long enough says so.
	hasty := c
	hasty.Stdin = bytes.Replace(conf, []byte("{"), []byte(`{"datastore_timeout_seconds":1,`), 1)
	r.failsLike(verb("DEL", hasty), 11, `another call for the same interface is at work: .*`)
	deleted := make(chan error, 1)
	go func() {
		_, err := r.host.CNI(r.ctx(), verb("DEL", c))
		deleted <- err
	}()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Error(err)
	}
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	r.empty()
}

// TestEtcdsTimeIsOne has etcd take half of its time before another plugin has answered. After that it has the other half,
// however long the plugin took.
func TestEtcdsTimeIsOne(t *testing.T) {
	const bound = 12 * time.Second
	key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"}
	read := make(chan struct{})
	var requests atomic.Int32 // that are about the ADD's endpoint
	see := func(_ net.Conn, data []byte) (more bool) {
		if bytes.Contains(data, []byte(key.Path())) {
			switch requests.Add(1) {
			case 1:
				time.Sleep(bound / 2)
				close(read)
			case 2:
				return true // until the ADD gives the write up
			}
		}
		return false
	}
	change := map[string]any{"datastore_timeout_seconds": int(bound / time.Second)}
	r := beginSlowAddWith(t, change, func(s *slowAdd) { change["etcd_endpoints"] = s.relay(see) })
	select {
	case <-read:
	case <-r.ctx().Done():
		t.Fatal("the ADD reads nothing from etcd")
	}
	if err := os.WriteFile(filepath.Join(r.bin, "go"), []byte("on\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err == nil || !strings.Contains(r.out.String(), `"code": 11`) {
		t.Errorf("ADD: %v, %s", err, &r.out)
	}
	// A busy machine adds to the half that was left.
	var took time.Duration
	if m := regexp.MustCompile(`commit .*deadline exceeded after ([0-9.]+m?s)`).FindStringSubmatch(r.out.String()); m != nil {
		took, _ = time.ParseDuration(m[1])
	}
	if took == 0 || took >= bound {
		t.Errorf("ADD gave the write up after %v: %s", took, &r.out)
	}
	r.must(verb("DEL", r.call)) // etcd may have taken the write after the undo had looked
	r.nothingDelegated(r.dir)
}

// TestGCOfWhatDiedYoung has links, endpoints and addresses of calls that died.
func TestGCOfWhatDiedYoung(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	gc := lab.Call{Verb: "GC", Stdin: []byte(strings.TrimSuffix(string(conf), "}") + `,"cni.dev/valid-attachments":[]}`)}
	c := call(r.pod("pod"), conf)
	hostIf := r.add(c).Interfaces[0].Name
	r.sh("ip link del " + hostIf)
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{
		model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: "c1", Endpoint: "eth0"},
	}}); err != nil {
		t.Fatal(err)
	}
	r.must(gc)
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	// The link was made anew for the endpoint, and has no alias yet.
	r.add(c)
	r.sh("ip link del " + hostIf + " && ip link add " + hostIf + " type veth peer name p1 netns " + c.Netns)
	r.must(gc)
	r.empty()
	// The link is a later sandbox's, which comes first in the alphabet.
	c.Args, c.ContainerID = k8sArgs, "old"
	hostIf = r.add(c).Interfaces[0].Name
	r.sh("ip link set " + hostIf + " alias 'calico net1.new.eth0'")
	r.must(gc)
	r.empty()
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	if _, err := os.Stat(filepath.Join(r.host.VarDir(), "delegated")); errors.Is(err, os.ErrNotExist) {
		t.Error("nothing was remembered")
	}
}
