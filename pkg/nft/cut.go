// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"os"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
)

// Flow is one direction of a connection, as policy sees its packets, or many of them.
type Flow = render.Flow

// Cut adds flows whose packets can't begin a connection, since what their other
// side began was cut, and then takes some out. It does no I/O.
func (f *Firewall) Cut(added, removed []Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, flow := range added {
		if s := f.desired.cut(flow); s != nil {
			s.put(flow.Key(), "")
		}
	}
	for _, flow := range removed {
		if s := f.desired.cut(flow); s != nil {
			s.remove(flow.Key())
		}
	}
}

// ReadCut reads which flows the kernel has as cut, and how many packets of each
// it has dropped.
func (f *Firewall) ReadCut() (map[Flow]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for range nfnl.MaxTries {
		out := make(map[Flow]uint64)
		for _, def := range render.CutSets() {
			err = f.conn.ReadCounted(&def, func(key string, packets uint64) {
				if flow, ok := render.ParseFlow(def, key); ok {
					out[flow] = packets
				}
			})
			if errors.Is(err, os.ErrNotExist) { // the table is still to be made
				err = nil
			}
			if err != nil {
				break
			}
		}
		if !errors.Is(err, nfnl.ErrInterrupted) {
			return out, err
		}
	}
	return nil, err
}

// cut is the set that a flow belongs to, nil where it is of no IP version.
func (d *desired) cut(flow Flow) *set {
	name := flow.Set()
	if name == "" {
		return nil
	}
	d.ruleset.changed[name] = true
	return d.ruleset.sets[name]
}
