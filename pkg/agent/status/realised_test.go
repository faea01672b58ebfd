// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

// byAPI returns an entry that an object of the Kubernetes API made, and byOperator one that none did.
func byAPI(revision int64) model.Entry {
	return model.Entry{Key: model.TierKey{Tier: "t"}, Revision: revision, Value: model.Tier{Meta: model.Meta{Owner: model.OwnerAPI + "u"}}}
}

func byOperator(revision int64) model.Entry {
	return model.Entry{Key: model.TierKey{Tier: "t"}, Revision: revision, Value: model.Tier{Meta: model.Meta{Owner: model.OwnerOperator}}}
}

// TestRealised: only what objects of the API made counts, once both parts have done it, and all before it.
func TestRealised(t *testing.T) {
	var r realised
	for _, step := range []struct {
		do   func()
		want int64
	}{
		{func() {
			r.update(model.Update{Resync: true, Revision: 9, Entries: []model.Entry{byAPI(3), byAPI(7), byOperator(8)}})
		}, 0},
		{func() { r.done[firewall] = 9 }, 0},
		{func() { r.done[router] = 9 }, 7},
		{func() {
			r.update(model.Update{Revision: 12, Entries: []model.Entry{byOperator(12), {Key: model.TierKey{Tier: "gone"}}}})
		}, 7},
		{func() { r.update(model.Update{Revision: 13, Entries: []model.Entry{byAPI(13)}}) }, 9},
		{func() { r.done[router], r.done[firewall] = 20, 12 }, 12},
		{func() { r.done[firewall] = 20 }, 13},
		{func() { r.update(model.Update{Resync: true, Revision: 5, Entries: []model.Entry{byAPI(2)}}) }, 0}, // another etcd
		{func() { r.done[router], r.done[firewall] = 5, 5 }, 2},
	} {
		if step.do(); r.reached() != step.want {
			t.Errorf("%+v: %d, want %d", r, r.reached(), step.want)
		}
	}
}

// TestRealisedTold: the host's status says what is realised, as soon as it is.
func TestRealisedTold(t *testing.T) {
	e := etcd.New(t)
	r := machine{place: "boot/1", addrs: []string{"172.18.0.1"}}.start(e, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	defer running.Wait()
	defer cancel()
	status := func(why string, revision int64) {
		t.Helper()
		e.Until(why, func() bool {
			s, is := e.Get(statusKey).(model.Status)
			return is && s.PolicyRevision == revision
		})
	}
	status("the host is alive", 0)
	for _, revision := range []int64{7, 8} {
		r.Update(model.Update{Revision: revision, Entries: []model.Entry{byAPI(revision)}})
		r.Filtered(revision)
		r.Routed(revision)
		status("it is realised", revision)
	}
}
