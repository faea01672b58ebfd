// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// TestAddAgainWithHostLocal has an ADD repeated whose addresses come from a
// plugin that refuses that. The pod gets new ones, and those that it had are free.
func TestAddAgainWithHostLocal(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	c := call(r.pod("pod"), conf)
	first := addrs(r.add(c))
	reply := r.must(c)
	second := addrs(r.result(reply))
	if slices.Equal(first, second) || len(second) != 2 {
		t.Errorf("first %v, then %v", first, second)
	}
	if got := leases(t, dir); !slices.Equal(got, []string{second[0].String(), second[1].String()}) {
		t.Errorf("host-local has %v, the pod %v", got, second)
	}
	if ep := r.endpoints()["cni c1 eth0"]; !slices.Equal(ep.Addrs(), second) {
		t.Errorf("endpoint %+v", ep)
	}
	r.must(verb("CHECK", withResult(r, c, reply)))

	// One that fails takes the pod's endpoint and link along with its addresses.
	broken := c
	broken.Stdin = bytes.Replace(conf, []byte(`"10.8.0.0/24"`), []byte(`"10.8.0.0/33"`), 1)
	if _, err := r.host.CNI(r.ctx(), broken); err == nil {
		t.Error("a subnet of /33 is no error")
	}
	r.empty()
	r.must(verb("DEL", c))
	if got := leases(t, dir); len(got) != 0 {
		t.Errorf("host-local still has %v", got)
	}
	if left, err := os.ReadDir(filepath.Join(r.host.VarDir(), "delegated")); err != nil || len(left) > 0 {
		t.Errorf("still remembered: %v, %v", left, err)
	}
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

// TestKilledWhileAnotherPluginWorks kills an ADD whose IPAM plugin goes on. The
// DEL that follows waits for that, and gives back what it has given.
func TestKilledWhileAnotherPluginWorks(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "slow"), []byte(slowIPAM), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(reference(t), "host-local"), filepath.Join(bin, "host-local")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(bin, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, lab.Config{CNIPath: []string{bin}, Pools: []netip.Prefix{}})
	conf, dir := r.hostLocal(nil)
	conf = bytes.Replace(conf, []byte(`"host-local"`), []byte(`"slow"`), 1)
	c := call(r.pod("pod"), conf)
	cmd := exec.Command(filepath.Join(pathOf(r), "calico"))
	cmd.Env = append(append(os.Environ(), r.host.Env()...), "CNI_PATH="+bin,
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS="+c.Netns)
	cmd.Stdin = bytes.NewReader(conf)
	if err := r.host.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := lab.Until(r.ctx(), "the IPAM plugin", func() error {
		_, err := os.Stat(filepath.Join(bin, "begun"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
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
	r.sh("ip link del " + hostIf + " && ip link add " + hostIf + " type veth peer name p1")
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
