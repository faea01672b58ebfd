// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
	"github.com/calico-go/calico/test/long"
)

// asks is a request of the manager of a host.
func asks(h *lab.Host, requestor string) nsm.RemoteRequest {
	return nsm.RemoteRequest{
		ID: "1", Service: "vpn", Requestor: requestor, VXLAN: []nsm.VXLANOffer{{IP: h.IPv4(), Port: 4795}}, Context: nsm.ContextRequest{Addressed: true},
	}
}

// TestSameID: two managers use one request_id, and each closes its own connection. What a manager names is what its certificate says.
func TestSameID(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b", "c")
	a, b, c := r.lab.Host("a"), r.lab.Host("b"), r.lab.Host("c")
	gw := a.Pod("gw")
	r.serve(gw, "vpn", "-pools", "10.60.0.0/24")
	peers := map[string]nsmgrpc.Peer{"b": r.caller(b, a, "b.calico-nsm"), "c": r.caller(c, a, "c.calico-nsm"), "": r.caller(c, a)}
	hosts := map[string]*lab.Host{"b": b, "c": c, "": c}
	vnis := map[uint32]string{}
	key := nsm.Key{ID: "1", Service: "vpn"}
	for name, p := range peers {
		first, err := p.Request(t.Context(), asks(hosts[name], name))
		again, err2 := p.Request(t.Context(), asks(hosts[name], name))
		if err := errors.Join(err, err2); err != nil || again.Tunnel != first.Tunnel || vnis[first.Tunnel.VNI] != "" {
			t.Fatalf("manager %q: %v, then %v: %v", name, first.Tunnel, again.Tunnel, err)
		}
		vnis[first.Tunnel.VNI] = name + " has it"
		granted := asks(hosts[name], name)
		granted.VXLAN[0].Excluded = []nsm.VNIs{{First: first.Tunnel.VNI, Count: 1}}
		if _, err := p.Request(t.Context(), granted); err == nil || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("manager %q excludes the VNI that it was granted: %v", name, err)
		}
	}
	if _, err := peers["b"].Request(t.Context(), asks(b, "c")); err == nil {
		t.Error("manager b asked as c")
	}
	if err := peers["b"].Close(t.Context(), "c", key); err == nil {
		t.Error("manager b closed as c")
	}
	if err := peers["b"].Close(t.Context(), "b", key); err != nil || r.connections("a") != 2 {
		t.Error(r.connections("a"), "connections are left:", err)
	}
	for _, name := range []string{"c", ""} {
		if held, err := peers[name].Held(t.Context(), name, []nsm.Key{key}); err != nil || len(held) != 1 {
			t.Errorf("manager %q has %v: %v", name, held, err)
		}
		if err := peers[name].Close(t.Context(), name, key); err != nil {
			t.Error(err)
		}
	}
	r.nothingLeft([]string{"a"}, gw)
	before := lab.Tail(r.process("nse-gw").Log, 100)
	impossible := asks(b, "b")
	impossible.VXLAN[0].IP = netip.MustParseAddr("fd00::1")
	if _, err := peers["b"].Request(t.Context(), impossible); err == nil || lab.Tail(r.process("nse-gw").Log, 100) != before {
		t.Error("the endpoint was asked for what can't be:", err)
	}
}

