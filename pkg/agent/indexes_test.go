// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// TestIndexesAreTold makes links come and go: the firewall gets their new indexes before it is applied.
func TestIndexesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClockwork(t, func(c *clockwork) { c.links = map[string]int{"cali1": 5} })
		expect := func(name string, want map[string]int) {
			t.Helper()
			synctest.Wait()
			c.kernelTable.Do(func() {
				if diff := cmp.Diff(want, c.kernelTable.Applied); diff != "" {
					t.Errorf("%s: what was told when it was applied last, -want +got:\n%s", name, diff)
				}
			})
		}
		event := func(e hostpath.Event, links map[string]int) {
			c.with(func() { c.links = links })
			c.events <- e
		}
		etcd := func(e model.Entry) { c.updates <- model.Update{Revision: e.Revision, Entries: []model.Entry{e}} }
		expect("at the start", map[string]int{"cali1": 5})
		c.with(func() { c.links = map[string]int{"cali1": 5, "cali2": 6} })
		etcd(put(testKey("b"), testSpec("cali2", "10.0.0.2"), 2))
		expect("an endpoint comes, and its link came before", map[string]int{"cali1": 5, "cali2": 6})
		event(hostpath.Event{Interfaces: []string{"cali1"}}, map[string]int{"cali1": 7, "cali2": 6})
		expect("a link is another", map[string]int{"cali1": 7, "cali2": 6})
		event(hostpath.Event{Interfaces: []string{"cali1"}}, map[string]int{"cali2": 6})
		expect("it has gone", map[string]int{"cali1": 0, "cali2": 6})
		etcd(put(model.ReadyKey{}, model.Ready(false), 3))
		event(hostpath.Event{Interfaces: []string{"cali2"}}, map[string]int{"cali1": 8})
		expect("another has while nothing of etcd is acted upon", map[string]int{"cali1": 0, "cali2": 0})
		event(hostpath.Event{All: true}, map[string]int{"cali1": 8, "cali2": 9})
		expect("events were lost", map[string]int{"cali1": 8, "cali2": 9})
		c.with(func() { c.links = nil })
		close(c.events)
		expect("nobody tells of links any more", map[string]int{"cali1": 0, "cali2": 0})
	})
}

// TestIndexesLive gives the index of a pod's link to another link, in every way, while an agent runs and between two.
func TestIndexesLive(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	stop := h.start()
	p := h.addPod(1)
	h.addPod(2)
	elements := func() string { // of the pod, as the sets have them
		var have []string
		for _, set := range []string{"sources-by-index4", "sources-by-index6"} {
			out, err := exec.Command("nft", "list", "set", "inet", "calico", set).CombinedOutput()
			if err != nil {
				t.Fatalf("nft: %v: %s", err, out)
			}
			_, list, _ := strings.Cut(string(out), "elements = {")
			for e := range strings.SplitSeq(strings.Trim(strings.Join(strings.Fields(list), " "), "} "), ", ") {
				for _, a := range []string{p.spec.IPv4Nets[0].Addr().String(), p.spec.IPv6Nets[0].Addr().String()} {
					if strings.HasSuffix(e, " . "+a) {
						have = append(have, e)
					}
				}
			}
		}
		slices.Sort(have)
		return strings.Join(have, ", ")
	}
	becomes := func(what, name string) {
		t.Helper()
		want := ""
		if name != "" {
			want = fmt.Sprintf("%q . 10.65.0.1, %q . fd00::1", name, name)
		}
		h.until(what+": "+want, func() bool { return elements() == want })
	}
	index := func() int {
		l, err := link.Find(p.spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		return l.Index
	}
	takeOver := func(index int) { // another link has the index, as if moved here from another namespace
		h.ip("link", "add", "cali99", "index", fmt.Sprint(index), "type", "veth", "peer", "name", "peer99")
	}
	name := p.spec.Name
	becomes("a pod that was added", name)
	former := index()
	p.unwire()
	takeOver(former)
	becomes("its link has gone, and another has its index", "")
	p.wire()
	becomes("its link was made anew", name)
	h.ip("link", "set", name, "name", "cali77")
	becomes("its link has another name", "")
	h.ip("link", "set", "cali77", "name", name)
	becomes("and the former again", name)

	stop()
	becomes("the agent has stopped", name)
	former = index()
	p.unwire()
	h.ip("link", "del", "cali99")
	takeOver(former)
	h.start()
	becomes("another link has the index before the agent starts", "")
	p.wire()
	becomes("its link was made anew", name)
	h.remove(p.key)
	becomes("the endpoint has gone, and its link stays", "")
	h.ip("link", "del", "cali99")
}
