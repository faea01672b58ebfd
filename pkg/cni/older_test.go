// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// olderForms are the names that older versions of Calico gave the handle of a container's addresses.
var olderForms = map[string]func(lab.Call, model.WorkloadEndpointKey) string{
	"of network and container": func(c lab.Call, _ model.WorkloadEndpointKey) string { return "net1." + c.ContainerID },
	"of the container":         func(c lab.Call, _ model.WorkloadEndpointKey) string { return c.ContainerID },
	"of the workload":          func(_ lab.Call, k model.WorkloadEndpointKey) string { return k.Workload },
	"none":                     func(lab.Call, model.WorkloadEndpointKey) string { return "" },
}

var unallocated = regexp.MustCompile(`,"unallocated":\[[0-9,]*\]`)

// older turns the only pod into one left by an older version of Calico: its endpoint has the container ID under the
// name field or, if that is empty, not at all; its block has no list of free addresses, its handle has another name,
// its link no alias, and its route the protocol of ip and BIRD's forerunners.
func (r *rig) older(c lab.Call, field string, handle func(lab.Call, model.WorkloadEndpointKey) string) {
	r.Helper()
	var id, link string
	var addrs []netip.Addr
	all := r.sound()
	for _, e := range all {
		if k, ok := e.Key.(model.WorkloadEndpointKey); ok {
			id = handle(c, k)
			endpoint := e.Value.(model.WorkloadEndpoint)
			link, addrs = endpoint.Name, endpoint.Addrs()
			text := r.text(endpoint)
			if field == "" {
				text = strings.Replace(text, `,"container_id":"`+c.ContainerID+`"`, "", 1)
			}
			r.putText(k, strings.Replace(text, `"container_id"`, fmt.Sprintf("%q", field), 1))
		}
	}
	for _, e := range all {
		switch k := e.Key.(type) {
		case model.HandleKey:
			h := e.Value.(model.Handle)
			r.delete(k)
			if h.ID = id; id != "" {
				r.put(model.HandleKey{ID: id}, h)
			}
		case model.BlockKey:
			b := e.Value.(model.Block)
			for i := range b.Attributes {
				b.Attributes[i] = model.Attributes{HandleID: id}
			}
			r.putText(k, unallocated.ReplaceAllString(r.text(b), ""))
		}
	}
	r.sh("ip link set " + link + " alias ''")
	for _, a := range addrs {
		r.sh(fmt.Sprintf("ip route replace %s dev %s scope link proto boot", a, link))
	}
}

// otherMAC gives the endpoints other MAC addresses.
func (r *rig) otherMAC() {
	r.Helper()
	for _, e := range r.sound() {
		if endpoint, ok := e.Value.(model.WorkloadEndpoint); ok {
			endpoint.MAC[5]++
			r.put(e.Key, endpoint)
		}
	}
}

