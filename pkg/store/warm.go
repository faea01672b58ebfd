// SPDX-License-Identifier: Apache-2.0

package store

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// warm has the protobuf library build its tables for the messages that every
// call needs: most of a millisecond, which a plugin has while it connects.
func warm() {
	request := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("k"), TargetUnion: &pb.Compare_ModRevision{ModRevision: 1}}},
		Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}},
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}},
			{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("k")}}},
		},
	}
	_, _ = proto.Marshal(request)
	response := &pb.TxnResponse{
		Header: &pb.ResponseHeader{Revision: 1},
		Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("k")}}}}},
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1}}}},
			{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1}}},
		},
	}
	if data, err := proto.Marshal(response); err == nil {
		_ = proto.Unmarshal(data, &pb.TxnResponse{})
	}
}
