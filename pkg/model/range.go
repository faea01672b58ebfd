// SPDX-License-Identifier: Apache-2.0

package model

// Range names entries to read: one key, or the keys that begin with a prefix. It is comparable; the zero Range is invalid.
type Range struct {
	// Key is the one key; nil: Prefix counts.
	Key Key
	// Prefix is what the paths begin with.
	Prefix string
	// From is the path below Prefix to begin at, itself included; "": at the first. To read the page after an entry, begin
	// at its Path + "\x00".
	From string
	// Limit is how many entries to read at most; 0: all.
	Limit int64
	// KeysOnly leaves the values out: entries have neither Value nor an error of it.
	KeysOnly bool
}

// KeyRange is the range of one key.
func KeyRange(k Key) Range { return Range{Key: k} }

// PrefixRange is the range of all keys whose paths begin with prefix.
func PrefixRange(prefix string) Range { return Range{Prefix: prefix} }

// Path is the path that the range begins with, as messages name it.
func (r Range) Path() string {
	if r.Key != nil {
		return r.Key.Path()
	}
	return r.Prefix
}

// Snapshot is what several ranges held at one revision.
type Snapshot struct {
	Revision int64
	// Ranges has the entries of each range, by path. A key that does not exist has none.
	Ranges [][]Entry
}

// Entries returns the entries of all ranges, in order.
func (s Snapshot) Entries() []Entry {
	n := 0
	for _, r := range s.Ranges {
		n += len(r)
	}
	all := make([]Entry, 0, n)
	for _, r := range s.Ranges {
		all = append(all, r...)
	}
	return all
}

// Get finds the entry of a key, by looking through all of them.
func (s Snapshot) Get(k Key) (Entry, bool) {
	for _, r := range s.Ranges {
		for _, e := range r {
			if e.Key == k {
				return e, true
			}
		}
	}
	return Entry{}, false
}

// Update is one step of what a source of entries holds, such as the watched part of etcd.
type Update struct {
	// Revision is the revision whose content the reader has after this update. It increases from one update to the next;
	// only a Resync may repeat it, or go back where the source was restored from a backup.
	Revision int64
	// Resync: Entries is the whole content; what isn't in it is gone. Otherwise Entries are the changes of one
	// transaction, all of them.
	Resync bool
	// Restored, of a Resync: the source is another one than before, or was restored from a backup: what it said before isn't its
	// history.
	Restored bool
	// Entries with Revision 0 were deleted; of those only Path and Key are set.
	Entries []Entry
}