func (r *rig) text(v any) string {
	r.Helper()
	text, err := model.FormatValue(v)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// TestOlderVersions uses pods made by an older version of Calico: all verbs treat them as their own.
func TestOlderVersions(t *testing.T) {
	r := newRig(t, small())
	pod := r.pod("pod")
	for name, args := range map[string]string{"a pod": k8sArgs, "a container": ""} {
		for form, handle := range olderForms {
			t.Run(name+", handle "+form, func(t *testing.T) {
				c := call(pod, r.conf(nil))
				c.Args = args
				gone := func() {
					t.Helper()
					r.empty()
					if links := r.links(); len(links) > 0 {
						t.Errorf("links %v are left", links)
					}
				}
				result := r.must(c).Stdout
				r.older(c, "active_instance_id", handle)
				check := verb("CHECK", c)
				check.Stdin = []byte(strings.TrimSuffix(string(c.Stdin), "}") + `,"prevResult":` + string(result) + "}")
				r.must(check)
				r.must(verb("DEL", c))
				gone()

				// The pod's next sandbox takes over, and the former one's DEL comes late.
				r.must(c)
				r.older(c, "active_instance_id", handle)
				if args != "" {
					next := c
					next.ContainerID, next.Netns = "c9", r.pod("next"+strings.Map(letters, form))
					r.must(next)
					r.must(verb("DEL", c))
					if got := r.handles(); !slices.Equal(got, []string{"net1.c9.eth0"}) {
						t.Errorf("handles %v, want that of the next sandbox", got)
					}
					r.must(verb("DEL", next))
				} else {
					r.must(verb("DEL", c))
				}
				gone()

				// GC removes what names the network, and leaves the rest to DEL.
				r.must(c)
				r.older(c, "active_instance_id", handle)
				r.otherMAC() // which doesn't tell the container either
				r.must(withAttachments(r, lab.Call{Verb: "GC", Stdin: c.Stdin}))
				if form == "of network and container" {
					gone()
				} else if len(r.endpoints()) != 1 || len(r.links()) != 1 {
					t.Errorf("GC of a network took a container that may be another's: %v, links %v", r.endpoints(), r.links())
				}
				r.must(verb("DEL", c))
				gone()
			})
		}
	}
}

// TestAgentOfOlderVersions starts the agent next to a pod made by an older version of Calico: no ping is lost, and the
// agent owns the route then.
func TestAgentOfOlderVersions(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	c.Args = k8sArgs
	result := r.add(c)
	addr := result.IPs[0].Address.IP.String()
	r.older(c, "active_instance_id", olderForms["of the workload"])
	r.sh("sysctl -qw net.ipv4.conf." + result.Interfaces[0].Name + ".proxy_arp=1 net.ipv4.ip_forward=1")
	if _, err := r.host.Namespace().Ping(r.ctx(), netip.MustParseAddr(addr)); err != nil {
		t.Fatal(err)
	}
	lost := func() (n int) {
		if _, err := fmt.Sscan(r.sh("nstat -asz IcmpOutEchos IcmpInEchoReps | awk '/Out/ {n += $2} /In/ {n -= $2} END {print n}'"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	stop, asked, before := make(chan struct{}), 0, lost()
	var pinging sync.WaitGroup
	pinging.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.host.Namespace().Ping(r.ctx(), netip.MustParseAddr(addr)); err != nil {
				t.Error(err)
			}
			asked++
		}
	})
	err := r.host.Agent().Start(r.ctx())
	close(stop)
	pinging.Wait()
	if err != nil || asked == 0 {
		t.Errorf("%d pings: %v", asked, err)
	}
	eventually.True(t, "an answer to every ping", func() bool { return lost() <= before })
	if got := r.sh("ip -N route show " + addr); strings.Count(got, addr) != 1 || strings.Contains(got, "proto 3 ") || !strings.Contains(got, "proto") {
		t.Errorf("routes: %s", got)
	}
	r.must(verb("DEL", c))
	r.empty()
}

// TestDelNamesNoContainer uses endpoints without a container ID: one with the container's addresses is removed; for
// another one DEL reports that it stays.
func TestDelNamesNoContainer(t *testing.T) {
	r := newRig(t, small())
	c := call(r.pod("pod"), r.conf(nil))
	c.Args = k8sArgs
	for form, handle := range olderForms {
		t.Run(form, func(t *testing.T) {
			r.must(c)
			r.older(c, "", handle)
			reply := r.must(verb("DEL", c))
			if strings.Contains(form, "container") {
				r.empty()
				return
			}
			if len(r.endpoints()) != 1 || !strings.Contains(string(reply.Stderr), "names no container: if the workload is gone, delete it with calicoctl") {
				t.Errorf("endpoints %v\n%s", r.endpoints(), reply.Stderr)
			}
			for _, e := range r.sound() {
				switch e.Key.(type) {
				case model.WorkloadEndpointKey, model.HandleKey, model.BlockKey, model.AffinityKey:
					r.delete(e.Key)
				}
			}
		})
	}
}

// letters drops characters that a namespace's name may not have.
func letters(c rune) rune {
	if c < 'a' || c > 'z' {
		return -1
	}
	return c
}
