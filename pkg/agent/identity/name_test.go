// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// machine is one on which a person's host runs.
type machine struct {
	disk, place string
	objection   time.Duration
}

// on has a person run on a machine.
func (m machine) on(cfg *Config, i *Keeper) {
	cfg.VarDir = m.disk
	if i == nil {
		return
	}
	i.life, _ = openLife(filepath.Join(m.disk, LeasesName), "", m.place)
	i.objection = m.objection
}

func (c fleet) disk(t *testing.T, m machine) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.disk, LeasesName))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// clone is another machine with a copy of this one's disk.
func (c fleet) clone(t *testing.T, m machine) machine {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, LeasesName), []byte(c.disk(t, m)), 0o600); err != nil {
		t.Fatal(err)
	}
	return machine{disk: dir, place: "boot/9", objection: m.objection}
}

// TestReturns: a host that has another address when it returns is its former self, and
// etcd says all the time that it lives.
func TestReturns(t *testing.T) {
	status := model.StatusKey{Host: "a"}
	for name, tt := range map[string]struct {
		change func(*testing.T, *machine)
		claims bool
		first  string // its address at first
		put    bool   // its status is a former version's, of which nothing is on disk
	}{
		"where it was":               {func(_ *testing.T, m *machine) { m.objection = time.Hour }, false, "172.18.0.1", false},
		"after a boot":               {func(_ *testing.T, m *machine) { m.place = "boot/2" }, true, "172.18.0.1", false},
		"place not known":            {func(_ *testing.T, m *machine) { m.place = "" }, true, "172.18.0.1", false},
		"without its disk":           {func(t *testing.T, m *machine) { m.disk = t.TempDir() }, true, "172.18.0.2", false},
		"with garbage on it":         {func(t *testing.T, m *machine) { garble(t, *m) }, true, "172.18.0.2", false},
		"of an agent without leases": {func(*testing.T, *machine) {}, true, "172.18.0.2", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFleet(t)
			m := machine{disk: t.TempDir(), place: "boot/1", objection: time.Hour}
			if tt.put {
				c.Put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text(tt.first))
				c.Put(model.HostMetadataKey{Host: "a"}, model.HostMetadata{})
				c.Put(status, model.Status{Time: time.Now()})
			} else {
				p := c.person("a", eth0(tt.first+"/24"), m.on)
				c.Until("first", func() bool { return p.named() && c.Field("a", model.BGPHostIPv4) == tt.first })
				p.stop()
			}
			first := c.LeaseOf(status)
			m.objection = 0
			tt.change(t, &m)
			gone := c.gone(t, status)
			p := c.person("a", eth0("172.18.0.2/24"), m.on)
			c.Until("its name and its address", func() bool {
				return p.named() && c.Field("a", model.BGPHostIPv4) == "172.18.0.2" && p.unready() == ""
			})
			c.Until("its status", func() bool { return c.LeaseOf(status) != first && c.LeaseOf(status) != 0 })
			if tt.claims && first != 0 && c.hasLease(first) {
				t.Error("the former lease was not revoked: who had it might still write under it")
			}
			if gone() {
				t.Error("etcd said for a moment that the host does not live")
			}
			if m.place != "" {
				c.Until("what is on disk is the lease that the status hangs on", func() bool {
					all, err := parseLeases([]byte(c.disk(t, m)))
					return err == nil && len(all) == 1 && all[0] == lifeLease{c.LeaseOf(status), m.place}
				})
			}
		})
	}
}

