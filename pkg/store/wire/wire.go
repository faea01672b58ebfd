// SPDX-License-Identifier: Apache-2.0

// Package wire has the messages of etcd's gRPC API that pkg/store needs, and the calls that carry them. The
// generated package registers all of etcd's messages, and those of its HTTP gateway, whenever a process starts: a sixth of a plugin's start, and what it builds
// at the first use of each another part of an ADD (docs/performance.md). These cost nothing until they are used.
//
// Field numbers are those of etcd's rpc.proto and kv.proto (https://github.com/etcd-io/etcd/tree/main/api). What isn't needed is not
// sent, and is passed over in what is received, as protobuf has it for unknown fields.
package wire

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// request is a message that is sent.
type request interface {
	// appendTo appends the message's encoding.
	appendTo(b []byte) []byte
}

// response is a message that is received.
type response interface {
	// take reads one field, which it copies. It passes over those that it doesn't know.
	take(f field) error
}

// codec encodes requests and decodes responses for grpc.
type codec struct{}

// Name is grpc's of protobuf: to etcd it is that.
func (codec) Name() string { return "proto" }

// Marshal encodes a request.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(request)
	if !ok {
		return nil, fmt.Errorf("%T is no request", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(r.appendTo(nil))}, nil
}

// Unmarshal decodes a response.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(response)
	if !ok {
		return fmt.Errorf("%T is no response", v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return parse(buf.ReadOnlyData(), r)
}

// Fields are told apart by number and type together: one of another type than is known is another field.
const (
	varint    = protowire.Number(protowire.VarintType)
	delimited = protowire.Number(protowire.BytesType)
)

// field is one field of a message that was received.
type field struct {
	tag    protowire.Number // number << 3 | type
	number uint64           // of a varint
	bytes  []byte           // of what is delimited; not to be kept
}

// parse has a message take its fields, in the order in which they stand.
func parse(b []byte, r response) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(r, n)
		}
		b = b[n:]
		f := field{tag: num<<3 | protowire.Number(typ)}
		switch typ {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return malformed(r, n)
		}
		if err := r.take(f); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func malformed(r response, code int) error {
	return fmt.Errorf("malformed %T: %w", r, protowire.ParseError(code))
}

// Fields of a request that have their zero value are left out, as protobuf 3 has it.

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
}

func appendBool(b []byte, num protowire.Number, v bool) []byte {
	return appendInt(b, num, int64(protowire.EncodeBool(v)))
}

// appendMessage appends a message even if it is empty: that it is there is what it says.
func appendMessage(b []byte, num protowire.Number, m request) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), m.appendTo(nil))
}
