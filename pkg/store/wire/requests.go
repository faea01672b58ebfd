// SPDX-License-Identifier: Apache-2.0

package wire

import "google.golang.org/protobuf/encoding/protowire"

// RangeRequest reads one key, or those from it to RangeEnd, which is not among them.
type RangeRequest struct {
	Key      string
	RangeEnd string // empty = one key
	Limit    int64  // 0 = all
	Revision int64  // 0 = the latest
	KeysOnly bool
	ByValue  bool // in the order of values, which the limit goes by then
}

func (r *RangeRequest) appendTo(b []byte) []byte {
	b = appendString(b, 1, r.Key)
	b = appendString(b, 2, r.RangeEnd)
	b = appendInt(b, 3, r.Limit)
	b = appendInt(b, 4, r.Revision)
	if r.ByValue {
		const ascending, value = 1, 4 // RangeRequest_ASCEND, RangeRequest_VALUE
		b = appendInt(appendInt(b, 5, ascending), 6, value)
	}
	return appendBool(b, 8, r.KeysOnly)
}

// PutRequest writes a key.
type PutRequest struct {
	Key   string
	Value []byte
	Lease int64 // 0 = none
}

func (r *PutRequest) appendTo(b []byte) []byte {
	b = appendString(b, 1, r.Key)
	b = appendBytes(b, 2, r.Value)
	return appendInt(b, 3, r.Lease)
}

// DeleteRequest deletes a key.
type DeleteRequest struct {
	Key string
}

func (r *DeleteRequest) appendTo(b []byte) []byte { return appendString(b, 1, r.Key) }

// Op is one operation of a transaction: one of its fields.
type Op struct {
	Range  *RangeRequest
	Put    *PutRequest
	Delete *DeleteRequest
}

func (o Op) appendTo(b []byte) []byte {
	switch {
	case o.Range != nil:
		return appendMessage(b, 1, o.Range)
	case o.Put != nil:
		return appendMessage(b, 2, o.Put)
	case o.Delete != nil:
		return appendMessage(b, 3, o.Delete)
	}
	return b
}

// Compare demands the revision that a key was last changed at; 0: it does not exist.
type Compare struct {
	Key         string
	RangeEnd    string // as in RangeRequest: it is demanded of all of them. Where Later or After are, there must be one
	ModRevision int64
	Later       bool   // any later one, in place of this one
	After       string // in place of a revision: values that come after this
}

func (c Compare) appendTo(b []byte) []byte {
	const greater, mod, value = 1, 2, 3 // Compare_GREATER, where equal is 0; Compare_MOD; Compare_VALUE
	if c.Later || c.After != "" {
		b = appendInt(b, 1, greater)
	}
	target := int64(mod)
	if c.After != "" {
		target = value
	}
	b = appendInt(b, 2, target)
	b = appendString(b, 3, c.Key)
	b = appendString(b, 64, c.RangeEnd)
	if c.After != "" {
		return appendString(b, 7, c.After)
	}
	b = protowire.AppendTag(b, 6, protowire.VarintType) // also for 0: it is one of several that may stand here
	return protowire.AppendVarint(b, uint64(c.ModRevision))
}

// TxnRequest does what is in Success where all compares hold, and what is in Failure otherwise.
type TxnRequest struct {
	Compare []Compare
	Success []Op
	Failure []Op
}

func (r *TxnRequest) appendTo(b []byte) []byte {
	for _, c := range r.Compare {
		b = appendMessage(b, 1, c)
	}
	for _, o := range r.Success {
		b = appendMessage(b, 2, o)
	}
	for _, o := range r.Failure {
		b = appendMessage(b, 3, o)
	}
	return b
}

// LeaseGrantRequest asks for a lease.
type LeaseGrantRequest struct {
	TTL int64 // seconds
}

func (r *LeaseGrantRequest) appendTo(b []byte) []byte { return appendInt(b, 1, r.TTL) }

// LeaseRequest names a lease, to revoke it or to keep it alive.
type LeaseRequest struct {
	ID int64
}

func (r *LeaseRequest) appendTo(b []byte) []byte { return appendInt(b, 1, r.ID) }

// AuthenticateRequest asks for a token.
type AuthenticateRequest struct {
	Name     string
	Password string
}

func (r *AuthenticateRequest) appendTo(b []byte) []byte {
	return appendString(appendString(b, 1, r.Name), 2, r.Password)
}

// WatchCreateRequest asks for a watch of the keys from Key to RangeEnd, which is not among them.
type WatchCreateRequest struct {
	Key            string
	RangeEnd       string
	StartRevision  int64
	ProgressNotify bool // say now and then how far it is though nothing changes
}

func (r *WatchCreateRequest) appendTo(b []byte) []byte {
	b = appendString(b, 1, r.Key)
	b = appendString(b, 2, r.RangeEnd)
	b = appendInt(b, 3, r.StartRevision)
	return appendBool(b, 4, r.ProgressNotify)
}

// WatchRequest asks for another watch; or, where Create is nil, how far the stream's watches are.
type WatchRequest struct {
	Create *WatchCreateRequest
}

func (r *WatchRequest) appendTo(b []byte) []byte {
	if r.Create == nil {
		return appendMessage(b, 3, empty{})
	}
	return appendMessage(b, 1, r.Create)
}

// empty is a message without fields.
type empty struct{}

func (empty) appendTo(b []byte) []byte { return b }
