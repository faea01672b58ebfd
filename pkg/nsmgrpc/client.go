// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/nsm"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

var (
	// ErrUnreachable is in an error's chain if there was no answer: the peer is gone, or not there yet.
	ErrUnreachable = errors.New("unreachable")
	// ErrNeverReached is in the chain, along with ErrUnreachable, if no call was sent: the peer can't have received it.
	ErrNeverReached = errors.New("nothing was sent")
	// ErrRefused is in the chain if another manager refused: it has made nothing, but may have an earlier connection.
	ErrRefused = errors.New("the endpoint's manager refuses")
	// ErrUnknownCall is in the chain if a peer doesn't have the call.
	ErrUnknownCall = errors.New("it doesn't have the call")
)

// dialTimeout is the part of a call's time for connecting to the peer.
const dialTimeout = 3 * time.Second

// with calls fn with a connection, for one call.
func with(target string, creds credentials.TransportCredentials, fn func(*grpc.ClientConn) error, options ...grpc.DialOption) error {
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(creds), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.DefaultConfig, MinConnectTimeout: dialTimeout,
	}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))...)
	if err == nil {
		defer func() { _ = conn.Close() }()
		err = fn(conn)
	}
	return explain(target, err)
}

// explain converts a status to an error of ours.
func explain(target string, err error) error {
	if err == nil {
		return nil
	}
	kind := nsm.ErrAborted
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound:
		kind = nsm.ErrNotFound
	case codes.AlreadyExists:
		kind = nsm.ErrExists
	case codes.InvalidArgument:
		kind = nsm.ErrInvalid
	case codes.Unimplemented:
		kind = ErrUnknownCall
	case codes.Unavailable, codes.DeadlineExceeded:
		kind = ErrUnreachable
	}
	return fmt.Errorf("%s: %w: %s", target, kind, strings.TrimPrefix(status.Convert(err).Message(), kind.Error()+": "))
}

// at calls the server of a unix socket, whose name may have any characters.
func at(socket string, fn func(*grpc.ClientConn) error) error {
	return with("passthrough:///"+socket, insecure.NewCredentials(), fn, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}))
}

// Request asks the manager of this node for a connection.
func Request(ctx context.Context, socket string, r nsm.Request) (reply nsm.Reply, err error) {
	err = at(socket, func(c *grpc.ClientConn) error {
		answer, err := api.NewClientConnectionClient(c).RequestConnection(ctx, &api.ConnectionRequest{
			RequestId: r.ID, NetworkServiceName: r.Service, LinuxNamespace: strconv.FormatUint(r.Namespace, 10), Interface: interfacesTo(r.Interfaces),
		})
		if err != nil {
			return err
		}
		if !answer.GetAccepted() {
			return status.Error(codes.Aborted, answer.GetAdmissionError())
		}
		reply = nsm.Reply{Interface: interfacesFrom([]*api.Interface{answer.GetInterface()})[0], Parameters: answer.GetConnectionParameters().GetConnectionParameters()}
		return nil
	})
	return reply, err
}

// Disconnect asks the manager of this node to end a connection of the calling pod. It succeeds if there is none.
func Disconnect(ctx context.Context, socket string, k nsm.Key) error {
	return at(socket, func(c *grpc.ClientConn) error {
		_, err := api.NewClientConnectionClient(c).CloseConnection(ctx, &api.ConnectionClose{RequestId: k.ID, NetworkServiceName: k.Service})
		return err
	})
}

// Advertise advertises an endpoint to the manager of this node.
func Advertise(ctx context.Context, socket, id string, e nsm.Endpoint) error {
	return at(socket, func(c *grpc.ClientConn) error {
		answer, err := api.NewEndpointOperationsClient(c).AdvertiseEndpoint(ctx, &api.EndpointAdvertiseRequest{RequestId: id, NetworkEndpoint: endpointTo(e)})
		if err == nil && !answer.GetAccepted() {
			err = status.Error(codes.Aborted, answer.GetAdmissionError())
		}
		return err
	})
}

