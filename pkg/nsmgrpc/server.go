// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// The sockets of a manager, in its directory.
const (
	DefaultDirectory = "/var/lib/networkservicemesh"
	ClientSocket     = "nsm.ligato.io.sock"
	EndpointSocket   = "nsm.endpoint.io.sock"
)

const (
	maxMessage = 1 << 20
	maxHeader  = 16 << 10
	maxStreams = 64 // per connection
	// maxConnections is for all clients of a node, or all other managers, which open one connection per request.
	maxConnections = 1024
	// connectTimeout is how long a peer may take for the handshake.
	connectTimeout = 10 * time.Second
	// monitorInterval is how often the list is sent to a monitor.
	monitorInterval = 10 * time.Second
)

// Pods is a manager's interface for the pods of its node.
type Pods interface {
	Connect(ctx context.Context, r nsm.Request) (nsm.Reply, error)
	Disconnect(ctx context.Context, k nsm.Key, namespace uint64) error
	Advertise(ctx context.Context, e nsm.Endpoint) error
	Remove(ctx context.Context, e nsm.Endpoint) error
}

// Peers is a manager's interface for other managers. Lost receives which connections a peer holds, and ends its others;
// Held returns those that it has here.
type Peers interface {
	Accept(ctx context.Context, r nsm.RemoteRequest) (nsm.RemoteReply, error)
	End(ctx context.Context, k nsm.Key) error
	Lost(ctx context.Context, peer string, held []nsm.Key)
	Held(peer string) []nsm.Key
}

// ServePods serves both sockets in a directory until the context ends, which is no error.
func ServePods(ctx context.Context, dir string, m Pods) error {
	clients, err := Listen(filepath.Join(dir, ClientSocket))
	if err != nil {
		return err
	}
	endpoints, err := Listen(filepath.Join(dir, EndpointSocket))
	if err != nil {
		return errors.Join(err, clients.Close())
	}
	s := newServer(grpc.Creds(newPodCredentials()))
	api.RegisterClientConnectionServer(s, podServer{m: m})
	api.RegisterEndpointOperationsServer(s, podServer{m: m})
	return serve(ctx, s, clients, endpoints)
}

// ServePeers serves other managers until the context ends.
func ServePeers(ctx context.Context, l net.Listener, t TLS, m Peers) error {
	s := newServer(grpc.Creds(t.server()))
	api.RegisterNSM2NSMServer(s, peerServer{m: m})
	return serve(ctx, s, l)
}

// ServeEndpoint answers a manager at the endpoint's socket: every connection that allow accepts ends in the namespace.
func ServeEndpoint(ctx context.Context, l net.Listener, namespace uint64, allow func(id, service string) error) error {
	s := newServer()
	api.RegisterEndpointConnectionServer(s, endpointServer{namespace: namespace, allow: allow})
	return serve(ctx, s, l)
}

// newServer returns a server that no client can block for long.
func newServer(options ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxMessage), grpc.ConnectionTimeout(connectTimeout), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeader), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: server.Timeout, Time: server.Timeout}))...)
}

// Listen creates a unix socket that only its user may use, replacing a stale one.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: remove what is there: %w", path, err)
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		if err = os.Chmod(path, 0o600); err != nil {
			_ = l.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func serve(ctx context.Context, s *grpc.Server, listeners ...net.Listener) error {
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- s.Serve(server.Limit(l, maxConnections)) }()
	}
	var errs error
	for range listeners {
		err := <-ended
		s.Stop() // if one ends, end the others too
		if err != nil && !errors.Is(err, grpc.ErrServerStopped) && ctx.Err() == nil {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// refusal returns the status for an error.
func refusal(err error) error {
	code := codes.Aborted
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nsm.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, nsm.ErrExists):
		code = codes.AlreadyExists
	case errors.Is(err, nsm.ErrInvalid):
		code = codes.InvalidArgument
	}
	return status.Error(code, err.Error())
}

type podServer struct {
	api.UnimplementedClientConnectionServer
	api.UnimplementedEndpointOperationsServer
	m Pods
}

// RequestConnection is called by a client.
func (s podServer) RequestConnection(ctx context.Context, in *api.ConnectionRequest) (*api.ConnectionReply, error) {
	r, err := requestFrom(in)
	if err == nil {
		err = r.Check()
	}
	own, unseen := callingPod(ctx)
	if err = cmp.Or(err, unseen); err == nil && own != r.Namespace {
		err = fmt.Errorf("%w: linux_namespace %d: the process that asks is in %d, and may ask for that alone", nsm.ErrInvalid, r.Namespace, own)
	}
	if err != nil {
		return nil, refusal(err)
	}
	reply, err := s.m.Connect(ctx, r)
	if err != nil {
		return nil, refusal(err)
	}
	return &api.ConnectionReply{
		Accepted: true, Interface: interfaceTo(reply.Interface),
		ConnectionParameters: &api.ConnectionParameters{ConnectionParameters: reply.Parameters},
	}, nil
}

