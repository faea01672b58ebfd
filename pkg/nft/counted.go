// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/render"
	"github.com/calico-go/calico/pkg/policy"
)

// Counted returns how many packets the rules of a policy or profile have matched in one direction, in the calling thread's network
// namespace, since the rules were written; it counts those of one rule, by its index, or of all, -1. there says whether the kernel has it.
func Counted(id policy.RulesID, d model.Direction, rule int) (packets uint64, there bool, err error) {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	of := render.RuleComment(id, rule)
	packets, rules, err := conn.Packets(render.RulesChain(id, d), func(comment string) bool {
		rest, is := strings.CutPrefix(comment, of)
		return rule < 0 || is && (rest == "" || rest[0] < '0' || rest[0] > '9')
	})
	return packets, rules > 0, err
}
