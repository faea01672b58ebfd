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

// speaker is the BGP implementation: bgp.Speaker.
type speaker interface {
	Apply(context.Context, bgp.Desired) error
	Complete() bool
	Status(context.Context) ([]bgp.PeerStatus, error)
	Close(context.Context) error
}

// stateStore keeps BGP's state: stateFile.
type stateStore interface {
	read() (netip.Addr, bgp.Desired, error)
	write(netip.Addr, bgp.Desired) error
}

const (
	// closePatience is how long ending all sessions may take.
	closePatience = 5 * time.Second
	// greatestPause is the longest pause before a failing speaker is retried.
	greatestPause = 10 * time.Second
	// savePause gathers changes for one write; saveRetry is the pause after a failed write.
	savePause, saveRetry = time.Second, 10 * time.Second
)

// bgpUpdater makes the speaker do what was last desired, beside the router: a neighbour that sends without end, or that doesn't read, must
// not delay others' routes. It keeps that state on disk.
type bgpUpdater struct {
	log      *slog.Logger
	speaker  speaker
	state    stateStore
	problems *problems.Ledger
	health   *health.Monitor
	desired  *mailbox.Box[bgp.Desired]

	wake func() // tells the router that port changed

	mu    sync.Mutex
	tried bool
	err   error  // of the last try
	port  uint16 // that the speaker is known to listen at, 0 = none

	routerID netip.Addr // the last one that BGP used
}

// set passes the desired state. Its maps must not be changed any more.
func (t *bgpUpdater) set(d bgp.Desired) { t.desired.Put(d) }

// failure returns why the speaker doesn't do what is desired.
func (t *bgpUpdater) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// listensAt returns the port that the speaker is known to listen at, 0 = none: another program may have it. Before the first try it returns
// the desired port: the rules that keep strangers from it exist before it is open, and stay through a restart.
func (t *bgpUpdater) listensAt(desired plan.Speaker) uint16 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tried && desired.AS != 0 {
		return desired.ListenPort
	}
	return t.port
}

// run applies the desired state until the context ends. Then it ends sessions as for a restart: neighbours keep the routes to this host.
func (t *bgpUpdater) run(ctx context.Context) {
	defer t.close(ctx)
	again, save := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer again.Stop()
	defer save.Stop()
	t.routerID, _, _ = t.state.read() // the router reports errors
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

// save writes the speaker's state, for the next agent.
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

// unheard returns why other hosts learn no routes to this host's pods, "" if they do: BGP doesn't run, and a pool without encapsulation
// needs it.
func unheard(d bgp.Desired, err error) string {
	var silent *bgp.ListenError
	if !errors.As(err, &silent) || silent.Stays || len(d.Neighbours) == 0 || len(d.Speaker.Import) == 0 {
		return ""
	}
	return "BGP doesn't run: " + silent.Error()
}

// note records the result of a try, and logs changes.
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