// TestUnused: what was asked of another manager and isn't used is closed, at once and until that is answered.
func TestUnused(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b")
	pod, b := r.lab.Host("a").Pod("pod"), r.lab.Host("b")
	if err := r.process("nsm-b").Kill(); err != nil {
		t.Fatal(err)
	}
	f := r.newForeign(b)
	defer r.register("x", "b", f.addr)()
	node := b.IPv4().AsSlice()
	good := func(change func(*api.RemoteConnectionReply, *api.Vxlan_Parameters)) func(*api.RemoteConnectionRequest) answer {
		return func(in *api.RemoteConnectionRequest) answer {
			out := reply(in, node)
			change(out, out.GetRemoteMechanismParameters().GetVxlanParameters())
			return answer{marshal(t, out), nil}
		}
	}
	for name, answers := range map[string]func(*api.RemoteConnectionRequest) answer{
		"garbage":  func(*api.RemoteConnectionRequest) answer { return answer{[]byte{0xff, 0xff}, nil} },
		"an error": func(*api.RemoteConnectionRequest) answer { return answer{nil, status.Error(codes.Internal, "x")} },
		"half": func(in *api.RemoteConnectionRequest) answer {
			b := marshal(t, reply(in, node))
			return answer{b[:len(b)-3], nil}
		},
		"no more than yes": good(func(out *api.RemoteConnectionReply, _ *api.Vxlan_Parameters) { proto.Reset(out); out.Accepted = true }),
		"no, though it has one of before": good(func(out *api.RemoteConnectionReply, _ *api.Vxlan_Parameters) {
			proto.Reset(out)
			out.AdmissionError = "already exists"
		}),
		"no parameters": good(func(out *api.RemoteConnectionReply, _ *api.Vxlan_Parameters) { out.RemoteMechanismParameters = nil }),
		"another mechanism": good(func(out *api.RemoteConnectionReply, _ *api.Vxlan_Parameters) {
			out.RemoteMechanismType = api.RemoteMechanismType_GRE
		}),
		"another request_id": good(func(out *api.RemoteConnectionReply, _ *api.Vxlan_Parameters) { out.RequestId = "2" }),
		"no address":         good(func(_ *api.RemoteConnectionReply, v *api.Vxlan_Parameters) { v.RequesteeIp = []byte{0, 0, 0, 0} }),
		"our address":        good(func(_ *api.RemoteConnectionReply, v *api.Vxlan_Parameters) { v.RequesteeIp = v.RequestorIp }),
		"VNI 0":              good(func(_ *api.RemoteConnectionReply, v *api.Vxlan_Parameters) { v.Vni = 0 }),
		"VNI 2^24":           good(func(_ *api.RemoteConnectionReply, v *api.Vxlan_Parameters) { v.Vni = 1 << 24 }),
		"an excluded VNI":    good(func(_ *api.RemoteConnectionReply, v *api.Vxlan_Parameters) { v.Vni-- }),
	} {
		asked := make(chan error, 1)
		go func() { asked <- r.ask("a", "x", "1") }()
		c, in := f.request()
		c.answer <- answers(in)
		c = f.next("CloseRemoteConnection")
		closes := &api.RemoteConnectionClose{}
		if err := proto.Unmarshal(c.body, closes); err != nil || closes.GetRequestId() != in.GetRequestId() || closes.GetNetworkServiceName() != "x" {
			t.Errorf("%s: %v is closed: %v", name, closes, err)
		}
		if name == "garbage" { // this manager can't close it now
			c.answer <- answer{nil, status.Error(codes.Unavailable, "later")}
			c = f.next("CloseRemoteConnection")
		}
		c.answer <- answer{nil, nil}
		if err := <-asked; err == nil {
			t.Errorf("%s: connected", name)
		}
		eventually.Nil(t, "nothing is left", func() error {
			if n := r.connections("a"); n > 0 {
				return fmt.Errorf("%d connections are", n)
			}
			return nil
		})
	}

	client, err := pod.Start("gone", filepath.Join(r.bin, "nsmctl"), "request", "-service", "x", "-directory", r.directory("a"), "-addressed")
	if err != nil {
		t.Fatal(err)
	}
	c, in := f.request()
	if err := client.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.ended
	c.answer <- answer{marshal(t, reply(in, node)), nil}
	c = f.next("CloseRemoteConnection")
	c.answer <- answer{nil, nil}
	r.nothingLeft([]string{"a"}, pod)
}

