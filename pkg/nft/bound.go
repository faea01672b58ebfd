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

// Reached are the workload interfaces whose endpoints began as many connections of late as they may.
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
	if errors.Is(err, os.ErrNotExist) { // the table is still to be made
		err = nil
	}
	return names, err
}

// canBound says whether the kernel counts connections (nft_connlimit) and takes samples (nft_numgen): a table of another name has a set and
// a rule that do, for no time at all.
func canBound() bool {
	conn, err := nfnl.Open(TableName + "-try")
	sample, bad := nfnl.EncodeRule(table.Rule{Do: []table.Statement{table.OneIn{Packets: 2}}})
	if err != nil || bad != nil {
		return true // that will be seen
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
