// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// leaderPatience is how long the controllers may be without a leader before this is reported: another replica takes over sooner.
const leaderPatience = 30 * time.Second

// leadership reports since when the controllers have had no leader, on a host that works with Kubernetes.
type leadership struct {
	log      *slog.Logger
	health   *health.Monitor
	problems *problems.Ledger
	gauge    prometheus.Gauge

	mu    sync.Mutex
	since time.Time // since when etcd names no leader, as far as this agent knows; zero = it names one, or hasn't been read
	said  string
}

// Update takes in what etcd holds.
func (k *leadership) Update(u model.Update) {
	k.mu.Lock()
	defer k.mu.Unlock()
	led := !u.Resync && k.since.IsZero()
	for _, e := range u.Entries {
		if _, is := e.Key.(model.LeaderKey); is {
			led = e.Exists()
		}
	}
	switch {
	case led:
		k.since = time.Time{}
		k.tell()
	case k.since.IsZero():
		k.since = time.Now()
		time.AfterFunc(leaderPatience, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.tell()
		})
	}
}

// tell reports a change.
func (k *leadership) tell() {
	text, at, reason := "", 0.0, error(nil)
	if !k.since.IsZero() && time.Since(k.since) >= leaderPatience {
		text = fmt.Sprintf("nobody leads calico-controllers since %s: what changes in Kubernetes, as policies and labels, has no effect, and pods of new namespaces wait; "+
			"look at kubectl -n kube-system get pods -l k8s-app=calico-controllers", k.since.UTC().Format(time.RFC3339))
		at, reason = float64(k.since.Unix()), errors.New(text)
	}
	if text == k.said {
		return
	}
	k.said = text
	k.gauge.Set(at)
	k.health.Remark("controllers", text)
	if text != "" {
		k.log.Warn("nobody leads calico-controllers: look at kubectl -n kube-system get pods -l k8s-app=calico-controllers", "since", k.since)
	} else {
		k.log.Info("calico-controllers are led again")
	}
	k.problems.Note(problems.Notice, model.LeaderKey{}.Path(), reason)
}
