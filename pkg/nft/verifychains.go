// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"maps"
	"slices"
)

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

// manyChains is how many take longer to read than two threads to meet.
const manyChains = 16

// readChains reads the rules of a plan's chains: with all others, or one chain after the
// other, of many half by one socket and half by another.
func (f *Firewall) readChains(p plan) (map[string][]installed, error) {
	rules := make(map[string][]installed, len(p.chains))
	if !f.desired.singly(p) {
		return rules, f.sock.readRules("", func(chain string, r installed) {
			if _, ours := p.chains[chain]; ours {
				rules[chain] = append(rules[chain], r)
			}
		})
	}
	names := slices.Collect(maps.Keys(p.chains))
	read := make([][]installed, len(names))
	some := func(s *socket, from, to int) error {
		for i := from; i < to; i++ {
			name := names[i]
			list := make([]installed, 0, len(p.chains[name]))
			err := s.readRules(name, func(chain string, r installed) {
				if chain == name {
					list = append(list, r)
				}
			})
			if err != nil {
				return err
			}
			read[i] = list
		}
		return nil
	}
	half, done := len(names), make(chan error, 1)
	if half >= manyChains {
		half /= 2
		go func() { done <- some(f.beside, half, len(names)) }()
	} else {
		done <- nil
	}
	err := some(f.sock, 0, half)
	if err = errors.Join(err, <-done); err != nil {
		return nil, err
	}
	for i, name := range names {
		rules[name] = read[i]
	}
	return rules, nil
}
