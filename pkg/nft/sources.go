// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"os"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
)

// Source is an address that the endpoint of an interface sends from.
type Source = render.Source

// ReadSources reads which addresses endpoints had as the kernel has it: before the first Apply,
// those that another run of this program knew.
func (f *Firewall) ReadSources() ([]Source, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Source
	err := readSets(render.SourceSets(), func() { out = nil }, func(def *table.Set) error {
		return f.conn.ReadElements(def, func(e nfnl.Element) {
			if s, ok := render.ParseSource(*def, e.Key); ok {
				out = append(out, s)
			}
		})
	})
	return out, err
}

// readSets reads sets whose table may be still to be made, from the beginning where the ruleset
// changed meanwhile.
func readSets(sets []table.Set, begin func(), read func(*table.Set) error) error {
	var err error
	for range nfnl.MaxTries {
		begin()
		for _, def := range sets {
			if err = read(&def); errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			if err != nil {
				break
			}
		}
		if !errors.Is(err, nfnl.ErrInterrupted) {
			return err
		}
	}
	return err
}
