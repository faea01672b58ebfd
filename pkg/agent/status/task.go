// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"log/slog"
	"time"
)

// task is something to be written, again and again until that works.
type task struct {
	log     *slog.Logger
	timer   *time.Timer
	backoff time.Duration // 0 = it worked last time
	err     error         // of the last time
}

func newTask(log *slog.Logger, after time.Duration) *task {
	return &task{log: log, timer: time.NewTimer(after)}
}

// done takes in how it went; after a failure the timer runs for the next try.
func (t *task) done(ctx context.Context, err error) bool {
	if err != nil && ctx.Err() != nil {
		return false // the agent stops
	}
	t.err = err
	if err == nil {
		if t.backoff > 0 {
			t.log.Info("report to etcd is written again")
		}
		t.backoff = 0
		return true
	}
	if t.backoff == 0 {
		t.log.Warn("report to etcd is not written, trying again", "err", err)
	}
	t.backoff = min(max(2*t.backoff, leastBackoff), mostBackoff)
	t.timer.Reset(t.backoff)
	return false
}

// failure says why it isn't written, for the health page; "" = it is.
func (t *task) failure() string {
	if t.err == nil {
		return ""
	}
	return "reports to etcd fail: " + t.err.Error()
}
