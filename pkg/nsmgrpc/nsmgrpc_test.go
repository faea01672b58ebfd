// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/lab/pki"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A recorder is a manager that remembers what it was asked, and answers as it is told.
type recorder struct {
	request nsm.Request
	remote  nsm.RemoteRequest
	ended   nsm.Key
	held    []nsm.Key
	err     error
}

var tunnelOfA = nsm.Tunnel{VNI: 7, Local: netip.MustParseAddr("192.0.2.1"), Remote: netip.MustParseAddr("192.0.2.2"), Port: 4795}

func (m *recorder) Connect(_ context.Context, r nsm.Request) (nsm.Reply, error) {
	m.request = r
	return nsm.Reply{Interface: nsm.Interface{Type: nsm.Kernel, Parameters: map[string]string{"name": "nsm0"}}, Parameters: map[string]string{"a": "b"}}, m.err
}
func (m *recorder) Disconnect(_ context.Context, k nsm.Key, namespace uint64) error {
	m.ended, m.request.Namespace = k, namespace
	return m.err
}
func (m *recorder) Advertise(context.Context, nsm.Endpoint) error { return m.err }
func (m *recorder) Remove(context.Context, nsm.Endpoint) error    { return m.err }
func (m *recorder) Accept(_ context.Context, r nsm.RemoteRequest) (nsm.RemoteReply, error) {
	m.remote = r
	return nsm.RemoteReply{Tunnel: tunnelOfA, Context: nsm.Context{Client: netip.MustParsePrefix("10.0.0.2/30"), Endpoint: netip.MustParsePrefix("10.0.0.1/30")}}, m.err
}
func (m *recorder) End(_ context.Context, k nsm.Key) error {
	m.ended = k
	return m.err
}
func (m *recorder) Lost(_ context.Context, peer string, held []nsm.Key) {
	m.ended.Peer, m.held = peer, held
}
func (m *recorder) Held(string) []nsm.Key { return []nsm.Key{{ID: "1", Service: "s"}} }

