// SPDX-License-Identifier: Apache-2.0

// Package forward keeps packets of workloads passing the chains of iptables' FORWARD, and tells what else of others' stops them.
package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/nft/beside"
)

const (
	// period is how often it is looked whether any ruleset has changed, which costs one message.
	period = time.Second
	// settingsPeriod is how often the host's settings are read, of whose changes nothing tells.
	settingsPeriod = 30 * time.Second
	// share is how much of the time reading and changing others' chains may take: one of so many parts.
	share = 100
)

// Desired is what is to pass, and what follows where it can't.
type Desired struct {
	beside.Desired
	Unready  board.Unready
	Families board.Families   // of the workloads' addresses
	Blocks   []netip.Prefix   // of the host, which has workloads' addresses from elsewhere too
	VXLAN    []netip.AddrPort // where it takes other hosts' packets for workloads
}

// search is what is to be looked for: without workloads, as if they had IPv4.
func (d Desired) search() beside.Search {
	s := beside.Search{Own: nft.TableName, Prefixes: d.Prefixes, Probe: board.ProbeWays(), VXLAN: d.VXLAN}
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		v4 := all.Addr().Is4()
		if v4 && d.Families.V6 && !d.Families.V4 || !v4 && !d.Families.V6 {
			continue
		}
		nets := slices.DeleteFunc(slices.Clone(d.Blocks), func(p netip.Prefix) bool { return p.Addr().Is4() != v4 })
		if len(nets) == 0 {
			nets = append(nets, all)
		}
		s.Nets = append(s.Nets, nets...)
	}
	return s
}

// Config is what Rules work with.
type Config struct {
	// Path is what of the path that workloads' packets take was found wrong by trying it; nil = it isn't tried.
	Path     func() []board.PathFinding
	Logger   *slog.Logger
	Problems *problems.Ledger
	Health   *health.Monitor
}

// Rules are those that let workloads' packets pass in others' chains, once Pass says which.
type Rules struct {
	cfg     Config
	told    Desired // by the goroutine that tells
	desired *mailbox.Box[Desired]
}

// New makes one that keeps nothing yet.
func New(cfg Config) *Rules {
	return &Rules{cfg: cfg, desired: mailbox.New[Desired]()}
}

// Pass says what is to pass, which it may as soon as our own table stands. One goroutine calls it.
func (k *Rules) Pass(d Desired) {
	if !reflect.DeepEqual(d, k.told) {
		k.told = d
		k.desired.Put(d)
	}
}

// Run applies what is desired until the context ends. The rules stay.
func (k *Rules) Run(ctx context.Context) {
	var f *beside.Forward
	var desired Desired
	ready, o := false, obstacles{cfg: k.cfg, noted: k.cfg.Problems.Group(problems.Host)}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if f != nil {
				f.Close()
			}
			return
		case <-k.desired.Ready():
			if d, ok := k.desired.Take(); ok {
				if !ready || !slices.Equal(d.Prefixes, desired.Prefixes) {
					o.settingsAt = time.Now() // this agent's own come first: one that starts switches forwarding on
				}
				desired, ready = d, true
				o.generation, o.readAfter = 0, time.Time{}
			}
		case <-ticker.C:
		}
		if !ready {
			continue
		}
		var err error
		if f == nil {
			f, err = beside.Open()
		}
		if err == nil {
			err = k.round(f, &o, desired)
		}
		o.readSettings(desired)
		o.tell(desired, err)
	}
}

// round applies what is desired and reads what others have, if a ruleset has changed.
func (k *Rules) round(f *beside.Forward, o *obstacles, d Desired) error {
	generation, err := f.Generation()
	now := time.Now()
	switch {
	case err != nil:
		return err
	case generation == o.generation:
		o.fresh, o.err = nil, nil // nothing has changed for a period
		return nil
	case now.Before(o.readAfter):
		return o.err
	}
	if o.err = errors.Join(k.apply(f, d.Desired), o.readBlocks(f, d)); o.err == nil {
		o.generation = generation
	}
	o.readAfter = now.Add(share * time.Since(now))
	return o.err
}

func (k *Rules) apply(f *beside.Forward, d beside.Desired) error {
	changes, err := f.Apply(d)
	for _, c := range changes {
		if c.Added > 0 {
			k.cfg.Logger.Info("a chain of iptables drops what it doesn't know: workloads' packets are accepted there, as far as policy lets them", "chain", c.Chain, "rules", c.Added)
		} else {
			k.cfg.Logger.Info("workloads' packets need not be accepted in a chain of iptables any more", "chain", c.Chain)
		}
	}
	return err
}
