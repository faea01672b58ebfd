// SPDX-License-Identifier: Apache-2.0

// Package forward lets packets of workloads pass the FORWARD chains of iptables, and reports what else of others' stops them.
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
	// period is how often to check whether any ruleset has changed, which costs one message.
	period = time.Second
	// settingsPeriod is how often the host's settings are read: no event reports their changes.
	settingsPeriod = 30 * time.Second
	// share bounds the time spent on reading and changing others' chains: one part in so many.
	share = 100
)

// Desired says what should pass, and what follows if it can't.
type Desired struct {
	beside.Desired
	Unready  board.Unready
	Families board.Families   // of the workloads' addresses
	Blocks   []netip.Prefix   // of the host; workloads' addresses may also come from elsewhere
	VXLAN    []netip.AddrPort // addresses where it receives other hosts' packets for workloads
}

// search says what to look for: without workloads, as if they had IPv4.
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

// Config configures Rules.
type Config struct {
	// Path returns what a probe found wrong with the path of workloads' packets; nil = there is no probe.
	Path     func() []board.PathFinding
	Logger   *slog.Logger
	Problems *problems.Ledger
	Health   *health.Monitor
}

// Rules let workloads' packets pass in others' chains, once Pass says which.
type Rules struct {
	cfg     Config
	told    Desired // as last passed; only Pass uses it
	desired *mailbox.Box[Desired]
}

// New returns Rules that do nothing until Pass.
func New(cfg Config) *Rules {
	return &Rules{cfg: cfg, desired: mailbox.New[Desired]()}
}

// Pass says what should pass, once our own table has been applied. Only one goroutine may call it.
func (k *Rules) Pass(d Desired) {
	if !reflect.DeepEqual(d, k.told) {
		k.told = d
		k.desired.Put(d)
	}
}

// Run applies what Pass says until the context ends. The rules stay.
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
					o.settingsAt = time.Now() // this agent's own settings come first: at its start it enables forwarding
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

// round applies d and reads others' chains, if a ruleset has changed.
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
