// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// TestLeadership: that the controllers have no leader is reported after a while, everywhere, and taken back at once.
func TestLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		k := &leadership{log: log, health: health.New("calico-test"), problems: problems.New(log), gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})}
		k.health.SetUnready("")
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(k.gauge)
		metric := func() float64 {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			return families[0].Metric[0].Gauge.GetValue()
		}
		leader := put(model.LeaderKey{}, model.Text("one"), 1)
		tells := func(when, want string) {
			t.Helper()
			synctest.Wait()
			k.health.Turn()
			page, listed := reply(k.health, "/readiness"), ""
			for _, p := range k.problems.All() {
				listed += p.Path + " " + p.Reason
			}
			var gauge float64
			if want != "" {
				at, err := time.Parse(time.RFC3339, want)
				if err != nil {
					t.Fatal(err)
				}
				want, gauge = "nobody leads calico-controllers since "+want+": ", float64(at.Unix())
			}
			if !strings.HasPrefix(strings.TrimSpace(page), want) || (page == "") != (want == "") || metric() != gauge {
				t.Errorf("%s: readiness %q, metric %v, want %q", when, page, metric(), want)
			}
			if want != "" && !strings.HasPrefix(listed, "/calico/v1/controllers/leader "+want) || want == "" && listed != "" {
				t.Errorf("%s: listed %q", when, listed)
			}
		}
		time.Sleep(time.Hour)
		tells("etcd hasn't been read", "")
		k.Update(model.Update{Resync: true})
		time.Sleep(leaderPatience - time.Second)
		k.Update(model.Update{Entries: []model.Entry{put(testKey("a"), testSpec("cali1", "10.0.0.1"), 2)}})
		tells("another may take the lead", "")
		time.Sleep(time.Second)
		tells("nobody did", "2000-01-01T01:00:00Z")
		k.Update(model.Update{Resync: true})
		tells("etcd was away", "2000-01-01T01:00:00Z")
		k.Update(model.Update{Entries: []model.Entry{leader}})
		tells("one leads", "")
		k.Update(model.Update{Entries: []model.Entry{gone(model.LeaderKey{})}})
		time.Sleep(leaderPatience / 2)
		k.Update(model.Update{Resync: true, Entries: []model.Entry{leader}})
		k.Update(model.Update{Entries: []model.Entry{gone(model.LeaderKey{})}})
		time.Sleep(leaderPatience - time.Second)
		tells("one led in between", "")
		time.Sleep(time.Second)
		tells("it has gone for good", "2000-01-01T01:00:45Z")
	})
}
