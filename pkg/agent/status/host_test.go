// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// machine is where an agent runs.
type machine struct {
	disk, place string
	addrs       []string
}

// start returns the reporter of an agent on a machine, with settings to report, but not running.
func (m machine) start(e *etcd.Server, log *slog.Logger) *Reporter {
	r := New(Config{
		Node: "a", VarDir: m.disk, Place: m.place, Logger: log, Health: health.New("calico-test"), Problems: problems.New(log),
	}, e.Store)
	r.host.addresses = func() ([]netip.Addr, error) {
		var all []netip.Addr
		for _, a := range m.addrs {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}
	r.Configure(usual)
	return r
}

// usual are the settings of default parameters.
var usual = Settings{Interval: 30 * time.Second, TTL: 90 * time.Second, Endpoints: true, Delay: 100 * time.Millisecond}

// report writes the status once.
func (r *Reporter) report(t *testing.T) {
	t.Helper()
	if _, err := r.host.report(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var statusKey = model.StatusKey{Host: "a"}

// TestName: the host whose status is in etcd, by its lease, has the name.
func TestName(t *testing.T) {
	first := machine{place: "boot-1/1", addrs: []string{"172.18.0.1"}}
	for name, tt := range map[string]struct {
		second machine // its disk "copy" is the first one's
		taken  bool
	}{
		"where it was":                        {machine{"copy", "boot-1/1", []string{"172.18.0.7"}}, false},
		"after a boot":                        {machine{"copy", "boot-2/1", []string{"172.18.0.1", "172.19.0.1"}}, false},
		"after a boot, with another address":  {machine{"copy", "boot-2/1", []string{"172.18.0.7"}}, true},
		"in a place that isn't known":         {machine{"copy", "", []string{"172.18.0.1"}}, false},
		"a copy of the disk":                  {machine{"copy", "boot-9/1", []string{"172.18.0.2"}}, true},
		"a copy of the disk, and no address":  {machine{"copy", "boot-9/1", nil}, true},
		"nothing but the name":                {machine{"", "boot-9/1", []string{"172.18.0.2"}}, true},
		"nothing but the name and an address": {machine{"", "boot-9/1", []string{"172.18.0.1", "172.19.0.1"}}, false},
		"a file of NULs, and an address":      {machine{"NULs", "boot-9/1", []string{"172.18.0.1"}}, false},
		"an empty file, and an address":       {machine{"empty", "boot-9/1", []string{"172.18.0.1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := etcd.New(t)
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			first.disk = t.TempDir()
			disk := t.TempDir()
			switch tt.second.disk {
			case "copy":
				disk = first.disk
			case "NULs", "empty":
				file := map[string][]byte{"NULs": make([]byte, 40)}[tt.second.disk]
				if err := os.WriteFile(filepath.Join(disk, LeasesName), file, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			tt.second.disk = disk
			one := first.start(e, log)
			one.report(t)
			e.Put(addressKeys("a")[0], model.Text("172.18.0.1"))
			e.Put(subnetKey("a"), model.Text("172.18.0.0/24"))
			lease := e.LeaseOf(statusKey)
			if lease == 0 || one.Naming.Get() != "" {
				t.Fatalf("the first has lease %x: %s", lease, one.Naming.Get())
			}
			two := tt.second.start(e, log)
			if got := two.Naming.Get(); got != NotNamed {
				t.Errorf("at first: %s", got)
			}
			two.report(t)
			if !tt.taken {
				if e.LeaseOf(statusKey) == lease || two.Naming.Get() != "" {
					t.Errorf("it doesn't have its name: %s", two.Naming.Get())
				}
				if one.report(t); tt.second.place != first.place && one.Naming.Get() == "" {
					t.Error("the first takes it back")
				}
				return
			}
			const want = "another host that is called a lives and has 172.18.0.1: give this one another name, or wait until that one's status is gone"
			if got := two.Naming.Get(); got != want || e.LeaseOf(statusKey) != lease {
				t.Errorf("it is told %q", got)
			}
			two.host.health.SetUnready("")
			if got := two.host.health.Unready(); got != want {
				t.Errorf("health: %s", got)
			}
			if all := two.host.problems.All(); len(all) != 1 || all[0].Path != problemName || all[0].Reason != want {
				t.Errorf("problems: %v", all)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := two.Named(ctx); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("the gate says %v", err)
			}

			// The lease ends: the other has the name, and its status never says that it has the first one's address.
			if err := one.host.lease.Close(); err != nil {
				t.Fatal(err)
			}
			two.report(t)
			if e.LeaseOf(statusKey) == 0 || two.Naming.Get() != "" || two.host.health.Unready() != "" || two.host.problems.Count() != 0 {
				t.Errorf("it doesn't have the name of one that is gone: %s", two.Naming.Get())
			}
			if got := e.Field("a", model.BGPHostIPv4); got != "" {
				t.Errorf("its address is said to be %q", got)
			}
		})
	}
}

// TestNameHeard: from the update on that says that another has the name, nothing acts in it; an update older than the agent's own status
// says nothing.
func TestNameHeard(t *testing.T) {
	e := etcd.New(t)
	r := machine{disk: t.TempDir(), place: "boot-1/1"}.start(e, slog.New(slog.DiscardHandler))
	r.report(t)
	hear := func(resync bool, lease, revision int64) {
		r.Update(model.Update{Revision: revision, Resync: resync, Entries: []model.Entry{
			{Path: statusKey.Path(), Key: statusKey, Value: model.Status{}, Lease: lease, Revision: revision},
		}})
	}
	own := r.host.lease.ID()
	hear(false, 77, r.host.written-1)
	hear(false, own, r.host.written+1)
	hear(true, own, 1)
	if got := r.Naming.Get(); got != "" {
		t.Errorf("of its own status it is told: %s", got)
	}
	hear(false, 77, r.host.written+1)
	if got := r.Naming.Get(); !strings.Contains(got, "another host that is called a lives") {
		t.Errorf("another's: %q", got)
	}
	r.report(t) // which finds its own
	if got := r.Naming.Get(); got != "" {
		t.Errorf("it has its name, and is told: %s", got)
	}
	hear(true, 77, 1)
	if r.Naming.Get() == "" {
		t.Error("another etcd says that it is another's")
	}
}

// TestHostReports takes a reporter through everything that can happen to its status.
func TestHostReports(t *testing.T) {
	e := etcd.New(t)
	m := machine{disk: t.TempDir(), place: "boot-1/1"}
	r := m.start(e, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	e.Until("status", func() bool { return e.Get(statusKey) != nil && r.Naming.Get() == "" })
	if e.Get(model.HostMetadataKey{Host: "a"}) != nil {
		t.Error("the host is registered before the first update")
	}
	r.FirstUpdate()
	e.Until("registered", func() bool { return e.Get(model.HostMetadataKey{Host: "a"}) != nil })

	e.Remove(statusKey, model.HostMetadataKey{Host: "a"})
	r.Update(model.Update{Entries: []model.Entry{{Path: statusKey.Path(), Key: statusKey}, {Key: model.HostMetadataKey{Host: "a"}}}})
	e.Until("both are there again", func() bool { return e.Get(statusKey) != nil && e.Get(model.HostMetadataKey{Host: "a"}) != nil })

	s := usual
	s.Interval = 0
	r.Configure(s)
	e.Until("silence", func() bool { return e.Get(statusKey) == nil && e.Get(model.LastStatusKey{Host: "a"}) == nil })
	before := e.LeaseOf(statusKey)
	s = usual
	s.TTL = time.Hour
	r.Configure(s)
	e.Until("another status", func() bool { return e.LeaseOf(statusKey) != before })
	e.Until("its lease is on disk", func() bool {
		text, err := os.ReadFile(filepath.Join(m.disk, LeasesName))
		all, bad := parseLeases(string(text))
		return err == nil && bad == nil && cmp.Equal(all, []heldLease{{e.LeaseOf(statusKey), "boot-1/1"}}, cmp.AllowUnexported(heldLease{}))
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if e.Get(statusKey) == nil {
		t.Error("the status ended with the agent")
	}
}

// TestLeasesFile: valid contents of the file, and contents that no agent wrote.
func TestLeasesFile(t *testing.T) {
	all := []heldLease{{0x7f, "boot/1"}, {1, ""}}
	if got, err := parseLeases(string(formatLeases(all))); err != nil || !cmp.Equal(all, got, cmp.AllowUnexported(heldLease{})) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"\x00garbage", "0 boot/1\n", "7f boot/1 more\n", "-1\n", "\n"} {
		if got, err := parseLeases(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, LeasesName), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := openLeases(dir, "boot/1")
	if err == nil || l.owns(0x7f) {
		t.Error("garbage is believed")
	}
	for id := range int64(maxLeases + 3) {
		if err := l.take(id + 1); err != nil {
			t.Fatal(err)
		}
	}
	if l, err = openLeases(dir, "boot/1"); err != nil || !l.owns(maxLeases+3) || l.owns(3) || l.owns(99) {
		t.Errorf("read again: %v, %v", l.all, err)
	}
}
