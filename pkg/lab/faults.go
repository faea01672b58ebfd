// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Faults are the faults that the lab has injected into a host. The zero value means none.
type Faults struct {
	Dead     bool `json:"dead,omitempty"`      // Kill: no link, no agent
	HadAgent bool `json:"had_agent,omitempty"` // when it died
	LinkDown bool `json:"link_down,omitempty"` // CutLink
	// Side is the host's side of a partition: hosts on different sides don't reach each other, nor their pods.
	Side   int     `json:"side,omitempty"`
	NoEtcd bool    `json:"no_etcd,omitempty"` // PartitionFromEtcd
	Loss   float64 `json:"loss,omitempty"`    // SetLoss: percent of packets, each way
}

// String describes the faults in a few words; "" if there are none.
func (f Faults) String() string {
	var words []string
	if f.Dead {
		words = append(words, "dead")
	}
	if f.LinkDown {
		words = append(words, "link down")
	}
	if f.Side > 0 {
		words = append(words, fmt.Sprintf("on side %d of a partition", f.Side))
	}
	if f.NoEtcd {
		words = append(words, "without etcd")
	}
	if f.Loss > 0 {
		words = append(words, fmt.Sprintf("loses %g %% of packets each way", f.Loss))
	}
	return strings.Join(words, ", ")
}

func (h *Host) faultsFile() string { return filepath.Join(h.dir(), "faults.json") }

// Faults returns the host's faults, whichever process has injected them.
func (h *Host) Faults() (Faults, error) {
	var f Faults
	err := readJSON(h.faultsFile(), &f)
	if errors.Is(err, os.ErrNotExist) {
		return Faults{}, nil
	}
	return f, err
}

// SetLoss drops this percentage of all packets to the host, and of all packets from it; 0 is none.
func (h *Host) SetLoss(percent float64) error {
	if !(percent >= 0 && percent <= 100) { // NaN too
		return fmt.Errorf("loss of %g %%: want 0 to 100", percent)
	}
	return h.fault(func(f *Faults) { f.Loss = percent })
}

// CutLink pulls the host's cable, so that its eth0 has no carrier, and changes nothing else. JoinLink plugs it in
// again.
func (h *Host) CutLink() error { return h.fault(func(f *Faults) { f.LinkDown = true }) }

// JoinLink undoes CutLink.
func (h *Host) JoinLink() error { return h.fault(func(f *Faults) { f.LinkDown = false }) }

// FlapLink cuts and joins the host's link alternately, each for the given time, until ctx ends. In the end it is
// joined. The error is not ctx's.
func (h *Host) FlapLink(ctx context.Context, each time.Duration) error {
	tick := time.NewTicker(each)
	defer tick.Stop()
	for cut := true; ; cut = !cut {
		if err := h.fault(func(f *Faults) { f.LinkDown = cut }); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return h.JoinLink()
		}
	}
}

// Partition cuts the named hosts off from all others: they reach each other, and the others reach each other. Etcd and
// the routers stay on every side. Partitions accumulate: the hosts of the next one are on a new side.
func (l *Lab) Partition(hosts ...string) error {
	return l.fault(hosts, func(named []*Host, faults map[*Host]*Faults) {
		side := 0
		for _, f := range faults {
			side = max(side, f.Side)
		}
		for _, h := range named {
			faults[h].Side = side + 1
		}
	})
}

// PartitionFromEtcd cuts the named hosts off from etcd only.
func (l *Lab) PartitionFromEtcd(hosts ...string) error {
	return l.fault(hosts, func(named []*Host, faults map[*Host]*Faults) {
		for _, h := range named {
			faults[h].NoEtcd = true
		}
	})
}

// Heal ends all partitions, including those from etcd.
func (l *Lab) Heal() error {
	return l.fault(nil, func(_ []*Host, faults map[*Host]*Faults) {
		for _, f := range faults {
			f.Side, f.NoEtcd = 0, false
		}
	})
}

func (h *Host) fault(change func(*Faults)) error {
	return h.lab.fault([]string{h.name}, func(_ []*Host, faults map[*Host]*Faults) { change(faults[h]) })
}

// keepFaults applies an existing partition, if any, to a new host.
func (l *Lab) keepFaults() error {
	if _, err := os.Stat(l.faultsLock()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return l.fault(nil, func([]*Host, map[*Host]*Faults) {})
}

func (l *Lab) faultsLock() string { return filepath.Join(l.dir, "faults.lock") }

// fault changes the recorded faults of hosts, and then the kernel.
func (l *Lab) fault(names []string, change func(named []*Host, faults map[*Host]*Faults)) error {
	var named []*Host
	for _, name := range names {
		h, err := l.FindHost(name)
		if err != nil {
			return err
		}
		named = append(named, h)
	}
	// No other user of the lab, in this process or another, may overwrite it.
	lock, err := os.OpenFile(l.faultsLock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	hosts := l.Hosts()
	faults := map[*Host]*Faults{}
	for _, h := range hosts {
		f, err := h.Faults()
		if err != nil {
			return err
		}
		faults[h] = &f
	}
	change(named, faults)
	for _, h := range hosts {
		if err := writeJSON(h.faultsFile(), faults[h]); err != nil {
			return err
		}
	}
	return l.applyFaults(hosts, faults)
}

// applyFaults configures the wires according to the faults.
func (l *Lab) applyFaults(hosts []*Host, faults map[*Host]*Faults) error {
	wires := map[int][]*Host{}
	parted := false
	for _, h := range hosts {
		wires[h.rack] = append(wires[h.rack], h)
		parted = parted || faults[h].Side > 0
	}
	var sides []int
	for _, f := range faults {
		if parted && !slices.Contains(sides, f.Side) {
			sides = append(sides, f.Side)
		}
	}
	slices.Sort(sides)
	if len(sides) > maxSides {
		return fmt.Errorf("%d sides of partitions: a lab has %d at most (heal ends them)", len(sides), maxSides)
	}
	var errs []error
	for rack, on := range wires {
		w := l.fabric.wire(rack)
		errs = append(errs, w.filter(l.fabric.portRules(on, faults, sides)), w.setPorts(on, faults))
	}
	return errors.Join(errs...)
}
