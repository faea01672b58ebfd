// SPDX-License-Identifier: Apache-2.0

package model

// Entry is one key as a store holds it.
type Entry struct {
	// Path is the key as stored; Key is nil where it is not of the data model.
	Path string
	Key  Key
	// Value is the parsed value, nil where the key does not exist or Err is set. Who
	// remembers what the key held before may put that beside Err.
	Value any
	// Err says why the key or its value does not parse. Such an entry is
	// invalid, never fatal: readers take its safe effect and report it.
	Err error
	// Unknown says which fields of the value were passed over, as UnknownFields does.
	Unknown error
	// Revision is etcd's ModRevision, 0 where the key does not exist.
	Revision int64
	// Created is etcd's CreateRevision, 0 where the key does not exist.
	Created int64
	// Lease is the id of etcd's lease that the key hangs on, 0 = none.
	Lease int64
}

// Exists reports whether the key was there, valid or not.
func (e Entry) Exists() bool { return e.Revision != 0 }

// Change is a set of writes that take effect together or not at all, and only if every Compare and every NoneSince holds.
type Change struct {
	Compares []Compare
	// NoneSince are the prefixes of which the decision relies on what they didn't hold.
	NoneSince []NoneSince
	Puts      []Put
	Deletes   []Key
}

// Compare demands that Key was last modified at Revision; 0: that it does not exist.
type Compare struct {
	Key      Key
	Revision int64
}

// NoneSince demands that no key that begins with Prefix was created after Revision.
type NoneSince struct {
	Prefix   string
	Revision int64
}

// Put writes Value, which must be of the type that Key names.
type Put struct {
	Key   Key
	Value any
}

// Merge adds the writes of o, for one transaction.
func (c *Change) Merge(o Change) {
	c.Compares = append(c.Compares, o.Compares...)
	c.NoneSince = append(c.NoneSince, o.NoneSince...)
	c.Puts = append(c.Puts, o.Puts...)
	c.Deletes = append(c.Deletes, o.Deletes...)
}

// Empty reports whether the change writes nothing.
func (c Change) Empty() bool { return len(c.Puts) == 0 && len(c.Deletes) == 0 }
