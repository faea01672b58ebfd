// SPDX-License-Identifier: Apache-2.0

package nft

import "github.com/calico-go/calico/pkg/nft/nfnl"

// perChain is how many rules of a dump take as long as asking for one chain.
const perChain = 4

// singly says whether to ask for each of the chains of a plan takes less than
// to read all rules there are.
func (d *desired) singly(p plan) bool {
	n := perChain * len(p.chains)
	for _, want := range p.chains {
		n += len(want)
	}
	return n < d.total.rules
}

// readChains reads the rules of a plan's chains: with all others, or one chain after the
// other.
func (f *Firewall) readChains(p plan) (map[string][]nfnl.Installed, error) {
	if !f.desired.singly(p) {
		rules := make(map[string][]nfnl.Installed, len(p.chains))
		return rules, f.conn.ReadRules(func(chain string, r nfnl.Installed) {
			if _, ours := p.chains[chain]; ours {
				rules[chain] = append(rules[chain], r)
			}
		})
	}
	sizes := make(map[string]int, len(p.chains))
	for name, want := range p.chains {
		sizes[name] = len(want)
	}
	return f.conn.ReadChains(sizes)
}
