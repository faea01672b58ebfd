// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// TestRequests holds each request to what etcd's own package makes of the same.
func TestRequests(t *testing.T) {
	long := strings.Repeat("/calico/", 100) + "\x00\xff"
	for _, tc := range []struct {
		name string
		ours request
		its  proto.Message
	}{
		{"range of nothing", &RangeRequest{}, &pb.RangeRequest{}},
		{"range", &RangeRequest{Key: long, RangeEnd: "\x00", Limit: 88, Revision: math.MaxInt64, KeysOnly: true},
			&pb.RangeRequest{Key: []byte(long), RangeEnd: []byte{0}, Limit: 88, Revision: math.MaxInt64, KeysOnly: true}},
		{"range by value", &RangeRequest{Key: "k", Limit: 1, ByValue: true, KeysOnly: true},
			&pb.RangeRequest{Key: []byte("k"), Limit: 1, SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_VALUE, KeysOnly: true}},
		{"negative", &RangeRequest{Key: "k", Revision: -1}, &pb.RangeRequest{Key: []byte("k"), Revision: -1}},
		{"transaction", &TxnRequest{
			Compare: []Compare{{Key: long, ModRevision: 0}, {Key: "b", ModRevision: 300}, {Key: "c", Later: true}, {Key: "d", RangeEnd: "e", Later: true}, {Key: "f", RangeEnd: "g", After: long}},
			Success: []Op{
				{Put: &PutRequest{Key: "a", Value: []byte(long), Lease: math.MinInt64}},
				{Put: &PutRequest{Key: "empty"}},
				{Delete: &DeleteRequest{Key: "b"}},
				{Range: &RangeRequest{}},
			},
			Failure: []Op{{Range: &RangeRequest{Key: "a", KeysOnly: true}}, {}},
		}, &pb.TxnRequest{
			Compare: []*pb.Compare{
				{Key: []byte(long), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: 0}},
				{Key: []byte("b"), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: 300}},
				{Key: []byte("c"), Target: pb.Compare_MOD, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_ModRevision{ModRevision: 0}},
				{Key: []byte("d"), RangeEnd: []byte("e"), Target: pb.Compare_MOD, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_ModRevision{ModRevision: 0}},
				{Key: []byte("f"), RangeEnd: []byte("g"), Target: pb.Compare_VALUE, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Value{Value: []byte(long)}},
			},
			Success: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), Value: []byte(long), Lease: math.MinInt64}}},
				{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("empty")}}},
				{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("b")}}},
				{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}},
			},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("a"), KeysOnly: true}}}, {}},
		}},
		{"grant", &LeaseGrantRequest{TTL: 30}, &pb.LeaseGrantRequest{TTL: 30}},
		{"revoke", &LeaseRequest{ID: math.MaxInt64}, &pb.LeaseRevokeRequest{ID: math.MaxInt64}},
		{"keep alive", &LeaseRequest{ID: 7}, &pb.LeaseKeepAliveRequest{ID: 7}},
		{"authenticate", &AuthenticateRequest{Name: "root", Password: "päss"}, &pb.AuthenticateRequest{Name: "root", Password: "päss"}},
		{"watch", &WatchRequest{Create: &WatchCreateRequest{Key: "/a/", RangeEnd: "/a0", StartRevision: 12, ProgressNotify: true}},
			&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
				Key: []byte("/a/"), RangeEnd: []byte("/a0"), StartRevision: 12, ProgressNotify: true}}}},
		{"progress", &WatchRequest{}, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}},
		{"status", empty{}, &pb.StatusRequest{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(tc.its)
			if err != nil {
				t.Fatal(err)
			}
			have, err := codec{}.Marshal(tc.ours)
			if err != nil {
				t.Fatal(err)
			}
			if have := have.Materialize(); !bytes.Equal(have, want) {
				t.Errorf("encoded as %q, want %q", have, want)
			}
		})
	}
}

// An answer pairs a response with etcd's own message of the same.
type answer struct {
	its  proto.Message
	ours func() response
	// of makes of etcd's what ours must be.
	of func(proto.Message) response
}

var answers = []answer{
	{&pb.RangeResponse{}, func() response { return new(RangeResponse) }, func(m proto.Message) response { r := rangeOf(m.(*pb.RangeResponse)); return &r }},
	{&pb.TxnResponse{}, func() response { return new(TxnResponse) }, func(m proto.Message) response {
		its := m.(*pb.TxnResponse)
		r := &TxnResponse{Header: headerOf(its.Header), Succeeded: its.Succeeded}
		for _, op := range its.Responses {
			r.Responses = append(r.Responses, OpResponse{Range: rangeOf(op.GetResponseRange())})
		}
		return r
	}},
	{&pb.LeaseGrantResponse{}, func() response { return new(LeaseResponse) }, func(m proto.Message) response {
		its := m.(*pb.LeaseGrantResponse)
		return &LeaseResponse{ID: its.ID, TTL: its.TTL}
	}},
	{&pb.LeaseKeepAliveResponse{}, func() response { return new(LeaseResponse) }, func(m proto.Message) response {
		its := m.(*pb.LeaseKeepAliveResponse)
		return &LeaseResponse{ID: its.ID, TTL: its.TTL}
	}},
	{&pb.AuthenticateResponse{}, func() response { return new(AuthenticateResponse) }, func(m proto.Message) response {
		return &AuthenticateResponse{Token: m.(*pb.AuthenticateResponse).Token}
	}},
	{&pb.WatchResponse{}, func() response { return new(WatchResponse) }, func(m proto.Message) response {
		its := m.(*pb.WatchResponse)
		r := &WatchResponse{Header: headerOf(its.Header), WatchID: its.WatchId, Created: its.Created, Canceled: its.Canceled,
			CompactRevision: its.CompactRevision, CancelReason: its.CancelReason}
		for _, ev := range its.Events {
			r.Events = append(r.Events, Event{Deleted: ev.Type == mvccpb.Event_DELETE, Kv: keyValueOf(ev.Kv)})
		}
		return r
	}},
	{&pb.StatusResponse{}, func() response { return new(StatusResponse) }, func(m proto.Message) response {
		return &StatusResponse{Version: m.(*pb.StatusResponse).Version}
	}},
}

