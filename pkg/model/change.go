// SPDX-License-Identifier: Apache-2.0

package model

// Entry is one key in a store.
type Entry struct {
	// Path is the key as stored. Key is nil if the path is not part of the data model.
	Path string
	Key  Key
	// Value is the parsed value, nil if the key does not exist or Err is set. A caller that remembers the key's
	// previous value may put it there along with Err.
	Value any
	// Err says why the key or its value does not parse. Such an entry is invalid but never fatal: readers assume its
	// safe effect and report it.
	Err error
	// Unknown says which fields of the value were ignored, like UnknownFields.
	Unknown error
	// Revision is etcd's ModRevision, 0 if the key does not exist.
	Revision int64
	// Created is etcd's CreateRevision, 0 if the key does not exist.
	Created int64
	// Lease is the ID of the etcd lease that the key is attached to, 0 = none.
	Lease int64
}

// Exists reports whether the key exists, with a valid value or not.
func (e Entry) Exists() bool { return e.Revision != 0 }

// Change is a set of writes that take effect as a whole or not at all, and only if every Compare and NoneSince holds.
type Change struct {
	Compares []Compare
	// NoneSince are prefixes for which the decision relies on the absence of keys.
	NoneSince []NoneSince
	Puts      []Put
	Deletes   []Key
}

// Compare requires that Key was last modified at Revision, or does not exist if Revision is 0.
type Compare struct {
	Key      Key
	Revision int64
}

// NoneSince requires that no key with this Prefix was created after Revision.
type NoneSince struct {
	Prefix   string
	Revision int64
}

// Put writes Value, which must be of the type that belongs to Key.
type Put struct {
	Key   Key
	Value any
}

// Merge adds the writes and conditions of o, for one transaction.
func (c *Change) Merge(o Change) {
	c.Compares = append(c.Compares, o.Compares...)
	c.NoneSince = append(c.NoneSince, o.NoneSince...)
	c.Puts = append(c.Puts, o.Puts...)
	c.Deletes = append(c.Deletes, o.Deletes...)
}

// Empty reports whether the change writes nothing.
func (c Change) Empty() bool { return len(c.Puts) == 0 && len(c.Deletes) == 0 }
