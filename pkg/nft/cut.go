// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
)

// Flow is one direction of a connection, as policy sees its packets.
type Flow = render.Flow

// Cut is a flow whose packets can't begin a connection for a while, because the connection that they answered was cut.
type Cut struct {
	Flow
	Lasts time.Duration
}

// Cut makes the kernel drop packets that would begin a connection of these flows. Only the kernel remembers them, and it forgets each after
// its time.
func (f *Firewall) Cut(cuts []Cut) error {
	elements := map[string][]nfnl.Element{}
	for _, c := range cuts {
		elements[c.Set()] = append(elements[c.Set()], nfnl.Element{Key: c.Key(), Timeout: c.Lasts})
	}
	return f.changeCuts("add", elements, (*nfnl.Batch).AddElements)
}

// Uncut lets these flows begin connections again. It fails if the kernel has just forgotten one: read the rest again.
func (f *Firewall) Uncut(flows []Flow) error {
	elements := map[string][]nfnl.Element{}
	for _, flow := range flows {
		elements[flow.Set()] = append(elements[flow.Set()], nfnl.Element{Key: flow.Key()})
	}
	return f.changeCuts("remove", elements, (*nfnl.Batch).DeleteElements)
}

// ReadCuts returns the flows that the kernel keeps from beginning a connection.
func (f *Firewall) ReadCuts() ([]Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for range nfnl.MaxTries {
		var out []Flow
		for _, def := range render.CutSets() {
			err = f.conn.ReadElements(&def, func(e nfnl.Element) {
				if flow, ok := render.ParseFlow(def, e.Key); ok {
					out = append(out, flow)
				}
			})
			if errors.Is(err, os.ErrNotExist) { // the table doesn't exist yet
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

func (f *Firewall) changeCuts(op string, elements map[string][]nfnl.Element, change func(*nfnl.Batch, table.Set, []nfnl.Element)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.conn.NewBatch()
	for _, def := range render.CutSets() {
		for some := range slices.Chunk(elements[def.Name], cutChunk) {
			change(b, def, some)
			b.MayCut()
		}
	}
	if b.Empty() {
		return nil
	}
	n, err := b.Commit(0)
	if err != nil {
		f.generation = 0 // the number of transactions that succeeded is unknown
		return fmt.Errorf("%s flows that can't begin a connection: %w", op, err)
	}
	if f.generation != 0 {
		f.generation += uint32(n)
	}
	return nil
}

// cutChunk is how many elements are changed before the batch may continue in another transaction.
const cutChunk = 2000