func headerOf(h *pb.ResponseHeader) Header {
	return Header{ClusterID: h.GetClusterId(), Revision: h.GetRevision()}
}

func rangeOf(its *pb.RangeResponse) RangeResponse {
	r := RangeResponse{Header: headerOf(its.GetHeader()), More: its.GetMore()}
	for _, kv := range its.GetKvs() {
		r.Kvs = append(r.Kvs, keyValueOf(kv))
	}
	return r
}

func keyValueOf(kv *mvccpb.KeyValue) KeyValue {
	return KeyValue{Key: string(kv.GetKey()), CreateRevision: kv.GetCreateRevision(), ModRevision: kv.GetModRevision(),
		Version: kv.GetVersion(), Value: kv.GetValue(), Lease: kv.GetLease()}
}

// samples are messages with all that etcd says in them, what isn't read here too.
var samples = []proto.Message{
	&pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{kv, {Key: []byte("b"), Value: []byte{}}, {}}, More: true, Count: 3},
	&pb.TxnResponse{Header: header, Succeeded: true, Responses: []*pb.ResponseOp{
		{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{kv}, Count: 1}}},
		{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: header, PrevKv: kv}}},
		{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1, PrevKvs: []*mvccpb.KeyValue{kv}}}},
		{},
	}},
	&pb.LeaseGrantResponse{Header: header, ID: math.MaxInt64, TTL: 30, Error: "none"},
	&pb.LeaseKeepAliveResponse{Header: header, ID: 3, TTL: -1},
	&pb.AuthenticateResponse{Header: header, Token: "tökén"},
	&pb.WatchResponse{Header: header, WatchId: -1, Created: true, Canceled: true, CompactRevision: 5, CancelReason: "gone", Fragment: true,
		Events: []*mvccpb.Event{{Kv: kv, PrevKv: kv}, {Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("b"), ModRevision: 9}}, {}}},
	&pb.StatusResponse{Header: header, Version: "3.4.23", DbSize: 1, Leader: 2, Errors: []string{"NOSPACE"}, IsLearner: true},
}

var (
	header = &pb.ResponseHeader{ClusterId: math.MaxUint64, MemberId: 2, Revision: 1 << 40, RaftTerm: 4}
	kv     = &mvccpb.KeyValue{Key: []byte("/calico/\xff"), CreateRevision: 1, ModRevision: 300, Version: 2, Value: []byte(`{"a":1}`), Lease: math.MinInt64}
)

// FuzzResponses holds what is read of any message to what etcd's own package reads of it. What that refuses may be refused or not,
// and must not panic.
func FuzzResponses(f *testing.F) {
	for _, m := range samples {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0x1a, 0x02, 0x12, 0x00, 0x1a, 0x04, 0x0a, 0x00, 0x12, 0x00}) // one of several fields, and then another
	f.Add([]byte{0x1a, 0x06, 0x0a, 0x02, 0x18, 0x01, 0x22, 0x00})             // the last of them, a transaction's
	f.Add([]byte{0x5b, 0x08, 0x01, 0x5c, 0x0d, 1, 2, 3, 4, 0x09, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range answers {
			ours := a.ours()
			err := codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes.Clone(data))}, ours)
			its := proto.Clone(a.its)
			if proto.Unmarshal(data, its) != nil {
				continue
			}
			if err != nil {
				t.Errorf("%T: etcd's own takes it: %v", ours, err)
				continue
			}
			if diff := cmp.Diff(a.of(its), ours); diff != "" {
				t.Errorf("%T (-etcd's +ours):\n%s", ours, diff)
			}
		}
	})
}

// TestMalformed cuts each sample anywhere, and has an error name the message.
func TestMalformed(t *testing.T) {
	for i, m := range samples {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for n := range data {
			r := answers[i].ours()
			err := parse(data[:n], r)
			if its := proto.Clone(answers[i].its); (proto.Unmarshal(data[:n], its) == nil) != (err == nil) {
				t.Errorf("%T of %d bytes of %d: %v", r, n, len(data), err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "malformed *wire.") {
				t.Errorf("%T: %v", r, err)
			}
		}
	}
}

// TestBuffers makes sure that nothing that was read stays in the buffer, which is used again.
func TestBuffers(t *testing.T) {
	data, err := proto.Marshal(samples[0])
	if err != nil {
		t.Fatal(err)
	}
	var r RangeResponse
	if err := parse(data, &r); err != nil {
		t.Fatal(err)
	}
	clear(data)
	if diff := cmp.Diff(rangeOf(samples[0].(*pb.RangeResponse)), r); diff != "" {
		t.Errorf("after the buffer was cleared (-want +have):\n%s", diff)
	}
}
