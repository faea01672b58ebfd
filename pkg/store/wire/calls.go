// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"

	"google.golang.org/grpc"
)

// Range reads keys outside a transaction.
func Range(ctx context.Context, conn grpc.ClientConnInterface, r *RangeRequest, opts ...grpc.CallOption) (*RangeResponse, error) {
	return call[RangeResponse](ctx, conn, "/etcdserverpb.KV/Range", r, opts)
}

// Txn makes a transaction.
func Txn(ctx context.Context, conn grpc.ClientConnInterface, r *TxnRequest, opts ...grpc.CallOption) (*TxnResponse, error) {
	return call[TxnResponse](ctx, conn, "/etcdserverpb.KV/Txn", r, opts)
}

// LeaseGrant makes a lease.
func LeaseGrant(ctx context.Context, conn grpc.ClientConnInterface, r *LeaseGrantRequest, opts ...grpc.CallOption) (*LeaseResponse, error) {
	return call[LeaseResponse](ctx, conn, "/etcdserverpb.Lease/LeaseGrant", r, opts)
}

// LeaseRevoke ends a lease.
func LeaseRevoke(ctx context.Context, conn grpc.ClientConnInterface, r *LeaseRequest, opts ...grpc.CallOption) error {
	_, err := call[LeaseResponse](ctx, conn, "/etcdserverpb.Lease/LeaseRevoke", r, opts)
	return err
}

// LeaseKeepAlive opens a stream on which leases are kept alive, until the context ends.
func LeaseKeepAlive(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (grpc.BidiStreamingClient[LeaseRequest, LeaseResponse], error) {
	return open[LeaseRequest, LeaseResponse](ctx, conn, "/etcdserverpb.Lease/LeaseKeepAlive", opts)
}

// Watch opens a stream of watches, until the context ends.
func Watch(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (grpc.BidiStreamingClient[WatchRequest, WatchResponse], error) {
	return open[WatchRequest, WatchResponse](ctx, conn, "/etcdserverpb.Watch/Watch", opts)
}

// Authenticate asks for a token.
func Authenticate(ctx context.Context, conn grpc.ClientConnInterface, r *AuthenticateRequest, opts ...grpc.CallOption) (*AuthenticateResponse, error) {
	return call[AuthenticateResponse](ctx, conn, "/etcdserverpb.Auth/Authenticate", r, opts)
}

// Status asks a member which etcd it is.
func Status(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (*StatusResponse, error) {
	return call[StatusResponse](ctx, conn, "/etcdserverpb.Maintenance/Status", empty{}, opts)
}

func call[R any](ctx context.Context, conn grpc.ClientConnInterface, method string, r request, opts []grpc.CallOption) (*R, error) {
	answer := new(R)
	if err := conn.Invoke(ctx, method, r, answer, with(opts)...); err != nil {
		return nil, err
	}
	return answer, nil
}

func open[Req, Res any](ctx context.Context, conn grpc.ClientConnInterface, method string, opts []grpc.CallOption) (grpc.BidiStreamingClient[Req, Res], error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, with(opts)...)
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[Req, Res]{ClientStream: s}, nil
}

func with(opts []grpc.CallOption) []grpc.CallOption {
	return append([]grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.StaticMethod()}, opts...)
}
