// SPDX-License-Identifier: Apache-2.0

package nft

// Links says which indexes the links of workload interfaces have, by name; 0 = there is none. It does
// no I/O. Of an interface that no endpoint has nothing is kept: it is to be said after the Update that brings one.
//
// A packet's interface is compared by index where that is known, as that is faster than by name. So an index that
// is no longer the link's must be taken back as soon as that is heard; one that isn't known costs speed alone.
func (f *Firewall) Links(indexes map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired.setIndexes(indexes)
}

func (d *desired) setIndexes(indexes map[string]int) {
	for name, index := range indexes {
		if len(d.interfaces[name]) == 0 || d.indexes[name] == index {
			continue
		}
		d.indexes[name] = index
		d.putSources(name)
	}
}
