// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/nft/table"
)

// Reached returns the workload interfaces whose endpoints lately reached their limit of connections.
func (f *Firewall) Reached() (names []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.desired.interfaces.bounds) == 0 {
		return nil, nil
	}
	for _, def := range render.BoundSets() {
		if def.Name == render.SetReached {
			err = f.conn.ReadElements(&def, func(e nfnl.Element) { names = append(names, strings.TrimRight(e.Key, "\x00")) })
		}
	}
	if errors.Is(err, os.ErrNotExist) { // the table doesn't exist yet
		err = nil
	}
	return names, err
}

// canBound reports whether the kernel can count connections (nft_connlimit) and take samples (nft_numgen). It tries a set and a rule that
// do, in a table of another name, in one transaction that also deletes it.
func canBound() bool {
	conn, err := nfnl.Open(TableName + "-try")
	sample, bad := nfnl.EncodeRule(table.Rule{Do: []table.Statement{table.OneIn{Packets: 2}}})
	if err != nil || bad != nil {
		return true // a real Apply will show the error
	}
	defer conn.Close()
	b := conn.NewBatch()
	b.AddTable()
	b.AddSet(render.BoundSets()[0], nil)
	b.AddChain(table.Chain{Name: "try"})
	b.AddRule("try", sample, 0)
	b.DeleteTable()
	_, err = b.Commit(0)
	return !errors.As(err, new(nfnl.RefusedError))
}
