// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/report"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// TestSilentClaims: a host of which etcd is to say nothing has its name again as others
// have, and says nothing afterwards.
func TestSilentClaims(t *testing.T) {
	c := newFleet(t)
	status, last := model.StatusKey{Host: "a"}, model.LastStatusKey{Host: "a"}
	c.Put(model.BGPHostKey{Host: "a", Field: model.BGPHostIPv4}, model.Text("172.18.0.2"))
	c.Put(last, model.Status{Time: time.Now()})
	c.Put(status, model.Status{Time: time.Now()})
	p := c.person("a", eth0("172.18.0.1/24"), machine{disk: t.TempDir(), place: "boot/1"}.on)
	c.Until("refused", func() bool { return p.problem(problemName) != "" })
	silent := params.Resolve().Params
	silent.ReportInterval = 0
	p.tell.Report.Configure(silent)
	p.move(eth0("172.18.0.2/24"))
	c.Until("its name", p.named)
	c.Until("nothing is said", func() bool { return c.Get(status) == nil && c.Get(last) == nil && p.named() })

	c.Put(last, model.Status{Time: time.Now()}) // by this the host would be dead
	p.tell.Report.Resync()
	c.Until("nothing is said of it by what etcd was restored from", func() bool { return c.Get(last) == nil })
}

// TestOwnQuestioned: what is heard while a name is judged to be the host's own isn't forgotten.
func TestOwnQuestioned(t *testing.T) {
	c := newFleet(t)
	p := c.person("a", eth0("172.18.0.1/24"), nil)
	c.Until("named", p.named)
	p.stop()
	i := p.id
	i.naming.Set(report.ClaimedByAnother)
	i.tenure.held, i.tenure.status = true, model.Entry{Lease: i.life.own[0], Revision: 1}
	before := i.tenure
	i.tenure.status = model.Entry{Lease: 1, Revision: 2} // heard since
	i.own(i.notes(), before, report.Permission{})
	if i.naming.Waits() == "" {
		t.Error("the name is taken to be its own")
	}
	i.tenure.status = before.status
	i.own(i.notes(), before, report.Permission{})
	if reason := i.naming.Waits(); reason != "" {
		t.Errorf("its own again, but: %s", reason)
	}
}

// TestEndIsTriedQuietly: a former status that can't be ended while etcd is away is tried again
// ever more seldom, and logged once.
func TestEndIsTriedQuietly(t *testing.T) {
	c := newFleet(t)
	client, err := store.Open(t.Context(), store.Config{Endpoints: []string{"http://" + c.Addr()}, RefusedTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	var log strings.Builder
	i := &Keeper{log: slog.New(slog.NewTextHandler(&log, nil)), host: "a", store: client, life: lifeOf(Config{})}
	said := func() int { return strings.Count(log.String(), "the host's former status could not be ended") }
	c.Stop()
	for n, want := range []time.Duration{leastPause, 2 * leastPause, 4 * leastPause} {
		if again := i.end(t.Context(), 0); again != want || said() != 1 {
			t.Errorf("try %d: again after %v, want %v; the log has\n%s", n, again, want, &log)
		}
	}
	c.Start()
	c.Until("etcd answers", func() bool { return i.end(t.Context(), 0) == 0 })
	before := said()
	over, end := context.WithCancel(t.Context())
	end()
	if i.end(over, 0); said() != before {
		t.Errorf("when the agent ended it was logged: %s", &log)
	}
	c.Stop()
	if i.end(t.Context(), 0); said() != before+1 {
		t.Errorf("that it failed anew wasn't logged: %s", &log)
	}
}
