// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// TestRoundTripsAfterAConflict has a call read with the commit that conflicts what it had to read one after the other
// before, and at once after the next one.
func TestRoundTripsAfterAConflict(t *testing.T) {
	l := lab.ForTest(t, lab.Config{NoAgent: true, NoFsync: true})
	client := l.Etcd()
	a, b, c := model.GlobalConfigKey{Name: "a"}, model.GlobalConfigKey{Name: "b"}, model.GlobalConfigKey{Name: "c"}
	write := func(k model.Key, value string) model.Put { return model.Put{Key: k, Value: model.Text(value)} }
	s := &session{conf: &netconf.Config{}, log: slog.New(slog.DiscardHandler), client: client}
	conflicts := 2
	before := client.Counters().RoundTrips
	_, err := s.transact(t.Context(), transaction{
		first: s.begin(t.Context(), []ipam.Want{{Key: a}}),
		decide: func(v *view) (model.Change, error) {
			for _, k := range []model.Key{b, c} {
				if err := v.needs([]model.Key{k}); err != nil {
					return model.Change{}, err
				}
			}
			return model.Change{Compares: []model.Compare{v.compare(a)}, Puts: []model.Put{write(c, "done")}}, nil
		},
		before: func(*view) error {
			if conflicts--; conflicts < 0 {
				return nil
			}
			_, err := client.Commit(t.Context(), model.Change{Puts: []model.Put{write(a, "meanwhile")}})
			return err
		},
		unlocked: true,
	})
	// Three to read, and the commit; another; then one to read and one to commit; and two of others.
	if got := client.Counters().RoundTrips - before; err != nil || got != 4+1+2+2 {
		t.Errorf("%d round trips, want 9: %v", got, err)
	}
}

// TestConflictWhileTakingOver has an ADD decide again, after a conflict in etcd, while it
// takes over the link of the pod's former sandbox, and when it has.
func TestConflictWhileTakingOver(t *testing.T) {
	l := lab.ForTest(t, lab.Config{NoAgent: true, NoFsync: true})
	open := func(name string) *pod.Namespace {
		made, err := l.NewNamespace(name)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := pod.OpenNamespace(made.Path())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ns.Close)
		return ns
	}
	for _, done := range []bool{false, true} {
		former, next := open(fmt.Sprintf("former-%t", done)), open(fmt.Sprintf("next-%t", done))
		id := newIdentity("net1", "a", environ{containerID: fmt.Sprintf("next-%t", done), ifName: "eth0"})
		veth := pod.Veth{HostName: id.hostIf, PodName: "eth0", Alias: linkAlias("net1", "net1.former.eth0")}
		if _, _, err := pod.CreateVeth(former, veth); err != nil {
			t.Fatal(err)
		}
		left, err := link.Find(id.hostIf)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s := &session{conf: &netconf.Config{}, log: slog.New(slog.NewTextHandler(&log, nil))}
		looked := make(chan struct{})
		w := &wire{s: s, id: id, ns: next, mtu: 1500, mac: podMAC(id.handle), owned: true}
		w.making = s.async(func() error {
			<-looked
			return &takenError{left}
		})
		addr := netip.MustParseAddr("10.1.0.1")
		a := &attachment{s: s, id: id, wire: w, addrs: []netip.Addr{addr}}
		if err := a.before(t.Context()); err != nil { // it isn't known yet what has the name
			t.Fatal(err)
		}
		close(looked)
		<-w.making.done
		if done {
			<-w.setting.done
		}
		if err := a.before(t.Context()); err != nil {
			t.Errorf("after the conflict: %v", err)
		}
		if err := w.wait(); err != nil {
			t.Errorf("set up the link: %v", err)
		}
		if n := bytes.Count(log.Bytes(), []byte("replacing a link")); n != 1 {
			t.Errorf("the link was replaced %d times: %s", n, &log)
		}
		held, err := pod.Read(next, "eth0")
		if err != nil || held.MAC != model.MAC(w.mac) || !slices.Contains(held.Addrs, netip.PrefixFrom(addr, 32)) {
			t.Errorf("the pod has %+v, %v", held, err)
		}
		if err := link.Delete(id.hostIf); err != nil {
			t.Error(err)
		}
	}
}
