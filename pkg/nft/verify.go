// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"

	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// maxFind is how many elements of a set are read back one by one. More of them are read in one dump with all others, as are fewer if the
// others are few.
const maxFind = 200

// verify reads back what a batch changed, and notes it.
func (rs *ruleset) verify(conn *nfnl.Conn, p plan) error {
	rules, err := rs.readChains(conn, p)
	if err != nil {
		return err
	}
	for name, want := range p.chains {
		c := rs.chains[name]
		for i, r := range rules[name] {
			if i < len(c.have) && c.have[i].Handle == r.Handle {
				rules[name][i] = c.have[i] // if another program put it in, that is still so
			}
		}
		rs.holds(c, rules[name])
		if c.differs() {
			return fmt.Errorf("chain %s has %d rules that are not the %d that were written", name, len(c.have), len(want))
		}
		c.there, c.former = true, false
	}
	var lookups []*nfnl.Lookup
	for _, name := range p.sets {
		s := rs.sets[name]
		switch {
		case !s.there && len(s.elems) == 0:
			continue // the rules that look it up prove that it exists
		case !s.there, s.def.Interval, (len(s.was) > maxFind || 5*len(s.was) > 25+len(s.elems)) && (s.def.Data != table.TypeVerdict || len(rs.later) == 0):
			if err := s.verify(conn); err != nil {
				return err
			}
			continue
		}
		for key := range s.was {
			if rs.waitsFor(s, key) {
				continue
			}
			lookups = append(lookups, &nfnl.Lookup{Set: &s.def, Key: key})
		}
	}
	if err := conn.Find(lookups); err != nil {
		return err
	}
	for _, l := range lookups {
		want, wanted := rs.sets[l.Set.Name].elems[l.Key]
		switch text := table.KeyText(l.Set.Key, l.Key); {
		case l.There && !wanted:
			return fmt.Errorf("set %s still has %s", l.Set.Name, text)
		case wanted && (!l.There || l.Data != want):
			return fmt.Errorf("set %s lacks %s as it was written", l.Set.Name, text)
		}
	}
	return nil
}

// verify reads back all elements of a set. While the kernel resizes the set's table it may report some twice.
func (s *set) verify(conn *nfnl.Conn) error {
	differing, err := s.read(conn)
	if err == nil && len(differing) > 0 {
		err = fmt.Errorf("set %s has %d elements more, less or other than the %d that were written", s.def.Name, len(differing), len(s.elems))
	}
	return err
}

// perChain is how many rules of a dump take as long as a request for one chain.
const perChain = 4

// readChains reads the rules of a plan's chains: chain by chain, or in a dump of all if that is faster.
func (rs *ruleset) readChains(conn *nfnl.Conn, p plan) (map[string][]nfnl.Installed, error) {
	rules := make(map[string][]nfnl.Installed, len(p.chains))
	read := func(chain string, r nfnl.Installed) {
		if _, ours := p.chains[chain]; ours {
			rules[chain] = append(rules[chain], r)
		}
	}
	n := perChain * len(p.chains)
	for _, want := range p.chains {
		n += len(want)
	}
	if n >= rs.total.rules {
		return rules, conn.ReadRules("", read)
	}
	for name := range p.chains {
		if err := conn.ReadRules(name, read); err != nil {
			return nil, err
		}
	}
	return rules, nil
}
