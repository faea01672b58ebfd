// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestOtherNetwork gives a pod a new sandbox in a network of another name.
func TestOtherNetwork(t *testing.T) {
	r := newRig(t, small())
	former, next := call(r.pod("former"), r.conf(nil)), call(r.pod("next"), r.conf(map[string]any{"name": "net2"}))
	for _, c := range []*lab.Call{&former, &next} {
		c.Args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"
	}
	next.ContainerID = "c2"
	r.add(former)
	r.add(next)
	r.must(verb("DEL", former))
	if diff := cmp.Diff([]string{"net2.c2.eth0"}, r.handles()); diff != "" {
		t.Errorf("handles (-want +got):\n%s", diff)
	}
	r.must(verb("DEL", next))
	r.empty()
}

// TestProfileOfTheOperator uses a profile that exists in part.
func TestProfileOfTheOperator(t *testing.T) {
	r := newRig(t, small())
	r.put(model.ProfileLabelsKey{Profile: "net1"}, model.Labels{"team": "a"})
	c := call(r.pod("pod"), r.conf(nil))
	r.add(c)
	for _, e := range r.sound() {
		switch e.Key.(type) {
		case model.ProfileRulesKey, model.ProfileTagsKey:
			t.Errorf("the ADD made %s", e.Path)
		}
	}
	r.must(verb("DEL", c))
}

// TestDelWithoutNodename: the file with the node's name is lost.
func TestDelWithoutNodename(t *testing.T) {
	r := newRig(t, small())
	file := filepath.Join(r.host.VarDir(), "name")
	c := call(r.pod("pod"), r.conf(map[string]any{"nodename": "", "nodename_file": file, "policy_setup_timeout_seconds": 0}))
	if err := os.WriteFile(file, []byte("a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.add(c)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	// Addresses of a live node with another name don't prove that it is another node.
	status := model.StatusKey{Host: "a"}
	r.put(status, model.Status{Time: time.Now()})
	r.sh("ip link del " + r.links()[0])
	r.fails(verb("DEL", c), 11, "whether node a, which has the container's addresses, is this one isn't known")
	if _, err := r.lab.Etcd().Commit(r.ctx(), model.Change{Deletes: []model.Key{status}}); err != nil {
		t.Fatal(err)
	}
	r.must(verb("DEL", c))
	r.empty()
}

// TestNodenameIsRequired is on a node where the agent has not run yet, and must.
func TestNodenameIsRequired(t *testing.T) {
	long.Test(t)
	r := newRig(t, small())
	fields := map[string]any{"nodename": "", "nodename_file": "", "nodename_file_optional": false, "policy_setup_timeout_seconds": 1}
	c := call(r.pod("pod"), r.conf(fields))
	r.failsLike(c, 11, "this node's name: open .*/nodename: no such file or directory")
	r.failsLike(verb("STATUS", c), 50, "this node's name: open .*/nodename: no such file or directory")
	fields["nodename"], fields["mtu"] = "a", 1500
	c.Stdin = r.conf(fields)
	r.failsLike(c, 11, "the agent didn't confirm within [0-9ms]+ that the pod's network is programmed: .*no agent listens")
	r.failsLike(verb("STATUS", c), 51, "the agent can't serve an ADD: .*no agent listens")
	r.must(verb("DEL", c))
	r.empty()
	delete(fields, "nodename_file_optional")
	fields["policy_setup_timeout_seconds"] = 60
	c.Stdin = r.conf(fields)
	r.add(c)
	fields["nodename"], fields["nodename_file_optional"] = "", false
	c.Stdin = r.conf(fields)
	r.must(verb("DEL", c))
	r.empty()
}

// TestNodenameOfSeveralLines uses a file written by a person. It contains no valid host name, and yet what an ADD has
// left can be removed.
func TestNodenameOfSeveralLines(t *testing.T) {
	r := newRig(t, small())
	file := filepath.Join(r.host.VarDir(), "name")
	for _, named := range []struct {
		fields        map[string]any
		content, want string
	}{
		{map[string]any{"nodename_file": file}, "a\nb\n", "nodename_file " + file + `: host name "a\nb"`},
		{map[string]any{"nodename_file": file}, "a # rack 7\n", "nodename_file " + file + `: host name "a # rack 7"`},
		{map[string]any{"nodename_file": file}, "a\x00b", "nodename_file " + file + `: host name "a\x00b"`},
		{map[string]any{"nodename_file": "", "hostname": "a\tb"}, "a\n", `hostname: host name "a\tb"`},
	} {
		fields := map[string]any{"nodename": "", "policy_setup_timeout_seconds": 0}
		maps.Copy(fields, named.fields)
		if err := os.WriteFile(file, []byte("a\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		made := call(r.pod(fmt.Sprint("made", len(named.content))), r.conf(map[string]any{"policy_setup_timeout_seconds": 0}))
		r.add(made)
		if err := os.WriteFile(file, []byte(named.content), 0o644); err != nil {
			t.Fatal(err)
		}
		c := made
		c.Stdin = r.conf(fields)
		for _, plugin := range []string{"calico", "calico-ipam"} {
			c.Plugin = plugin
			for _, verbName := range []string{"ADD", "STATUS"} {
				r.fails(verb(verbName, c), 7, named.want+": want letters, digits, '.', '-' and '_'")
			}
		}
		c.Plugin = "calico"
		r.must(verb("DEL", c))
		r.empty()
	}
}

// TestGatewayOfAnother: the gateway for ptp is in the block of another host, from which this one may not borrow.
func TestGatewayOfAnother(t *testing.T) {
	r := newRig(t, lab.Config{Pools: []netip.Prefix{netip.MustParsePrefix("10.46.0.0/24")}})
	r.put(model.IPAMConfigKey{}, model.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true})
	ipam := map[string]any{"type": "calico-ipam", "assign_ipv6": false}
	other := call(r.pod("other"), r.conf(map[string]any{"nodename": "b", "ipam": ipam}))
	other.Args = "IP=10.46.0.5"
	r.add(other)
	c := call(r.pod("pod"), r.conf(map[string]any{"type": "ptp", "ipam": ipam}))
	c.Plugin, c.ContainerID = "calico-ipam", "c2"
	r.must(verb("STATUS", c))
	if got := r.add(c).IPs[0]; got.Gateway.String() != "10.46.0.1" {
		t.Errorf("the gateway is %s", got.Gateway)
	}
	for _, c := range []lab.Call{c, other} {
		r.must(verb("DEL", c))
	}
	r.sound()
}