var comparers = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func TestPods(t *testing.T) {
	dir, m := t.TempDir(), &recorder{}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	ready := make(chan struct{})
	go func() { close(ready); served <- ServePods(ctx, dir, m) }()
	<-ready
	clients := filepath.Join(dir, ClientSocket)
	own, err := crossconnect.Own()
	if err != nil {
		t.Fatal(err)
	}
	want := nsm.Request{ID: "1", Service: "s", Namespace: own, Interfaces: []nsm.Interface{{Type: nsm.Kernel, Preference: 2, Parameters: map[string]string{"name": "x"}}}}
	var reply nsm.Reply
	for err = ErrUnreachable; errors.Is(err, ErrUnreachable) && t.Context().Err() == nil; {
		reply, err = Request(ctx, clients, want)
	}
	if diff := cmp.Diff(want, m.request); diff != "" || err != nil || reply.Parameters["a"] != "b" || reply.Interface.Parameters["name"] != "nsm0" {
		t.Error(err, reply, diff)
	}
	for _, kind := range []error{nsm.ErrNotFound, nsm.ErrExists, nsm.ErrInvalid, nsm.ErrAborted} {
		m.err = kind
		if _, err := Request(ctx, clients, want); !errors.Is(err, kind) {
			t.Errorf("%v became %v", kind, err)
		}
	}
	m.err = nil
	for _, bad := range []nsm.Request{{}, {ID: "1", Service: "s"}, {ID: "1", Namespace: own}, {ID: "1", Service: "s", Namespace: own + 1}} {
		if _, err := Request(ctx, clients, bad); !errors.Is(err, nsm.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	m.request.Namespace = 0
	if err := Disconnect(ctx, clients, nsm.Key{ID: "1", Service: "s"}); err != nil || m.ended != (nsm.Key{ID: "1", Service: "s"}) || m.request.Namespace != own {
		t.Error(m.ended, m.request.Namespace, err)
	}
	endpoints := filepath.Join(dir, EndpointSocket)
	e := nsm.Endpoint{Service: "s", Name: "n", Socket: "/s"}
	if err := errors.Join(Advertise(ctx, endpoints, "1", e), Remove(ctx, endpoints, "1", e)); err != nil {
		t.Error(err)
	}
	if err := Advertise(ctx, endpoints, "1", nsm.Endpoint{Service: "s", Name: "n"}); err == nil || !strings.Contains(err.Error(), "socket_location") {
		t.Error(err)
	}
	if info, err := os.Stat(clients); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	// Rubbish on the socket ends that connection alone.
	if conn, err := net.Dial("unix", clients); err != nil {
		t.Error(err)
	} else {
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n\x00\xff"))
		_ = conn.Close()
	}
	if _, err := Request(ctx, clients, want); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func certificates(t *testing.T) (mine, strangers TLS) {
	t.Helper()
	dir := t.TempDir()
	for _, who := range []string{"mine", "strangers"} {
		ca, err := pki.NewAuthority(dir, who, who)
		if err == nil {
			err = ca.Issue(dir, who+"-manager", &x509.Certificate{DNSNames: []string{ServerName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	mine = TLS{file("mine.crt"), file("mine-manager.crt"), file("mine-manager.key")}
	return mine, TLS{file("mine.crt"), file("strangers-manager.crt"), file("strangers-manager.key")}
}

// TestNodesCertificates: a certificate with a node's name speaks for that node's manager alone, in both directions. One with none is
// of before there were names: of who calls with it, and names no node, the address is known.
func TestNodesCertificates(t *testing.T) {
	for _, test := range []struct {
		names []string
		node  string
		want  bool
		peer  string // who calls where no node is named
	}{
		{[]string{ServerName}, "a", true, "127.0.0.1"},
		{[]string{ServerName, "a." + ServerName}, "a", true, "a"},
		{[]string{ServerName, "A.Calico-NSM"}, "a", true, "a"},
		{[]string{ServerName, "a." + ServerName}, "b", false, "a"},
		{[]string{ServerName, "a." + ServerName, "b." + ServerName}, "b", true, "a"},
	} {
		dir := t.TempDir()
		ca, err := pki.NewAuthority(dir, "ca", "ca")
		if err == nil {
			err = ca.Issue(dir, "m", &x509.Certificate{DNSNames: test.names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
		}
		if err == nil {
			err = ca.Issue(dir, "any", &x509.Certificate{DNSNames: []string{ServerName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
		}
		if err != nil {
			t.Fatal(err)
		}
		file := func(name string) string { return filepath.Join(dir, name) }
		named, older := TLS{file("ca.crt"), file("m.crt"), file("m.key")}, TLS{file("ca.crt"), file("any.crt"), file("any.key")}
		for _, side := range []struct{ server, client TLS }{{named, older}, {older, named}} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			served, m, peer := make(chan error, 1), &recorder{}, Peer{test.node, l.Addr().String(), side.client}
			go func() { served <- ServePeers(ctx, l, side.server, m) }()
			_, err = peer.Held(ctx, "x"+test.node, nil)
			if side.client == named {
				if err := peer.Close(ctx, "", nsm.Key{ID: "1"}); err != nil || m.ended.Peer != test.peer {
					t.Errorf("%v that names no node is %q: %v", test.names, m.ended.Peer, err)
				}
				_, err = peer.Held(ctx, test.node, nil)
			}
			if (err == nil) != test.want {
				t.Errorf("%v for %q, as server %t: %v", test.names, test.node, side.server == named, err)
			}
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	}
}

func TestPeers(t *testing.T) {
	mine, strangers := certificates(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &recorder{}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- ServePeers(ctx, l, mine, m) }()
	peer := Peer{"a", l.Addr().String(), mine}
	want := nsm.RemoteRequest{
		ID: "1", Service: "s", Endpoint: "e", Requestor: "b",
		VXLAN:   []nsm.VXLANOffer{{IP: netip.MustParseAddr("192.0.2.2"), Port: 12345, Excluded: []nsm.VNIs{{First: 0, Count: 17}, {First: 33, Count: 1<<24 - 33}}}},
		Context: nsm.ContextRequest{Addressed: true, Excluded: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Additional: []nsm.PrefixRequest{{V6: true, Bits: 64}}},
	}
	reply, err := peer.Request(ctx, want)
	want.Context.DefaultRoute = true // the requestor decides
	if diff := cmp.Diff(want, m.remote, comparers); diff != "" || err != nil {
		t.Error(err, diff)
	}
	turned := nsm.Tunnel{VNI: 7, Local: tunnelOfA.Remote, Remote: tunnelOfA.Local, Port: 4795}
	if reply.Tunnel != turned || reply.Context.Client != netip.MustParsePrefix("10.0.0.2/30") {
		t.Error(reply)
	}
	m.err = nsm.ErrNotFound
	if _, err := peer.Request(ctx, want); !errors.Is(err, nsm.ErrAborted) || errors.Is(err, ErrUnreachable) {
		t.Error("a refusal:", err)
	}
	m.err = nil
	if err := peer.Close(ctx, "b", nsm.Key{ID: "1", Service: "s"}); err != nil || m.ended != (nsm.Key{ID: "1", Service: "s", Peer: "b"}) {
		t.Error(m.ended, err)
	}
	keys, err := peer.Held(ctx, "b", []nsm.Key{{ID: "2", Service: "s"}})
	if len(keys) != 1 || keys[0].ID != "1" || len(m.held) != 1 || m.held[0].ID != "2" || err != nil {
		t.Error(keys, m.held, err)
	}
	err = peer.with(func(c api.NSM2NSMClient) error {
		answer, err := c.RequestProxyConnection(ctx, &api.ProxyConnectionRequest{RequestId: "9"})
		if answer.GetAccepted() || answer.GetRequestId() != "9" || !strings.Contains(answer.GetAdmissionError(), "RequestRemoteConnection") {
			t.Error(answer)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	m.remote = nsm.RemoteRequest{}
	for _, stranger := range []TLS{strangers, {mine.CAFile, strangers.CertFile, strangers.KeyFile}} { // who doesn't know us, and whom we don't know
		if _, err := (Peer{"a", peer.Address, stranger}).Request(ctx, want); !errors.Is(err, ErrNeverReached) || m.remote.ID != "" {
			t.Error("a stranger's certificate was taken, or its call is said to have gone out:", err)
		}
	}
	conn, err := tls.Dial("tcp", peer.Address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err == nil {
		if _, err = conn.Read(make([]byte, 1)); err == nil {
			_, err = conn.Read(make([]byte, 1000))
		}
		_ = conn.Close()
	}
	if err == nil {
		t.Error("somebody without a certificate was let in")
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestEndpoint(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "%2e%2e?nse#.sock") // not what a URL makes of it
	if _, err := AskEndpoint(t.Context(), socket, "1", "s"); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if err := os.WriteFile(socket, nil, 0o600); err != nil { // a stale one
		t.Fatal(err)
	}
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- ServeEndpoint(ctx, l, 77, func(_, service string) error {
			if service != "s" {
				return nsm.ErrNotFound
			}
			return nil
		})
	}()
	if inode, err := AskEndpoint(ctx, socket, "1", "s"); inode != 77 || err != nil {
		t.Error(inode, err)
	}
	if _, err := AskEndpoint(ctx, socket, "1", "other"); !errors.Is(err, nsm.ErrNotFound) {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestPort(t *testing.T) {
	for port := range 1 << 16 {
		if port == 0 {
			continue
		}
		if got, err := parsePort(formatPort(uint16(port))); int(got) != port || err != nil {
			t.Fatal(port, got, err)
		}
	}
	for text, want := range map[string]uint16{"80": '8'<<8 | '0', "4795": 4795, "000": 0} {
		if got, err := parsePort([]byte(text)); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "x", "1", "123456", "99999", "\x00\x00"} {
		if got, err := parsePort([]byte(bad)); err == nil {
			t.Errorf("%q is %d", bad, got)
		}
	}
}
