// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

func TestUnknownFields(t *testing.T) {
	var log bytes.Buffer
	p := newProblems(untimed(&log, nil))
	f := newUnknownFields("a", p)
	entry := func(k model.Key, unknown string) model.Entry {
		e := model.Entry{Path: k.Path(), Key: k, Revision: 7}
		if unknown != "" {
			e.Unknown = errors.New(unknown)
		}
		return e
	}
	policy, other := model.PolicyKey{Tier: "default", Policy: "p"}, model.PolicyKey{Tier: "default", Policy: "q"}
	mine, others := model.HostEndpointKey{Host: "a", Endpoint: "e"}, model.HostEndpointKey{Host: "b", Endpoint: "e"}
	peer, othersPeer := model.BGPPeerKey{IP: netip.MustParseAddr("192.0.2.1")}, model.BGPPeerKey{Host: "b", IP: netip.MustParseAddr("192.0.2.1")}
	for i, step := range []struct {
		resync  bool
		entries []model.Entry
		want    []string
	}{
		{true, []model.Entry{entry(policy, "x"), entry(other, ""), entry(others, "x"), entry(othersPeer, "x")}, []string{policy.Path() + " x"}},
		{false, []model.Entry{entry(policy, "x"), entry(other, "y")}, []string{policy.Path() + " x", other.Path() + " y"}},
		{false, []model.Entry{entry(policy, "")}, []string{other.Path() + " y"}},
		{false, []model.Entry{{Path: other.Path(), Key: other}}, nil},
		{false, []model.Entry{entry(mine, "z"), entry(peer, "i")}, []string{peer.Path() + " i", mine.Path() + " z"}},
		{true, []model.Entry{entry(peer, "i")}, []string{peer.Path() + " i"}},
		{true, nil, nil},
	} {
		f.hear(store.Update{Resync: step.resync, Entries: step.entries})
		var got []string
		for _, o := range p.all() {
			got = append(got, o.Path+" "+o.Reason)
			if o.Kind != problemNotice {
				t.Errorf("step %d: kind %s", i, o.Kind)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if p.count() != 0 {
		t.Error("they count as invalid")
	}
	if got := strings.Count(log.String(), "key="+policy.Path()); got != 2 {
		t.Errorf("%d lines of a policy:\n%s", got, &log)
	}

	log.Reset()
	many := make([]model.Entry, 1000)
	for i := range many {
		many[i] = entry(model.PolicyKey{Tier: "default", Policy: fmt.Sprint(i)}, "x")
	}
	f.hear(store.Update{Entries: many})
	if got := strings.Count(log.String(), "\n"); got != mostSaid+1 || len(p.all()) != 1000 {
		t.Errorf("%d lines, %d shown of 1000", got, len(p.all()))
	}
}

// TestUnknownFieldsShown: a pool with a misspelt field is a pool, and the slip is shown.
func TestUnknownFieldsShown(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	pool := model.PoolKey{CIDR: netip.MustParsePrefix("10.65.0.0/16")}
	h.raw(clientv3.OpPut(pool.Path(), `{"cidr":"10.65.0.0/16","disable":true}`))
	h.start()
	h.ready()
	shown := func() string {
		_, body := h.fetch(h.health, "/debug/invalid")
		return body
	}
	h.until("notice of a pool", func() bool {
		return strings.Contains(shown(), "notice "+pool.Path()+"\n") && strings.Contains(shown(), "disable: unknown")
	})
	if n := h.metric("calico_node_invalid_objects"); n != 0 {
		t.Errorf("%v objects are invalid", n)
	}
	h.put(pool, model.Pool{CIDR: pool.CIDR, IPAM: true})
	h.until("its end", func() bool { return !strings.Contains(shown(), "notice") })
}
