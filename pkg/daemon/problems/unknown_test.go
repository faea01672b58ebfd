// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

func TestUnknownFields(t *testing.T) {
	var log bytes.Buffer
	p := New(untimed(&log, nil))
	f := NewUnknown("a", p)
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
		f.Update(model.Update{Resync: step.resync, Entries: step.entries})
		var got []string
		for _, o := range p.All() {
			got = append(got, o.Path+" "+o.Reason)
			if o.Kind != Notice {
				t.Errorf("step %d: kind %s", i, o.Kind)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	if p.Count() != 0 {
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
	f.Update(model.Update{Entries: many})
	if got := strings.Count(log.String(), "\n"); got != MostSaid+1 || len(p.All()) != 1000 {
		t.Errorf("%d lines, %d shown of 1000", got, len(p.All()))
	}
}

// TestUnknownKeys: misspelt keys of BGP are shown; those below another host are left to that host.
func TestUnknownKeys(t *testing.T) {
	var log bytes.Buffer
	p := New(untimed(&log, nil))
	f := NewUnknown("a", p)
	entry := func(path string, revision int64) model.Entry {
		e := model.Entry{Path: path, Revision: revision}
		if e.Key, e.Err = model.ParseKey(path); e.Err != nil {
			e.Key = nil
		}
		return e
	}
	const slip, mine, others, wrong = "/calico/bgp/v1/global/as_numm", "/calico/bgp/v1/host/a/as_number", "/calico/bgp/v1/host/b/as_number", "/calico/bgp/v1/global/peer_v4/x"
	for i, step := range []struct {
		resync  bool
		entries []model.Entry
		want    []string
		said    string // in the log
	}{
		{true, []model.Entry{entry(slip, 5), entry(others, 5), entry(wrong, 5), entry("/calico/v1/nothing", 5)}, []string{slip}, "level=WARN msg=\"unknown key in etcd is passed over\" key=" + slip},
		{false, []model.Entry{entry(mine, 6), entry(slip, 6)}, []string{slip, mine}, "level=WARN msg=\"unknown key in etcd is passed over\" key=" + mine},
		{false, []model.Entry{entry(slip, 0), entry(others, 0)}, []string{mine}, "level=INFO msg=\"unknown key in etcd is gone\" key=" + slip},
		{true, nil, nil, "level=INFO msg=\"unknown key in etcd is gone\" key=" + mine},
	} {
		log.Reset()
		f.Update(model.Update{Resync: step.resync, Entries: step.entries})
		var got []string
		for _, o := range p.All() {
			got = append(got, o.Path)
			if o.Kind != Notice {
				t.Errorf("step %d: kind %s", i, o.Kind)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if !strings.HasPrefix(log.String(), step.said) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("step %d: the log has %s, want %s", i, &log, step.said)
		}
	}
}
