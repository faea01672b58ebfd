// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

// bytesCodec has calls carry bytes as they are.
type bytesCodec struct{ encoding.Codec }

func (bytesCodec) Name() string                    { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// call is one that a foreign manager has got; it is answered by bytes or an error.
type call struct {
	method string
	body   []byte
	answer chan<- answer
	ended  <-chan struct{} // who called has given up
}

type answer struct {
	body []byte
	err  error
}

// foreign is a manager that nobody here wrote: the test answers its calls.
type foreign struct {
	testing.TB
	addr  string
	calls chan call
}

// newForeign serves at a host's address and port 5005.
func (r *rig) newForeign(h *lab.Host) *foreign {
	r.Helper()
	f := &foreign{TB: r, addr: net.JoinHostPort(h.IPv4().String(), "5005"), calls: make(chan call, 100)}
	var l net.Listener
	if err := h.Do(func() (err error) { l, err = net.Listen("tcp", f.addr); return err }); err != nil {
		r.Fatal(err)
	}
	files := r.certificate("calico-nsm")
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		r.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(readFile(r, files.CAFile)))
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert})),
		grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var body []byte
			if err := stream.RecvMsg(&body); err != nil {
				return err
			}
			method, _ := grpc.Method(stream.Context())
			answers := make(chan answer, 1)
			f.calls <- call{filepath.Base(method), body, answers, stream.Context().Done()}
			a := <-answers
			if a.err != nil {
				return a.err
			}
			return stream.SendMsg(&a.body)
		}))
	go func() { _ = s.Serve(l) }() // it ends with the test
	r.Cleanup(s.Stop)
	return f
}

// next is the next call of a method. The others are unknown to this manager.
func (f *foreign) next(method string) (found call) {
	f.Helper()
	eventually.True(f, method+" to be called", func() bool {
		select {
		case found = <-f.calls:
		default:
			return false
		}
		if found.method != method {
			found.answer <- answer{nil, status.Error(codes.Unimplemented, "unknown method")}
		}
		return found.method == method
	})
	return found
}

// request is what the next RequestRemoteConnection asks.
func (f *foreign) request() (call, *api.RemoteConnectionRequest) {
	f.Helper()
	c := f.next("RequestRemoteConnection")
	in := &api.RemoteConnectionRequest{}
	if err := proto.Unmarshal(c.body, in); err != nil {
		f.Fatal(err)
	}
	return c, in
}

// reply is one that can be used, from a node.
func reply(in *api.RemoteConnectionRequest, node net.IP) *api.RemoteConnectionReply {
	v := in.GetRemoteMechanisms()[0].GetConstraints()[0].GetVxlanConstraint()
	return &api.RemoteConnectionReply{
		RequestId: in.GetRequestId(), Accepted: true, RemoteMechanismType: api.RemoteMechanismType_VXLAN,
		RemoteMechanismParameters: &api.RemoteMechanismParameters{Mechanism: &api.RemoteMechanismParameters_VxlanParameters{VxlanParameters: &api.Vxlan_Parameters{
			RequestorIp: v.GetRequestorIp(), RequesteeIp: node.To4(), RequestorPort: v.GetRequestorPort(), RequesteePort: v.GetRequestorPort(),
			Vni: uint32(v.GetExcludeVnis()[0].GetCount()), // the first that isn't excluded
		}}},
		ConnectionContext: &api.ConnectionContext{
			NscConnectionAddresses: &api.Prefix{PrefixRequest: &api.PrefixRequest{AddressFamily: 1, Len: 30}, Prefix: []byte{10, 70, 0, 2}},
			NseConnectionAddresses: &api.Prefix{PrefixRequest: &api.PrefixRequest{AddressFamily: 1, Len: 30}, Prefix: []byte{10, 70, 0, 1}},
		},
	}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// certificate makes one of the managers' authority.
func (r *rig) certificate(names ...string) nsmgrpc.TLS {
	r.Helper()
	file := "c-" + names[len(names)-1]
	err := r.ca.Issue(r.dir, file, &x509.Certificate{DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	if err != nil {
		r.Fatal(err)
	}
	return nsmgrpc.TLS{CAFile: filepath.Join(r.dir, "ca.crt"), CertFile: filepath.Join(r.dir, file+".crt"), KeyFile: filepath.Join(r.dir, file+".key")}
}

// caller calls the manager of a host from another, as a manager with a certificate of these names.
func (r *rig) caller(from, to *lab.Host, names ...string) nsmgrpc.Peer {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			var out net.Conn
			if err := from.Do(func() (err error) {
				out, err = net.Dial("tcp", net.JoinHostPort(to.IPv4().String(), "5005"))
				return err
			}); err != nil {
				_ = in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1]) // whichever side ends, so does the other
					_, _ = way[0].Close(), way[1].Close()
				}()
			}
		}
	}()
	return nsmgrpc.Peer{Node: to.Name(), Address: l.Addr().String(), TLS: r.certificate(append([]string{"calico-nsm"}, names...)...)}
}

// ask asks a host's manager once, as a pod whose namespace is the test's own.
func (r *rig) ask(host, service, id string) error {
	r.Helper()
	own, err := crossconnect.Own()
	if err == nil {
		_, err = nsmgrpc.Request(r.Context(), filepath.Join(r.directory(host), nsmgrpc.ClientSocket), nsm.Request{
			ID: id, Service: service, Namespace: own, Interfaces: []nsm.Interface{{Type: nsm.Kernel, Parameters: map[string]string{nsm.ParamAddressed: "true"}}},
		})
	}
	return err
}

// register puts an endpoint of a foreign manager into the registry, until forget.
func (r *rig) register(service, host, address string) (forget func()) {
	r.Helper()
	path := "/calico/nsm/v1/endpoint/" + service + "/" + host + "/gw"
	c := r.etcd()
	if _, err := c.Put(r.Context(), path, `{"address":"`+address+`"}`); err != nil {
		r.Fatal(err)
	}
	return func() {
		if _, err := c.Delete(context.WithoutCancel(r.Context()), path); err != nil {
			r.Error(err)
		}
	}
}

// log is what a host's manager has logged.
func (r *rig) log(host string) string {
	r.Helper()
	return readFile(r, r.process("nsm-"+host).Log)
}
