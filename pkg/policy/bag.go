// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// fewMax is from where on a bag is a map: most labels have few endpoints.
const fewMax = 16

// bag is a set of endpoints. The zero value is empty.
type bag struct {
	few  []*endpoint
	many map[*endpoint]struct{}
}

func (b *bag) add(ep *endpoint) {
	switch {
	case b.many != nil:
		b.many[ep] = struct{}{}
	case slices.Contains(b.few, ep):
	case len(b.few) < fewMax:
		b.few = append(b.few, ep)
	default:
		b.many = make(map[*endpoint]struct{}, 2*fewMax)
		for _, o := range b.few {
			b.many[o] = struct{}{}
		}
		b.many[ep], b.few = struct{}{}, nil
	}
}

func (b *bag) remove(ep *endpoint) {
	if b.many != nil {
		delete(b.many, ep)
		return
	}
	if i := slices.Index(b.few, ep); i >= 0 {
		b.few = slices.Delete(b.few, i, i+1)
	}
}

func (b *bag) len() int { return len(b.few) + len(b.many) }

// each calls f with every endpoint; f must not change the bag.
func (b *bag) each(f func(*endpoint)) {
	for _, ep := range b.few {
		f(ep)
	}
	for ep := range b.many {
		f(ep)
	}
}
