// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// rulesOf returns the rules that the verdicts of hosts name, each once.
func rulesOf(hops []explain.Hop) (all []policy.Step) {
	for _, h := range hops {
		for _, s := range h.Trail {
			rule := policy.Step{Rules: s.Rules, Direction: s.Direction, Rule: s.Rule}
			if s.Rules != (policy.RulesID{}) && !slices.Contains(all, rule) {
				all = append(all, rule)
			}
		}
	}
	return all
}

// live prints how many packets each rule has matched on this host, and how many more during a time.
func (q *question) live(ctx context.Context, hops []explain.Hop) error {
	rules := rulesOf(hops)
	count := func() (packets []uint64, there []bool, err error) {
		for _, r := range rules {
			n, is, err := nft.Counted(r.Rules, r.Direction, r.Rule)
			if err != nil {
				return nil, nil, fmt.Errorf("--live reads the counters of this host's firewall: run it as root on a host of the connection: %w", err)
			}
			packets, there = append(packets, n), append(there, is)
		}
		return packets, there, nil
	}
	before, _, err := count()
	if err != nil {
		return err
	}
	q.env.Progress("counting packets for %s", q.counts)
	select {
	case <-ctx.Done():
	case <-time.After(q.counts):
	}
	after, there, err := count()
	if err != nil {
		return err
	}
	rows := make([][]string, len(rules))
	for i, r := range rules {
		which := r.Rules.String()
		if r.Rule >= 0 { // else the policy or profile as a whole
			which += fmt.Sprintf(" rule %d", r.Rule)
		}
		rows[i] = []string{which + ", " + string(r.Direction), "-", "not on this host"}
		if there[i] {
			rows[i][1], rows[i][2] = strconv.FormatUint(before[i], 10), "+"+strconv.FormatUint(after[i]-min(before[i], after[i]), 10)
		}
	}
	return output.Table(q.env.Stdout, []string{"RULE", "PACKETS", "IN " + q.counts.String()}, rows)
}
