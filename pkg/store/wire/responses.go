// SPDX-License-Identifier: Apache-2.0

package wire

import "bytes"

// Header is what etcd says of itself.
type Header struct {
	ClusterID uint64
	Revision  int64
}

func (h *Header) take(f field) error {
	switch f.tag {
	case 1<<3 | varint:
		h.ClusterID = f.number
	case 3<<3 | varint:
		h.Revision = int64(f.number)
	}
	return nil
}

// KeyValue is a key and what it holds.
type KeyValue struct {
	Key            string
	CreateRevision int64
	ModRevision    int64
	Version        int64
	Value          []byte
	Lease          int64
}

// Equal reports whether both are the same in all.
func (kv KeyValue) Equal(other KeyValue) bool {
	return kv.Key == other.Key && kv.CreateRevision == other.CreateRevision && kv.ModRevision == other.ModRevision &&
		kv.Version == other.Version && kv.Lease == other.Lease && bytes.Equal(kv.Value, other.Value)
}

func (kv *KeyValue) take(f field) error {
	switch f.tag {
	case 1<<3 | delimited:
		kv.Key = string(f.bytes)
	case 2<<3 | varint:
		kv.CreateRevision = int64(f.number)
	case 3<<3 | varint:
		kv.ModRevision = int64(f.number)
	case 4<<3 | varint:
		kv.Version = int64(f.number)
	case 5<<3 | delimited:
		kv.Value = bytes.Clone(f.bytes)
	case 6<<3 | varint:
		kv.Lease = int64(f.number)
	}
	return nil
}

// RangeResponse answers a RangeRequest.
type RangeResponse struct {
	Header Header
	Kvs    []KeyValue
	More   bool // the limit cut it short
}

func (r *RangeResponse) take(f field) error {
	switch f.tag {
	case 1<<3 | delimited:
		return parse(f.bytes, &r.Header)
	case 2<<3 | delimited:
		r.Kvs = append(r.Kvs, KeyValue{})
		return parse(f.bytes, &r.Kvs[len(r.Kvs)-1])
	case 3<<3 | varint:
		r.More = f.number != 0
	}
	return nil
}

// OpResponse answers one operation of a transaction. Of others than reads it says nothing.
type OpResponse struct {
	Range RangeResponse
}

func (r *OpResponse) take(f field) error {
	switch f.tag {
	case 1<<3 | delimited:
		return parse(f.bytes, &r.Range)
	case 2<<3 | delimited, 3<<3 | delimited, 4<<3 | delimited: // a put's, a delete's, a transaction's: the last stands
		r.Range = RangeResponse{}
	}
	return nil
}

// TxnResponse answers a TxnRequest: the operations of Success where it succeeded, of Failure otherwise.
type TxnResponse struct {
	Header    Header
	Succeeded bool
	Responses []OpResponse
}

func (r *TxnResponse) take(f field) error {
	switch f.tag {
	case 1<<3 | delimited:
		return parse(f.bytes, &r.Header)
	case 2<<3 | varint:
		r.Succeeded = f.number != 0
	case 3<<3 | delimited:
		r.Responses = append(r.Responses, OpResponse{})
		return parse(f.bytes, &r.Responses[len(r.Responses)-1])
	}
	return nil
}

// LeaseResponse answers that a lease was granted, kept alive, or revoked: then it has neither.
type LeaseResponse struct {
	ID  int64
	TTL int64 // seconds; 0 or less: there is no such lease
}

func (r *LeaseResponse) take(f field) error {
	switch f.tag {
	case 2<<3 | varint:
		r.ID = int64(f.number)
	case 3<<3 | varint:
		r.TTL = int64(f.number)
	}
	return nil
}

// AuthenticateResponse answers an AuthenticateRequest.
type AuthenticateResponse struct {
	Token string
}

func (r *AuthenticateResponse) take(f field) error {
	if f.tag == 2<<3|delimited {
		r.Token = string(f.bytes)
	}
	return nil
}

// Event is a change of a key.
type Event struct {
	Deleted bool     // Kv has the key and the revision alone
	Kv      KeyValue // without a key where etcd sent none
}

func (e *Event) take(f field) error {
	switch f.tag {
	case 1<<3 | varint:
		const deleted = 1 // Event_DELETE; a put is 0
		e.Deleted = int32(f.number) == deleted
	case 2<<3 | delimited:
		return parse(f.bytes, &e.Kv)
	}
	return nil
}

// WatchResponse is one message of a stream of watches.
type WatchResponse struct {
	Header          Header
	WatchID         int64
	Created         bool
	Canceled        bool
	CompactRevision int64 // not 0: the watch asked for what etcd no longer has
	CancelReason    string
	Events          []Event
}

func (r *WatchResponse) take(f field) error {
	switch f.tag {
	case 1<<3 | delimited:
		return parse(f.bytes, &r.Header)
	case 2<<3 | varint:
		r.WatchID = int64(f.number)
	case 3<<3 | varint:
		r.Created = f.number != 0
	case 4<<3 | varint:
		r.Canceled = f.number != 0
	case 5<<3 | varint:
		r.CompactRevision = int64(f.number)
	case 6<<3 | delimited:
		r.CancelReason = string(f.bytes)
	case 11<<3 | delimited:
		r.Events = append(r.Events, Event{})
		return parse(f.bytes, &r.Events[len(r.Events)-1])
	}
	return nil
}

// StatusResponse says which etcd a member is.
type StatusResponse struct {
	Version string
}

func (r *StatusResponse) take(f field) error {
	if f.tag == 2<<3|delimited {
		r.Version = string(f.bytes)
	}
	return nil
}