// CloseConnection is called by a client.
func (s podServer) CloseConnection(ctx context.Context, in *api.ConnectionClose) (*api.ConnectionCloseReply, error) {
	own, err := callingPod(ctx)
	if err == nil {
		err = s.m.Disconnect(ctx, nsm.Key{ID: in.GetRequestId(), Service: in.GetNetworkServiceName()}, own)
	}
	return &api.ConnectionCloseReply{}, refusal(err)
}

// AdvertiseEndpoint is called by an endpoint.
func (s podServer) AdvertiseEndpoint(ctx context.Context, in *api.EndpointAdvertiseRequest) (*api.EndpointAdvertiseReply, error) {
	e := endpointFrom(in.GetNetworkEndpoint())
	err := e.Check()
	if err == nil && e.Socket == "" {
		err = fmt.Errorf("%w: socket_location is empty: name the socket that the endpoint serves", nsm.ErrInvalid)
	}
	if err == nil {
		e.Namespace, err = callingPod(ctx)
	}
	if err == nil {
		err = s.m.Advertise(ctx, e)
	}
	if err != nil {
		return &api.EndpointAdvertiseReply{RequestId: in.GetRequestId(), AdmissionError: err.Error()}, nil
	}
	return &api.EndpointAdvertiseReply{RequestId: in.GetRequestId(), Accepted: true}, nil
}

// RemoveEndpoint is called by an endpoint.
func (s podServer) RemoveEndpoint(ctx context.Context, in *api.EndpointRemoveRequest) (*api.EndpointRemoveReply, error) {
	e := endpointFrom(in.GetNetworkEndpoint())
	err := nsm.Endpoint{Service: e.Service, Name: e.Name}.Check()
	if err == nil {
		e.Namespace, err = callingPod(ctx)
	}
	if err == nil {
		err = s.m.Remove(ctx, e)
	}
	if err != nil {
		return &api.EndpointRemoveReply{RequestId: in.GetRequestId(), AdmissionError: err.Error()}, nil
	}
	return &api.EndpointRemoveReply{RequestId: in.GetRequestId(), Accepted: true}, nil
}

type endpointServer struct {
	api.UnimplementedEndpointConnectionServer
	namespace uint64
	allow     func(id, service string) error
}

// RequestEndpointConnection is called by the manager.
func (s endpointServer) RequestEndpointConnection(_ context.Context, in *api.EndpointConnectionRequest) (*api.EndpointConnectionReply, error) {
	if err := s.allow(in.GetRequestId(), in.GetNetworkServiceName()); err != nil {
		return nil, refusal(err)
	}
	return &api.EndpointConnectionReply{
		RequestId: in.GetRequestId(), NetworkServiceName: in.GetNetworkServiceName(), LinuxNamespace: strconv.FormatUint(s.namespace, 10),
	}, nil
}

type peerServer struct {
	api.UnimplementedNSM2NSMServer
	m Peers
}

// RequestRemoteConnection is called by another manager. A refusal is a regular answer.
func (s peerServer) RequestRemoteConnection(ctx context.Context, in *api.RemoteConnectionRequest) (*api.RemoteConnectionReply, error) {
	r, err := remoteRequestFrom(in)
	var reply nsm.RemoteReply
	if err == nil {
		r.Requestor, err = caller(ctx, r.Requestor)
	}
	if err == nil {
		reply, err = s.m.Accept(ctx, r)
	}
	if err != nil {
		return &api.RemoteConnectionReply{RequestId: in.GetRequestId(), AdmissionError: err.Error()}, nil
	}
	return remoteReplyTo(in.GetRequestId(), reply), nil
}

// RequestProxyConnection is called by an older manager.
func (s peerServer) RequestProxyConnection(_ context.Context, in *api.ProxyConnectionRequest) (*api.ProxyConnectionReply, error) {
	return &api.ProxyConnectionReply{RequestId: in.GetRequestId(), AdmissionError: "the call is replaced by nsm2nsm.NSM2NSM/RequestRemoteConnection: use that"}, nil
}

// CloseRemoteConnection is called by another manager.
func (s peerServer) CloseRemoteConnection(ctx context.Context, in *api.RemoteConnectionClose) (*api.RemoteConnectionCloseReply, error) {
	peer, err := caller(ctx, in.GetRequestor())
	if err == nil {
		err = s.m.End(ctx, nsm.Key{ID: in.GetRequestId(), Service: in.GetNetworkServiceName(), Peer: peer})
	}
	return &api.RemoteConnectionCloseReply{}, refusal(err)
}

// MonitorRemoteConnections is called by another manager.
func (s peerServer) MonitorRemoteConnections(in *api.RemoteConnectionMonitor, out api.NSM2NSM_MonitorRemoteConnectionsServer) error {
	peer, err := caller(out.Context(), in.GetRequestor())
	if err != nil {
		return refusal(err)
	}
	s.m.Lost(out.Context(), peer, keysFrom(in.GetHeld()))
	for {
		if err := out.Send(&api.RemoteConnections{Connections: keysTo(s.m.Held(peer))}); err != nil {
			return err
		}
		select {
		case <-out.Context().Done():
			return nil
		case <-time.After(monitorInterval):
		}
	}
}
