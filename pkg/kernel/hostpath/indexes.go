// SPDX-License-Identifier: Apache-2.0

package hostpath

import "sync"

// indexes are those of the workload links, by name, as the kernel told of them last.
type indexes struct {
	mu sync.Mutex
	of map[string]int
}

// Indexes are the indexes of the links of these names, 0 where there is none with a workload prefix. They follow the
// kernel's notices, of which an Event tells afterwards: where nobody has subscribed, or can be told any more, none is known.
func (h *Path) Indexes(names ...string) map[string]int {
	h.indexes.mu.Lock()
	defer h.indexes.mu.Unlock()
	found := make(map[string]int, len(names))
	for _, name := range names {
		found[name] = h.indexes.of[name]
	}
	return found
}

// learn replaces all of them.
func (x *indexes) learn(seen map[int]sight) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of = make(map[string]int, len(seen))
	for index, s := range seen {
		x.of[s.name] = index
	}
}

// move notes that a link has another name, "" = none of a workload's.
func (x *indexes) move(index int, from, to string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, from)
	if to != "" {
		x.of[to] = index
	}
}
