// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/retry"
)

// speaker is what BGP drives: bgp.Speaker.
type speaker interface {
	Apply(context.Context, bgp.Desired) error
	Complete() bool
	Status(context.Context) ([]bgp.PeerStatus, error)
	Close(context.Context) error
}

// stateStore keeps what BGP is told: stateFile.
type stateStore interface {
	read() (netip.Addr, bgp.Desired, error)
	write(netip.Addr, bgp.Desired) error
}

const (
	// closePatience is what the end of all sessions may take.
	closePatience = 5 * time.Second
	// greatestPause is the longest pause after which a speaker that fails is tried again.
	greatestPause = 10 * time.Second
	// savePause gathers what changes at once, and saveRetry is when a write that failed is
	// tried again.
	savePause, saveRetry = time.Second, 10 * time.Second
)

// bgpUpdater has the speaker do what was desired last, beside the router: a neighbour
// that sends without end, or that doesn't listen, holds up no route of others. It keeps on
// disk what it has the speaker do.
type bgpUpdater struct {
	log      *slog.Logger
	speaker  speaker
	state    stateStore
	problems *problems.Ledger
	health   *health.Monitor
	desired  *mailbox.Box[bgp.Desired]

	wake func() // tells the router that port is another

	mu    sync.Mutex
	tried bool
	err   error  // of the last try
	port  uint16 // that the speaker is known to listen at, 0 = none

	routerID netip.Addr // the last by which BGP spoke
}

// set leaves what is desired. Its maps are not changed any more.
func (t *bgpUpdater) set(d bgp.Desired) { t.desired.Put(d) }

// failure is why the speaker doesn't do what is desired.
func (t *bgpUpdater) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// listensAt is the port that the speaker is known to listen at, 0 = none: another program may have it. Before the first try
// it is the one that is desired: what keeps strangers from it is there before it is open, and stays through a restart.
func (t *bgpUpdater) listensAt(desired plan.Speaker) uint16 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tried && desired.AS != 0 {
		return desired.ListenPort
	}
	return t.port
}

// run applies until the context ends. Then sessions end as for a restart:
// neighbours keep the routes to this host.
func (t *bgpUpdater) run(ctx context.Context) {
	defer t.close(ctx)
	again, save := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer again.Stop()
	defer save.Stop()
	t.routerID, _, _ = t.state.read() // the router says what is wrong with it
	var now bgp.Desired
	backoff := retry.Backoff{First: leastPause, Longest: greatestPause, Exact: true}
	saved := true
	for {
		select {
		case <-ctx.Done():
			if !saved {
				t.save(now)
			}
			return
		case <-save.C:
			if saved = saved || t.save(now); !saved {
				save.Reset(saveRetry)
			}
			continue
		case <-t.desired.Ready():
			if d, ok := t.desired.Take(); ok {
				now = d
				backoff.Reset()
				if saved {
					save.Reset(savePause)
				}
				saved = false
			}
		case <-again.C:
		}
		err := t.speaker.Apply(ctx, now)
		if err != nil && ctx.Err() != nil {
			continue // to the end
		}
		t.note(now, err)
		t.health.SetDegraded("BGP", unheard(now, err))
		if err != nil {
			again.Reset(backoff.Next())
		}
	}
}

// save writes what the speaker does, for the next agent.
func (t *bgpUpdater) save(d bgp.Desired) bool {
	if d.Speaker.AS != 0 {
		t.routerID = d.Speaker.RouterID
	}
	err := t.state.write(t.routerID, d)
	if err != nil {
		err = fmt.Errorf("what BGP says is not on disk: an agent that starts while etcd can't be read would be silent, or say what was said before, and neighbours might forget this host's routes: %w", err)
	}
	t.problems.Tell(problems.Host, BGPStateName, err)
	return err == nil
}

// unheard says that other hosts hear of no routes to this one's pods: BGP doesn't run, and a
// pool without an encapsulation needs it.
func unheard(d bgp.Desired, err error) string {
	var silent *bgp.ListenError
	if !errors.As(err, &silent) || silent.Stays || len(d.Neighbours) == 0 || len(d.Speaker.Import) == 0 {
		return ""
	}
	return "BGP doesn't run: " + silent.Error()
}

// note keeps how it went, and logs what is new.
func (t *bgpUpdater) note(d bgp.Desired, err error) {
	port := d.Speaker.ListenPort
	if d.Speaker.AS == 0 || errors.As(err, new(*bgp.ListenError)) {
		port = 0
	}
	t.mu.Lock()
	before, moved := t.err, t.port != port || !t.tried
	t.err, t.port, t.tried = err, port, true
	t.mu.Unlock()
	if moved {
		t.wake()
	}
	t.problems.Note(problems.Host, "BGP", err)
	switch {
	case problems.Reason(before) == problems.Reason(err):
	case err == nil:
		t.log.Info("BGP is in order again")
	default:
		t.log.Error("BGP is not as it should be, trying again", "err", err)
	}
}

func (t *bgpUpdater) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	if err := t.speaker.Close(ctx); err != nil {
		t.log.Warn("BGP sessions were not ended as for a restart", "err", err)
	}
}
