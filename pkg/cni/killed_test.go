// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestAddAgainWithHostLocal repeats an ADD with a plugin that refuses repetitions: the plugin is first asked to release
// its addresses.
func TestAddAgainWithHostLocal(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	c := call(r.pod("pod"), conf)
	r.must(c)
	for range 2 {
		again := r.must(c)
		result := r.result(again)
		if ep := r.endpoints()["cni c1 eth0"]; !slices.Equal(ep.Addrs(), addrs(result)) {
			t.Errorf("endpoint %+v, result %v", ep, addrs(result))
		}
		if got := leases(t, dir); len(got) != 2 {
			t.Errorf("host-local has %v", got)
		}
		r.must(verb("CHECK", withResult(r, c, again)))
	}
	r.must(verb("DEL", c))
	r.nothingDelegated(dir)
}

// nothingDelegated checks that nothing is left, including leases in host-local's directory, if any.
func (r *rig) nothingDelegated(dir string) {
	r.Helper()
	r.empty()
	if dir != "" {
		if got := leases(r.T, dir); len(got) != 0 {
			r.Errorf("host-local still has %v", got)
		}
	}
}

// slowIPAM is an IPAM plugin that reports that it has begun, and then waits for a signal.
const slowIPAM = `#!/bin/sh
dir=$(dirname "$0")
if [ "$CNI_COMMAND" = ADD ]; then
	: >"$dir/begun"
	read -r word <"$dir/go"
fi
exec "$dir/host-local"
`

// slowAdd is an ADD in progress.
type slowAdd struct {
	*rig
	call lab.Call
	cmd  *exec.Cmd
	out  bytes.Buffer
	bin  string // of the slow IPAM plugin, and its fifo
	dir  string // of host-local
}

// beginSlowAdd returns once the IPAM plugin has been called.
func beginSlowAdd(t *testing.T) *slowAdd {
	t.Helper()
	return beginSlowAddWith(t, nil, func(*slowAdd) {})
}

// beginSlowAddWith is beginSlowAdd with a changed network configuration and a preceding action.
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

// TestInterruptedWhileAnotherPluginWorks stops an ADD whose IPAM plugin is waiting. The plugin is stopped too, with all
// its processes.
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

// TestKilledWhileAnotherPluginWorks kills an ADD whose IPAM plugin goes on. The following DEL waits for the plugin, and
// releases what it assigned.
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

// TestGCOfWhatDiedYoung: links, endpoints and addresses of calls that died are collected.
func TestGCOfWhatDiedYoung(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	gc := lab.Call{Verb: "GC", Stdin: []byte(strings.TrimSuffix(string(conf), "}") + `,"cni.dev/valid-attachments":[]}`)}
	c := call(r.pod("pod"), conf)
	hostIf := r.add(c).Interfaces[0].Name
	// The link is gone, as after a GC that died.
	r.sh("ip link del " + hostIf)
	r.must(gc)
	r.empty()
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
}
