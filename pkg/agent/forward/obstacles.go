// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/nft/beside"
)

// part is this package's name in health, and tables the problem that others' tables can't be read or changed.
const (
	part   = "workloads' path"
	tables = "other tables"
)

// obstacles finds what stops workloads' packets, and reports it in the ledger, on the readiness page and in the log.
type obstacles struct {
	cfg   Config
	noted *problems.Group

	generation uint32 // the ruleset's when blocks were read, 0 = read them
	blocks     []beside.Block
	fresh      map[string]bool // those that are new in this reading: the program that rewrites its table may not be done yet
	err        error           // of the last round
	readAfter  time.Time

	reader      hostnet.Obstacles
	settings    []hostnet.Obstacle
	settingsErr error
	settingsAt  time.Time
}

func (o *obstacles) readSettings(d Desired) {
	if now := time.Now(); now.Sub(o.settingsAt) >= settingsPeriod {
		o.settingsAt = now
		o.settings, o.settingsErr = o.reader.Find(d.Prefixes)
	}
}

func (o *obstacles) readBlocks(f *beside.Forward, d Desired) error {
	blocks, err := f.Blocks(d.search())
	if err != nil {
		return err
	}
	o.fresh = map[string]bool{}
	for _, b := range blocks {
		o.fresh[b.Name()] = !slices.ContainsFunc(o.blocks, func(before beside.Block) bool { return before.Name() == b.Name() })
	}
	o.blocks = blocks
	return nil
}

// tell reports what was found.
func (o *obstacles) tell(d Desired, err error) {
	found := map[string]string{}
	v4, v6 := d.Families.V4 || !d.Families.V6, d.Families.V6
	some, cut4, cut6, led := false, false, false, false
	err = errors.Join(err, o.settingsErr)
	var lost []board.PathFinding
	if o.cfg.Path != nil {
		lost = o.cfg.Path()
	}
	for _, b := range o.blocks {
		if (b.From || b.To || b.VXLANPort != 0) && !o.fresh[b.Name()] {
			found["chain "+b.Name()], some = b.String(), true
			cut4, cut6 = cut4 || b.Pods4, cut6 || b.Pods6
		}
	}
	for _, s := range o.settings {
		found[s.What], some = s.Text, some || !s.Maybe
		cut4, cut6, led = cut4 || s.Pods4, cut6 || s.Pods6, led || s.Led
	}
	for _, l := range lost {
		family, text := "IPv6", l.Text
		if l.V4 {
			family = "IPv4"
		}
		if at := slices.IndexFunc(o.blocks, func(b beside.Block) bool { return b.OnlyProbe(l.V4) }); at >= 0 {
			text += "; " + o.blocks[at].OfProbe()
		} else {
			some, cut4, cut6 = true, cut4 || l.V4, cut6 || !l.V4
		}
		found["path of "+family] = text
	}
	text, reason := "", ""
	for _, what := range slices.Sorted(maps.Keys(found)) {
		text += "; " + found[what]
	}
	all := led || (cut4 || !v4) && (cut6 || !v6)
	switch {
	case text == "":
	case d.Unready == board.UnreadyAny && some, d.Unready == board.UnreadyAll && all:
		text, reason = "", "workloads' packets are stopped: "+text[2:]
	case some:
		text = "workloads' packets are stopped: " + text[2:]
	default:
		text = "workloads' packets may be stopped: " + text[2:]
	}
	o.cfg.Health.Remark(part, text)
	o.cfg.Health.Set(part, reason)
	if err != nil {
		found[tables] = err.Error()
	}
	o.noted.Set(found)
}
