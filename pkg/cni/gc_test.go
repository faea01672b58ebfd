// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// meetingIPAM is an IPAM plugin that finishes the DEL of c1 only once it is also asked about c2.
const meetingIPAM = `#!/bin/sh
dir=$(dirname "$0")
case "$CNI_COMMAND $CNI_CONTAINERID" in
"ADD c1") echo '{"cniVersion":"1.0.0","ips":[{"address":"10.8.0.1/24"}]}' ;;
"ADD c2") echo '{"cniVersion":"1.0.0","ips":[{"address":"10.8.0.2/24"}]}' ;;
"DEL c1") read -r word <"$dir/meet" ;;
"DEL c2") echo here >"$dir/meet" ;;
VERSION*) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
esac
`

// TestGCAtOnce shows that GC handles containers concurrently.
func TestGCAtOnce(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "meeting"), []byte(meetingIPAM), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(bin, "meet"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, lab.Config{CNIPath: []string{bin}, Pools: []netip.Prefix{}})
	conf := r.conf(map[string]any{"cniVersion": "1.1.0", "ipam": map[string]any{"type": "meeting"}})
	for _, id := range []string{"c1", "c2"} {
		c := call(r.pod(id), conf)
		c.ContainerID = id
		r.must(c)
	}
	r.must(withAttachments(r, lab.Call{Verb: "GC", Stdin: conf}))
	r.empty()
	r.nothingDelegated("")
}

// failingIPAM is an IPAM plugin whose DEL of c1 and GC fail.
const failingIPAM = `#!/bin/sh
case "$CNI_COMMAND $CNI_CONTAINERID" in
"ADD c1") echo '{"cniVersion":"1.0.0","ips":[{"address":"10.8.0.1/24"}]}' ;;
"ADD c2") echo '{"cniVersion":"1.0.0","ips":[{"address":"10.8.0.2/24"}]}' ;;
"DEL c1"|GC*) echo '{"cniVersion":"1.1.0","code":100,"msg":"not today"}'; exit 1 ;;
VERSION*) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
esac
`

// TestGCCounts: interfaces that failed or were left are not counted as collected.
func TestGCCounts(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "failing"), []byte(failingIPAM), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, lab.Config{CNIPath: []string{bin}, Pools: []netip.Prefix{}})
	conf := r.conf(map[string]any{"cniVersion": "1.1.0", "ipam": map[string]any{"type": "failing"}})
	for _, id := range []string{"c1", "c2"} {
		c := call(r.pod(id), conf)
		c.ContainerID = id
		r.must(c)
	}
	for _, want := range []string{"collected=1", "collected=0"} {
		reply := r.failsLike(withAttachments(r, lab.Call{Verb: "GC", Stdin: conf}), 100, ".*not today.*")
		if !strings.Contains(string(reply.Stderr), want+" ") {
			t.Errorf("want %s in\n%s", want, reply.Stderr)
		}
	}
	// What the plugin doesn't release is retried.
	if err := os.WriteFile(filepath.Join(bin, "failing"), []byte(strings.Replace(failingIPAM, `"DEL c1"|`, "", 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	r.failsLike(withAttachments(r, lab.Call{Verb: "GC", Stdin: conf}), 100, ".*not today.*")
	r.empty()
}

// TestGCOfStrangersLinks uses links named almost like a pod's, and one left by an ADD that was killed before it could
// set the alias.
func TestGCOfStrangersLinks(t *testing.T) {
	r := newRig(t, small())
	strangers := []string{"calibration", "cali-backup", "cali0123456789", "cali0123456789A", "cali0123456789g"}
	pod := r.pod("pod")
	for i, name := range append(strangers, "cali0123456789a") {
		r.sh(fmt.Sprintf("ip link add %s type veth peer name peer%d netns %s", name, i, pod))
	}
	const both = "calibbbbbbbbbbb" // with both ends on the host
	r.sh("ip link add " + both + " type veth peer name peer")
	strangers = append(strangers, both)
	r.must(withAttachments(r, lab.Call{Verb: "GC", Stdin: r.conf(nil)}))
	got := r.links()
	slices.Sort(got)
	slices.Sort(strangers)
	if !slices.Equal(got, strangers) {
		t.Errorf("links %v, want %v", got, strangers)
	}
}

// TestGCOfNoPods calls GC as libcni does if the runtime has no pod in the network: CRI-O's list is nil then.
func TestGCOfNoPods(t *testing.T) {
	r := newRig(t, small())
	for _, plugin := range []string{"calico", "calico-ipam"} {
		c := call(r.pod(plugin), r.conf(nil))
		c.Plugin = plugin
		r.must(c)
		raw, err := libcni.InjectConf(&libcni.PluginConfig{Network: &types.PluginConf{}, Bytes: c.Stdin},
			map[string]any{"cni.dev/valid-attachments": []types.GCAttachment(nil)})
		if err != nil {
			t.Fatal(err)
		}
		r.must(lab.Call{Plugin: plugin, Verb: "GC", Stdin: raw.Bytes})
		r.empty()
	}
}

// TestIPAMPluginOfAnEndpoint asks calico-ipam to free addresses that calico gave to a live pod.
func TestIPAMPluginOfAnEndpoint(t *testing.T) {
	r := newRig(t, small())
	for i, of := range []struct{ container, ifName string }{{"c1", "eth0"}, {"c1", "eth0.5"}, {"c.1", "eth0"}, {"c.1", "eth0.5"}} {
		for _, args := range []string{"", k8sArgs} {
			t.Run(of.container+" "+of.ifName+" "+args, func(t *testing.T) {
				r := &rig{t, r.lab, r.host}
				c := call(r.pod(fmt.Sprintf("pod%d%d", i, len(args))), r.conf(nil))
				c.ContainerID, c.IfName, c.Args = of.container, of.ifName, args
				reply := r.must(c)
				key := model.WorkloadEndpointKey{Host: "a", Orchestrator: "cni", Workload: of.container, Endpoint: of.ifName}
				if args != "" {
					key.Orchestrator, key.Workload = "k8s", "default.web"
				}
				free := verb("DEL", c)
				free.Plugin = "calico-ipam"
				refused := func() {
					t.Helper()
					r.failsLike(free, 105, "address .* is in use: "+key.Path()+" has it")
					r.must(verb("CHECK", withResult(r, c, reply)))
				}
				refused()
				free.Args = "" // the block says whose they are
				refused()
				gc := verb("GC", free)
				gc.ContainerID, gc.IfName = "", ""
				collected := r.must(withAttachments(r, gc))
				if !strings.Contains(string(collected.Stderr), "leaving addresses that an endpoint has") {
					t.Errorf("GC says nothing:\n%s", collected.Stderr)
				}
				r.must(verb("CHECK", withResult(r, c, reply)))
				r.must(verb("DEL", c))
				r.empty()

				r.must(c)
				r.sh("ip link del " + r.links()[0])
				if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{key}}); err != nil {
					t.Fatal(err)
				}
				r.must(free)
				r.empty()
			})
		}
	}
}
