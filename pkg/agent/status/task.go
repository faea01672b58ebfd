// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

// task is something to be written, again and again until that works.
type task struct {
	log     *slog.Logger
	timer   *time.Timer
	backoff retry.Backoff
	pause   time.Duration // until it is tried again, 0 = it worked last time
	err     error         // of the last time
}

func newTask(log *slog.Logger, after time.Duration) *task {
	return &task{log: log, timer: time.NewTimer(after), backoff: retry.Backoff{First: leastBackoff, Longest: mostBackoff}}
}

// done takes in how it went; after a failure the timer runs for the next try.
func (t *task) done(ctx context.Context, err error) bool {
	if err != nil && ctx.Err() != nil {
		return false // the agent stops
	}
	t.err = err
	if err == nil {
		if t.pause > 0 {
			t.log.Info("report to etcd is written again")
		}
		t.pause = 0
		t.backoff.Reset()
		return true
	}
	if t.pause == 0 {
		t.log.Warn("report to etcd is not written, trying again", "err", err)
	}
	t.pause = t.backoff.Next()
	t.timer.Reset(t.pause)
	return false
}

// wake has it tried soon, however often that was in vain: news of etcd says that it is back.
func (t *task) wake() {
	t.backoff.Reset()
	t.timer.Reset(min(t.pause, leastBackoff))
}

// tell has the readiness page say why it isn't written. What etcd refuses, the host is to blame for, or who set it up: that
// doesn't pass by itself.
func (t *task) tell(h *health.Monitor, part string) {
	own, etcd := "", ""
	switch text := "reports to etcd fail: "; {
	case t.err == nil:
	case refused(t.err):
		own = text + t.err.Error()
	default:
		etcd = text + t.err.Error()
	}
	h.Set(part, own)
	h.SetEtcd(part, etcd)
}

func refused(err error) bool {
	return errors.Is(err, store.ErrAuth) && !errors.Is(err, store.ErrUnavailable)
}