// garble leaves in the file what no agent wrote.
func garble(t *testing.T, m machine) {
	if err := os.WriteFile(filepath.Join(m.disk, LeasesName), []byte("\x00garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNamesakes: of two that live, with one name, the second is refused, and named; the
// first doesn't lose the name for a moment. When it is gone the second has it.
func TestNamesakes(t *testing.T) {
	status := model.StatusKey{Host: "a"}
	for name, tt := range map[string]struct {
		second   func(fleet, *testing.T, machine) machine
		addr     string
		objected bool
	}{
		"a copied disk":                 {fleet.clone, "172.18.0.2", true},
		"a copied disk and one address": {fleet.clone, "172.18.0.1", true},
		"one address":                   {stranger, "172.18.0.1", true},
		"nothing but the name":          {stranger, "172.18.0.2", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFleet(t)
			m := machine{disk: t.TempDir(), place: "boot/1", objection: time.Hour}
			first := c.person("a", eth0("172.18.0.1/24"), m.on)
			c.Until("first", func() bool { return first.named() && c.Field("a", model.BGPHostIPv4) != "" })
			lease := c.LeaseOf(status)
			gone := c.gone(t, status)
			other := tt.second(c, t, m)
			second := c.person("a", eth0(tt.addr+"/24"), other.on)
			want := "another host that is called a lives and has 172.18.0.1"
			if tt.objected {
				want += ", as it said when this one came: one may be a copy of the other's disk"
			}
			c.Until("the second is refused", func() bool {
				return strings.Contains(second.unready(), want) && strings.Contains(second.problem(problemName), want) && !second.named()
			})
			c.Until("the first has its name", func() bool { return first.named() && c.LeaseOf(status) == lease })
			if got := c.Field("a", model.BGPHostIPv4); got != "172.18.0.1" {
				t.Errorf("the address is %s", got)
			}
			if reason := first.unready(); reason != "" {
				t.Errorf("the first is not ready: %s", reason)
			}
			// It is refused at once when it comes again: it has learned that the lease isn't its own.
			if tt.addr != "172.18.0.1" {
				second.stop()
				second = c.person("a", eth0(tt.addr+"/24"), other.on)
				c.Until("refused again", func() bool {
					return strings.Contains(second.problem(problemName), "lives and has 172.18.0.1: give this one another name")
				})
			}
			if gone() {
				t.Error("etcd said for a moment that nobody lives")
			}
			first.stop()
			c.Remove(status)
			c.Until("the second has it all", func() bool {
				return second.named() && c.Field("a", model.BGPHostIPv4) == tt.addr && c.Get(status) != nil && second.unready() == ""
			})
		})
	}
}

// stranger is a machine with a disk of its own.
func stranger(_ fleet, t *testing.T, m machine) machine {
	return machine{disk: t.TempDir(), place: "boot/9", objection: m.objection}
}

// TestCopiesAtOnce: of several copies of a dead host's disk that come at once one has the name.
func TestCopiesAtOnce(t *testing.T) {
	c := newFleet(t)
	m := machine{disk: t.TempDir(), place: "boot/1", objection: time.Second}
	p := c.person("a", eth0("172.18.0.1/24"), m.on)
	c.Until("first", func() bool { return p.named() && c.Field("a", model.BGPHostIPv4) != "" })
	p.stop()
	var all []*person
	for _, addr := range []string{"172.18.0.1/24", "172.18.0.2/24", "172.18.0.3/24"} {
		all = append(all, c.person("a", eth0(addr), c.clone(t, m).on))
	}
	c.Until("one is left", func() bool {
		named := 0
		for _, p := range all {
			if p.named() {
				named++
			}
		}
		return named == 1 && c.Get(model.StatusKey{Host: "a"}) != nil
	})
}

// TestNameLost: a host whose lease ended while it could not say so is refused when
// another has the name; one whose status somebody deleted says again that it lives.
func TestNameLost(t *testing.T) {
	c := newFleet(t)
	status := model.StatusKey{Host: "a"}
	m := machine{disk: t.TempDir(), place: "boot/1", objection: time.Hour}
	p := c.person("a", eth0("172.18.0.1/24"), m.on)
	c.Until("named", func() bool { return p.named() && c.Field("a", model.BGPHostIPv4) != "" })
	c.Remove(status)
	c.Until("it says again that it lives", func() bool { return c.Get(status) != nil && p.named() })
	c.Put(status, model.Status{Time: time.Now()}) // while it lives
	c.Until("it objects", func() bool { return c.LeaseOf(status) != 0 && p.named() })

	c.LoseName("a", "172.18.0.9")
	c.Until("refused", func() bool {
		return strings.Contains(p.unready(), "another host that is called a lives and has 172.18.0.9") && !p.named()
	})
	p.move(eth0("172.18.0.3/24"))
	c.Until("that is known", func() bool {
		return hasAddress(p.id.notes().links.Links, eth0("172.18.0.3/24").Links[0].Addrs[0].Addr())
	})
	if got := c.Field("a", model.BGPHostIPv4); got != "172.18.0.9" {
		t.Errorf("the address is %s", got)
	}
	c.Remove(status)
	c.Until("it has its name again", func() bool { return p.named() && c.Field("a", model.BGPHostIPv4) == "172.18.0.3" })
}

// hasLease says whether etcd has a lease.
func (c fleet) hasLease(id int64) (is bool) {
	c.Helper()
	c.Client(func(ctx context.Context, e *clientv3.Client) error {
		ttl, err := e.TimeToLive(ctx, clientv3.LeaseID(id))
		is = err == nil && ttl.TTL > 0
		return err
	})
	return is
}

// gone tells, when asked, whether a key has been deleted since.
func (c fleet) gone(t *testing.T, key model.Key) func() bool {
	t.Helper()
	var first int64
	c.Client(func(ctx context.Context, e *clientv3.Client) error {
		got, err := e.Get(ctx, key.Path())
		if err == nil {
			first = got.Kvs[0].CreateRevision
		}
		return err
	})
	return func() (gone bool) {
		c.Client(func(ctx context.Context, e *clientv3.Client) error {
			got, err := e.Get(ctx, key.Path())
			gone = err == nil && (len(got.Kvs) == 0 || got.Kvs[0].CreateRevision != first)
			return err
		})
		return gone
	}
}

// TestJudge is what follows from what etcd says of the name, without etcd.
func TestJudge(t *testing.T) {
	const ours, theirs = 1, 2
	at := func(lease, revision int64) model.Entry { return model.Entry{Lease: lease, Revision: revision} }
	known := evidence{known: true}
	for name, tt := range map[string]struct {
		before tenure
		e      evidence
		want   standing
		held   bool
	}{
		"nothing is known":                 {tenure{}, known, nameUnknown, false},
		"nobody has it":                    {tenure{heard: true}, known, nameTake, false},
		"nobody, and it isn't to be said":  {tenure{heard: true}, evidence{silent: true}, nameOurs, true},
		"it was deleted":                   {tenure{heard: true, held: true}, known, nameTake, true},
		"ours":                             {tenure{heard: true, status: at(ours, 5)}, known, nameOurs, true},
		"another's":                        {tenure{heard: true, status: at(theirs, 5)}, known, nameRefused, false},
		"another's, links not known":       {tenure{heard: true, status: at(theirs, 5)}, evidence{}, nameUnknown, false},
		"another's with our address":       {tenure{heard: true, status: at(theirs, 5)}, evidence{known: true, address: true}, nameClaim, false},
		"somebody claims it":               {tenure{heard: true, held: true, status: at(theirs, 5)}, evidence{known: true, alive: ours}, nameDefend, true},
		"somebody took it in an outage":    {tenure{heard: true, held: true, status: at(theirs, 5)}, known, nameRefused, false},
		"claimed":                          {tenure{heard: true, claiming: true, over: 5, status: at(ours, 6)}, known, nameAwait, false},
		"not claimed yet":                  {tenure{heard: true, claiming: true, over: 5, status: at(theirs, 6)}, evidence{known: true, address: true}, nameClaim, false},
		"somebody objects":                 {tenure{heard: true, claiming: true, over: 5, status: at(theirs, 7)}, evidence{known: true, address: true, wrote: 6}, nameRefused, false},
		"he objected, and is there":        {tenure{heard: true, objected: true, status: at(theirs, 7)}, evidence{known: true, address: true}, nameRefused, false},
		"a claim that has lost its lease":  {tenure{heard: true, claiming: true, over: 5}, evidence{known: true, wrote: 6}, nameTake, false},
		"the lease went while it was ours": {tenure{heard: true, held: true}, evidence{}, nameTake, true},
	} {
		tenure := tt.before
		tt.e.isOwn = func(l int64) bool { return l == ours }
		tt.e.isFormer = func(int64) bool { return false }
		if got := tenure.judge(tt.e); got != tt.want || tenure.held != tt.held {
			t.Errorf("%s: %v, held: %v; want %v, %v", name, got, tenure.held, tt.want, tt.held)
		}
	}
}
