// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nsm"
)

// FuzzRemoteRequest: whatever a peer sends is taken or refused.
func FuzzRemoteRequest(f *testing.F) {
	one := nsm.VXLANOffer{IP: tunnelOfA.Local, Port: 4795, Excluded: []nsm.VNIs{{First: 1, Count: 16}}}
	r := nsm.RemoteRequest{ID: "1", Service: "s", VXLAN: []nsm.VXLANOffer{one}, Context: nsm.ContextRequest{Addressed: true, Additional: []nsm.PrefixRequest{{Bits: 28}}}}
	good := marshal(f, remoteRequestTo(r))
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(marshal(f, remoteRequestTo(nsm.RemoteRequest{ID: "1", Service: "s", VXLAN: slices.Repeat(r.VXLAN, 5000)})))
	r.VXLAN[0].IP = netip.IPv4Unspecified()
	f.Add(marshal(f, remoteRequestTo(r)))
	r.Context.Excluded = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
	f.Add(marshal(f, remoteRequestTo(r)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in api.RemoteConnectionRequest
		if proto.Unmarshal(data, &in) != nil {
			return
		}
		r, err := remoteRequestFrom(&in)
		if err != nil {
			if !errors.Is(err, nsm.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		mustBePlain(t, r.Context.Excluded...)
		again, err := remoteRequestFrom(remoteRequestTo(r))
		again.Others = r.Others // what isn't built here isn't asked for
		if again.Context.DefaultRoute = r.Context.DefaultRoute; err != nil || cmp.Diff(r, again, comparers) != "" {
			t.Errorf("%v\n%s", err, cmp.Diff(r, again, comparers))
		}
		var l nsm.Ledger
		if tunnel, err := l.Answer(r, netip.MustParseAddr("192.0.2.9")); err == nil && (tunnel.VNI == 0 || tunnel.VNI > nsm.MaxVNI || tunnel.Remote.IsUnspecified() || tunnel.Remote.IsMulticast()) {
			t.Errorf("%+v", tunnel)
		}
		if _, err := nsm.Allot(nsm.Offer{}, r.Context, nil); err != nil && !errors.Is(err, nsm.ErrAborted) {
			t.Error(err)
		}
		if text := r.Text(); len(text) > 1000*100 {
			t.Errorf("%d bytes to be remembered", len(text))
		}
	})
}

func marshal(f *testing.F, m proto.Message) []byte {
	f.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

// mustBePlain: the kernel's edge takes such an address for another family's.
func mustBePlain(t *testing.T, prefixes ...netip.Prefix) {
	t.Helper()
	for _, p := range prefixes {
		if p.IsValid() && p.Addr().Is4In6() {
			t.Error(p)
		}
	}
}

// calledBy is of a call by who is in a network namespace.
func calledBy(namespace uint64) context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{AuthInfo: pod{namespace: namespace}})
}

// FuzzRequest: what a manager hears of a client makes sense, and is what a client of ours would say.
func FuzzRequest(f *testing.F) {
	good := marshal(f, &api.ConnectionRequest{RequestId: "1", NetworkServiceName: "s", LinuxNamespace: "4026531840", Interface: interfacesTo([]nsm.Interface{{Type: nsm.Kernel, Parameters: map[string]string{"a": "b"}}})})
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		var in api.ConnectionRequest
		if proto.Unmarshal(data, &in) != nil {
			return
		}
		m := &recorder{}
		own, _ := parseNamespace(in.GetLinuxNamespace())
		if _, err := (podServer{m: m}).RequestConnection(calledBy(own), &in); err != nil {
			return
		}
		if r := m.request; r.Check() != nil || r.Namespace == 0 || cmp.Diff(r.Interfaces, interfacesFrom(interfacesTo(r.Interfaces)), comparers) != "" {
			t.Errorf("%+v", r)
		}
	})
}

// FuzzEndpoint: what a manager hears of an endpoint can be a key of etcd's, and is taken away by what it was advertised by.
func FuzzEndpoint(f *testing.F) {
	good := marshal(f, &api.EndpointAdvertiseRequest{NetworkEndpoint: endpointTo(nsm.Endpoint{Service: "a/b", Name: "n", Socket: "/s", Interfaces: []nsm.Interface{{Parameters: map[string]string{nsm.ParamPools: "10.0.0.0/8"}}}})})
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		var in api.EndpointAdvertiseRequest
		if proto.Unmarshal(data, &in) != nil {
			return
		}
		answer, err := podServer{m: &recorder{}}.AdvertiseEndpoint(calledBy(1), &in)
		if err != nil || answer.GetAccepted() == (answer.GetAdmissionError() != "") {
			t.Fatal(answer, err)
		}
		if !answer.GetAccepted() {
			return
		}
		e := endpointFrom(in.GetNetworkEndpoint())
		key := model.NetworkServiceEndpointKey{Service: e.Service, Host: "h", Name: e.Name}
		if got, err := model.ParseKey(key.Path()); got != key || err != nil {
			t.Errorf("%q is %v, %v", key.Path(), got, err)
		}
		gone, err := podServer{m: &recorder{}}.RemoveEndpoint(calledBy(1), &api.EndpointRemoveRequest{NetworkEndpoint: endpointTo(e)})
		if err != nil || !gone.GetAccepted() {
			t.Error(gone, err)
		}
	})
}

// FuzzRemoteReply: what a peer answers is what it could have chosen.
func FuzzRemoteReply(f *testing.F) {
	c := nsm.Context{Client: netip.MustParsePrefix("10.0.0.2/30"), Endpoint: netip.MustParsePrefix("10.0.0.1/30"), Routes: []netip.Prefix{netip.MustParsePrefix("fd00::/8")}}
	good := marshal(f, remoteReplyTo("1", nsm.RemoteReply{Tunnel: tunnelOfA, Context: c}))
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		var in api.RemoteConnectionReply
		if proto.Unmarshal(data, &in) != nil {
			return
		}
		r, err := remoteReplyFrom(in.GetRequestId(), &in)
		if err != nil {
			return
		}
		if !r.Tunnel.Remote.IsGlobalUnicast() && !r.Tunnel.Remote.IsLinkLocalUnicast() {
			t.Error(r.Tunnel)
		}
		mustBePlain(t, append(append(r.Context.Routes, r.Context.Prefixes()...), r.Context.Endpoint)...)
		r.Tunnel.Local, r.Tunnel.Remote = r.Tunnel.Remote, r.Tunnel.Local
		again, err := remoteReplyFrom("1", remoteReplyTo("1", r))
		if err != nil && !nsm.IsNode(r.Tunnel.Remote) {
			return // this node's address, whatever the peer takes it for: the manager knows it
		}
		again.Tunnel.Local, again.Tunnel.Remote = again.Tunnel.Remote, again.Tunnel.Local
		if err != nil || cmp.Diff(r, again, comparers) != "" {
			t.Errorf("%v\n%s", err, cmp.Diff(r, again, comparers))
		}
	})
}
