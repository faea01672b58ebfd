// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

// speaker is what the talker drives: bgp.Speaker.
type speaker interface {
	Apply(context.Context, bgp.Desired) error
	Complete() bool
	Status(context.Context) ([]bgp.PeerStatus, error)
	Close(context.Context) error
}

// closePatience is what the end of all sessions may take.
const closePatience = 5 * time.Second

// talker has the speaker do what was said last, beside the router: a neighbour
// that sends without end, or that doesn't listen, holds up no route of others.
type talker struct {
	log     *slog.Logger
	speaker speaker
	wake    mailbox.Signal

	mu    sync.Mutex
	want  *bgp.Desired // nil = nothing new
	every time.Duration
	err   error // of the last try

	problems *problems.Ledger // where that is shown
	health   *health.Monitor
}

func newTalker(log *slog.Logger, s speaker, p *problems.Ledger, h *health.Monitor) *talker {
	return &talker{log: log, speaker: s, problems: p, health: h, wake: mailbox.NewSignal(), every: leastPause}
}

// say leaves a note of what is desired. Its maps are not changed any more.
func (t *talker) say(d bgp.Desired, most time.Duration) {
	t.mu.Lock()
	t.want, t.every = &d, most
	t.mu.Unlock()
	t.wake.Send()
}

// trouble is why the speaker doesn't do what is desired.
func (t *talker) trouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// run applies until the context ends. Then sessions end as for a restart:
// neighbours keep the routes to this host.
func (t *talker) run(ctx context.Context) error {
	defer t.close(ctx)
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	var now bgp.Desired
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-retry.C:
		}
		t.mu.Lock()
		if t.want != nil {
			now, t.want, pause = *t.want, nil, 0
		}
		most := t.every
		t.mu.Unlock()
		err := t.speaker.Apply(ctx, now)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		t.note(err)
		t.health.SetDegraded("BGP", unheard(now, err))
		if err != nil {
			pause = min(max(2*pause, leastPause), most)
			retry.Reset(pause)
		}
	}
}

// unheard says that other hosts hear of no routes to this one's pods: BGP doesn't run, and a
// pool without an encapsulation needs it.
func unheard(d bgp.Desired, err error) string {
	var silent *bgp.ListenError
	if !errors.As(err, &silent) || len(d.Neighbours) == 0 || len(d.Speaker.Import) == 0 {
		return ""
	}
	return "BGP doesn't run: " + silent.Error()
}

// note keeps how it went, and logs what is new.
func (t *talker) note(err error) {
	t.mu.Lock()
	before := t.err
	t.err = err
	t.mu.Unlock()
	t.problems.Note(problems.Host, "BGP", err)
	switch {
	case problems.Reason(before) == problems.Reason(err):
	case err == nil:
		t.log.Info("BGP is in order again")
	default:
		t.log.Error("BGP is not as it should be, trying again", "err", err)
	}
}

func (t *talker) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	if err := t.speaker.Close(ctx); err != nil {
		t.log.Warn("BGP sessions were not ended as for a restart", "err", err)
	}
}