// TestUnusedElsewhere: a client gets no other endpoint before the manager that may have its connection was told.
func TestUnusedElsewhere(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b", "c")
	if err := r.process("nsm-b").Kill(); err != nil {
		t.Fatal(err)
	}
	r.serve(r.lab.Host("c").Pod("gw"), "vpn", "-pools", "10.60.0.0/24")
	f := r.newForeign(r.lab.Host("b"))
	defer r.register("vpn", "b", f.addr)()
	var asked chan error
	var c call
	for i := 0; c.answer == nil; i++ { // until one is to be connected to b first
		asked = make(chan error, 1)
		go func() { asked <- r.ask("a", "vpn", fmt.Sprint(i)) }()
		select {
		case c = <-f.calls:
		case err := <-asked:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	others := r.connections("a") - 1
	c.answer <- answer{nil, status.Error(codes.Internal, "x")}
	c = f.next("CloseRemoteConnection")
	c.answer <- answer{nil, status.Error(codes.Unavailable, "later")}
	if err := <-asked; err == nil {
		t.Error("connected elsewhere while b may have the connection")
	}
	c = f.next("CloseRemoteConnection")
	c.answer <- answer{nil, nil}
	eventually.Nil(t, "it is closed", func() error {
		if n := r.connections("a"); n != others {
			return fmt.Errorf("%d connections are, want %d", n, others)
		}
		return nil
	})
}

// TestDocumentAlone: a manager that has the calls of the document alone gets connections, which end with its entry in the registry.
func TestDocumentAlone(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b")
	pod, b := r.lab.Host("a").Pod("pod"), r.lab.Host("b")
	if err := r.process("nsm-b").Kill(); err != nil {
		t.Fatal(err)
	}
	f := r.newForeign(b)
	forget := r.register("x", "b", f.addr)
	asked := make(chan error, 1)
	go func() {
		_, err := r.request(t.Context(), pod, "x")
		asked <- err
	}()
	c, in := f.request()
	c.answer <- answer{marshal(t, reply(in, b.IPv4().AsSlice())), nil}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	f.next("MonitorRemoteConnections").answer <- answer{nil, status.Error(codes.Unimplemented, "unknown method")}
	f.next("MonitorRemoteConnections").answer <- answer{nil, status.Error(codes.Unimplemented, "unknown method")}
	if out := r.ip(pod, "-o", "link"); !strings.Contains(out, "nsm0") {
		t.Error("the connection has ended:", out)
	}
	forget()
	go func() { // what else is asked is unknown
		for c := range f.calls {
			c.answer <- answer{nil, status.Error(codes.Unimplemented, "unknown method")}
		}
	}()
	eventually.Nil(t, "the connection ends", func() error {
		if out := r.ip(pod, "-o", "link"); strings.Contains(out, "nsm0") {
			return errors.New(out)
		}
		return nil
	})
	if log := r.log("a"); strings.Contains(log, "another manager can't be asked") {
		t.Error(log)
	}
}

// TestStrangersCalls: who calls may speak for the namespace that it is in alone.
func TestStrangersCalls(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a")
	a := r.lab.Host("a")
	gw, near := a.Pod("gw"), a.Pod("near")
	r.serve(gw, "vpn", "-pools", "10.60.0.0/24")
	clients, endpoints := filepath.Join(r.directory("a"), nsmgrpc.ClientSocket), filepath.Join(r.directory("a"), nsmgrpc.EndpointSocket)
	inode := inodeOf(t, near)
	if _, err := nsmgrpc.Request(t.Context(), clients, nsm.Request{ID: "1", Service: "vpn", Namespace: inode}); !errors.Is(err, nsm.ErrInvalid) {
		t.Error("a connection was asked for another pod:", err)
	}
	reply := r.connect(near, "vpn")
	if err := nsmgrpc.Disconnect(t.Context(), clients, nsm.Key{ID: fmt.Sprintf("netns-%d", inode), Service: "vpn"}); !errors.Is(err, nsm.ErrInvalid) {
		t.Error("another pod's connection was closed:", err)
	}
	r.reaches(near, reply)
	if err := nsmgrpc.Remove(t.Context(), endpoints, "1", nsm.Endpoint{Service: "vpn", Name: "gw"}); err == nil {
		t.Error("another pod's endpoint was removed")
	}
	// An endpoint that has its connections end in another's namespace.
	own, err := crossconnect.Own()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(r.directory("a"), "liar.sock")
	l, err := nsmgrpc.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- nsmgrpc.ServeEndpoint(ctx, l, inodeOf(t, gw), func(string, string) error { return nil })
	}()
	if err := nsmgrpc.Advertise(ctx, endpoints, "1", nsm.Endpoint{Service: "lie", Name: "liar", Socket: socket, Interfaces: []nsm.Interface{{Parameters: map[string]string{nsm.ParamPools: "10.61.0.0/24"}}}}); err != nil {
		t.Error(err)
	}
	if err := r.ask("a", "lie", "1"); err == nil || !strings.Contains(err.Error(), fmt.Sprint("has advertised from ", own)) {
		t.Error("an endpoint ends its connections in another pod:", err)
	}
	if err := nsmgrpc.Advertise(ctx, endpoints, "1", nsm.Endpoint{Service: "vpn", Name: "gw", Socket: socket}); err == nil || !strings.Contains(err.Error(), "another pod's") {
		t.Error("another pod's endpoint was taken over:", err)
	}
	if err := nsmgrpc.Advertise(ctx, endpoints, "1", nsm.Endpoint{Service: "lie", Name: "relative", Socket: "liar.sock"}); err == nil {
		t.Error("a socket without a directory was taken")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestDefaultRoute: a service's default route takes the place of the pod's, until the client closes the connection.
func TestDefaultRoute(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a")
	gw, near := r.lab.Host("a").Pod("gw"), r.lab.Host("a").Pod("near")
	r.serve(gw, "vpn", "-pools", "10.60.0.0/24", "-routes", "0.0.0.0/0")
	before := r.podNetwork(near)
	by := func() string { return r.ip(near, "route", "get", "203.0.113.9") }
	if !strings.Contains(by(), "dev eth0") {
		t.Fatal(by())
	}
	reply := r.connect(near, "vpn", "-default-route", "-additional", "4/28")
	if !strings.Contains(by(), "dev nsm0") {
		t.Error("the default route is not the service's:", by())
	}
	extra := netip.MustParsePrefix(reply["additional_prefixes"])
	r.ip(near, "addr", "add", extra.Addr().Next().String()+"/32", "dev", "lo")
	if out := r.ip(gw, "route", "get", extra.Addr().Next().String()); !strings.Contains(out, "dev nsm0") {
		t.Error("the endpoint sends elsewhere what it answers an additional prefix:", out)
	}
	if out, err := near.Exec(t.Context(), filepath.Join(r.bin, "nsmctl"), "close", "-service", "vpn", "-directory", r.directory("a")); err != nil {
		t.Error(err, string(out))
	}
	if after := r.podNetwork(near); after != before || !strings.Contains(by(), "dev eth0") {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	r.nothingLeft([]string{"a"}, gw, near)
	if err := r.process("nsm-a").Kill(); err != nil {
		t.Fatal(err)
	}
	r.manage("a", "-keep-default-routes=true")
	if _, err := r.request(t.Context(), near, "vpn", "-default-route"); err == nil || !strings.Contains(err.Error(), "-keep-default-routes") {
		t.Error("a pod's default route was to be left alone:", err)
	}
}

// TestRegistry: entries hang on the manager's lease, and are there again where they were lost. Managers that aren't there cost little.
func TestRegistry(t *testing.T) {
	long.Test(t)
	r := newRig(t, "", "a", "b")
	r.serve(r.lab.Host("b").Pod("gw"), "vpn", "-pools", "10.60.0.0/24")
	c := r.etcd()
	lease := func(not int64) (id int64) {
		t.Helper()
		eventually.Nil(t, "the endpoint is registered by another lease", func() error {
			got, err := c.Get(t.Context(), "/calico/nsm/v1/endpoint/vpn/b/gw")
			if err != nil || len(got.Kvs) != 1 {
				return fmt.Errorf("%v: %w", got.Kvs, err)
			}
			if id = got.Kvs[0].Lease; id == 0 || id == not {
				return fmt.Errorf("it is by lease %d", id)
			}
			return nil
		})
		return id
	}
	first := lease(0)
	if ttl, err := c.TimeToLive(t.Context(), clientv3.LeaseID(first)); err != nil || ttl.GrantedTTL > 60 {
		t.Error(ttl, err)
	}
	if err := r.process("nsm-b").Kill(); err != nil {
		t.Fatal(err)
	}
	r.manage("b")
	second := lease(first)
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(second)); err != nil {
		t.Fatal(err)
	}
	lease(second)
	for i := range 9 {
		r.register("vpn", fmt.Sprint("dead", i), "172.20.1.99:5005")
	}
	r.register("lost", "b", "172.20.1.2:5005")
	for i := range 5 {
		if err := r.ask("a", "vpn", fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	eventually.Nil(t, "the entry of an endpoint that b doesn't have is gone", func() error {
		got, err := c.Get(t.Context(), "/calico/nsm/v1/endpoint/lost/b/gw")
		if err == nil && got.Count > 0 {
			err = errors.New("it is there")
		}
		return err
	})
}

func inodeOf(t *testing.T, p *lab.Pod) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(p.Namespace().Path(), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}