// Remove tells the manager of this node that an endpoint accepts no more connections.
func Remove(ctx context.Context, socket, id string, e nsm.Endpoint) error {
	return at(socket, func(c *grpc.ClientConn) error {
		answer, err := api.NewEndpointOperationsClient(c).RemoveEndpoint(ctx, &api.EndpointRemoveRequest{RequestId: id, NetworkEndpoint: endpointTo(e)})
		if err == nil && !answer.GetAccepted() {
			err = status.Error(codes.Aborted, answer.GetAdmissionError())
		}
		return err
	})
}

// AskEndpoint asks an endpoint at its socket for a connection, and returns the namespace in which it should end.
func AskEndpoint(ctx context.Context, socket, id, service string) (namespace uint64, err error) {
	err = at(socket, func(c *grpc.ClientConn) error {
		answer, err := api.NewEndpointConnectionClient(c).RequestEndpointConnection(ctx, &api.EndpointConnectionRequest{RequestId: id, NetworkServiceName: service})
		if err != nil {
			return err
		}
		if answer.GetRequestId() != id || answer.GetNetworkServiceName() != service {
			return status.Errorf(codes.Aborted, "the endpoint answered another request (%.40q for %.40q)", answer.GetRequestId(), answer.GetNetworkServiceName())
		}
		if namespace, err = parseNamespace(answer.GetLinuxNamespace()); err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
		return nil
	})
	return namespace, err
}

// A Peer is the manager of another node.
type Peer struct {
	Node    string
	Address string // host:port
	TLS     TLS
}

func (p Peer) with(fn func(api.NSM2NSMClient) error) error {
	creds, err := p.TLS.client(p.Node)
	if err != nil {
		return err
	}
	var sent sent
	err = with(p.Address, creds, func(c *grpc.ClientConn) error { return fn(api.NewNSM2NSMClient(c)) }, grpc.WithStatsHandler(&sent))
	if errors.Is(err, ErrUnreachable) && !sent.Load() {
		err = fmt.Errorf("%w: %w", ErrNeverReached, err)
	}
	return err
}

// sent is set once a call is sent, which is after both sides have authenticated. It implements stats.Handler.
type sent struct{ atomic.Bool }

func (*sent) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sent) HandleConn(context.Context, stats.ConnStats)                       {}
func (*sent) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (s *sent) HandleRPC(_ context.Context, what stats.RPCStats) {
	if _, is := what.(*stats.OutHeader); is {
		s.Store(true)
	}
}

// Request asks for a connection. The reply is from this node's point of view.
func (p Peer) Request(ctx context.Context, r nsm.RemoteRequest) (reply nsm.RemoteReply, err error) {
	refusal := error(nil)
	err = p.with(func(c api.NSM2NSMClient) error {
		answer, err := c.RequestRemoteConnection(ctx, remoteRequestTo(r))
		if err == nil {
			reply, refusal = remoteReplyFrom(r.ID, answer)
		}
		return err
	})
	return reply, errors.Join(err, refusal)
}

// Close ends a connection of the requestor. It succeeds if there is none.
func (p Peer) Close(ctx context.Context, requestor string, k nsm.Key) error {
	return p.with(func(c api.NSM2NSMClient) error {
		_, err := c.CloseRemoteConnection(ctx, &api.RemoteConnectionClose{RequestId: k.ID, NetworkServiceName: k.Service, Requestor: requestor})
		return err
	})
}

// Held tells the peer which of its connections this manager holds, and returns those that the peer holds.
func (p Peer) Held(ctx context.Context, requestor string, held []nsm.Key) (keys []nsm.Key, err error) {
	err = p.with(func(c api.NSM2NSMClient) error {
		ctx, enough := context.WithCancel(ctx)
		defer enough()
		stream, err := c.MonitorRemoteConnections(ctx, &api.RemoteConnectionMonitor{Requestor: requestor, Held: keysTo(held)})
		if err != nil {
			return err
		}
		answer, err := stream.Recv()
		keys = keysFrom(answer.GetConnections())
		return err
	})
	return keys, err
}
