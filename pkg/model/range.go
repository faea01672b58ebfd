// SPDX-License-Identifier: Apache-2.0

package model

// Range specifies entries to read: one key, or the keys with a prefix. It is comparable. The zero Range is invalid.
type Range struct {
	// Key is the single key; if nil, Prefix counts.
	Key Key
	// Prefix is the prefix of the paths.
	Prefix string
	// From is the path at which to begin (inclusive); "" means at the first. To read the page after an entry, set it to
	// the entry's Path + "\x00".
	From string
	// Limit is the maximum number of entries to read; 0 means all.
	Limit int64
	// KeysOnly omits the values: entries have neither Value nor an error about it.
	KeysOnly bool
}

// KeyRange returns the range of one key.
func KeyRange(k Key) Range { return Range{Key: k} }

// PrefixRange returns the range of all keys whose paths begin with prefix.
func PrefixRange(prefix string) Range { return Range{Prefix: prefix} }

// Path returns the path or prefix of the range, for messages.
func (r Range) Path() string {
	if r.Key != nil {
		return r.Key.Path()
	}
	return r.Prefix
}

// Snapshot is the content of several ranges at one revision.
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

// Get finds the entry of a key by linear search.
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

// Update is one change in a source of entries, such as the watched part of etcd.
type Update struct {
	// Revision is the revision of the reader's content after this update. It increases from one update to the next;
	// only a Resync may repeat it, or go back if the source was restored from a backup.
	Revision int64
	// Resync says that Entries is the complete content; everything else is gone. Otherwise Entries has all changes of
	// one transaction.
	Resync bool
	// Restored, in a Resync, says that the source has changed or was restored from a backup: earlier updates aren't
	// part of its history.
	Restored bool
	// Entries with Revision 0 were deleted; they have only Path and Key.
	Entries []Entry
}
