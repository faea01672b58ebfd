// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/policy"
)

// Counted returns how many packets the rules of a policy or profile have matched in one direction, in the calling thread's network
// namespace, since the rules were written.
func Counted(id policy.RulesID, d model.Direction) (uint64, error) {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.Packets(render.RulesChain(id, d))
}
