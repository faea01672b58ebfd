// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
)

// TestTwiceAtOnce runs concurrent calls for the same container, for many containers, with addresses of our own and of
// another plugin.
func TestTwiceAtOnce(t *testing.T) {
	r := newRig(t, lab.Config{CNIPath: []string{reference(t)}})
	twiceAtOnce(r, "own", r.conf(nil), 13)
	conf, dir := r.hostLocal(nil)
	twiceAtOnce(r, "others", conf, 0)
	r.nothingDelegated(dir)
}

func twiceAtOnce(r *rig, name string, conf []byte, handles int) {
	t := r.T
	same := call(r.pod(name), conf)
	same.ContainerID = "same"
	var calls []lab.Call
	for range 4 {
		calls = append(calls, same)
	}
	for i := range 12 {
		c := call(r.pod(fmt.Sprintf("%s%d", name, i)), conf)
		c.ContainerID = fmt.Sprintf("p%d", i)
		calls = append(calls, c)
	}
	atOnce := func(v string) []string {
		out := make([]string, len(calls))
		var all sync.WaitGroup
		for i, c := range calls {
			all.Go(func() {
				reply, err := r.host.CNI(r.ctx(), verb(v, c))
				if err != nil {
					t.Errorf("%s %s: %v\n%s", v, c.ContainerID, err, reply.Stderr)
				}
				out[i] = string(reply.Stdout)
			})
		}
		all.Wait()
		return out
	}
	out := atOnce("ADD")
	for i := range 4 {
		if handles > 0 && out[i] != out[0] { // another plugin gives others
			t.Errorf("ADD of the same container:\n%s\n%s", out[i], out[0])
		}
	}
	if got := len(r.handles()); got != handles {
		t.Errorf("%d handles", got)
	}
	if got := len(r.links()); got != 13 {
		t.Errorf("%d links", got)
	}
	atOnce("DEL")
	r.empty()
}
