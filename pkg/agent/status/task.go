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

// task is a write that is repeated until it works.
type task struct {
	log     *slog.Logger
	timer   *time.Timer
	backoff retry.Backoff
	pause   time.Duration // before the next try, 0 = the last one worked
	err     error         // of the last try
}

func newTask(log *slog.Logger, after time.Duration) *task {
	return &task{log: log, timer: time.NewTimer(after), backoff: retry.Backoff{First: leastBackoff, Longest: mostBackoff}}
}

// done records the result of a try; after a failure it starts the timer for the next.
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

// wake schedules a try soon, however many have failed: an update from etcd means that it is back.
func (t *task) wake() {
	t.backoff.Reset()
	t.timer.Reset(min(t.pause, leastBackoff))
}

// tell reports on the readiness page why writing fails. If etcd refuses, the host's setup is at fault: that doesn't pass by itself.
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
