// SPDX-License-Identifier: Apache-2.0

// Package nsmgrpc carries the calls of network service connections over gRPC: between clients, endpoints and the
// manager of their node over unix sockets, between managers over TCP with mutual TLS. The messages are in api/nsm;
// pkg/nsm has the logic behind the calls.
package nsmgrpc

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/nsm"
)

// labelRequestor is the label of a request that names the asking manager's node.
const labelRequestor = "calico/requestor"

func interfacesFrom(list []*api.Interface) []nsm.Interface {
	var out []nsm.Interface
	for _, i := range list {
		out = append(out, nsm.Interface{
			Type: nsm.InterfaceType(i.GetType()), Preference: int(i.GetPreference()), Parameters: i.GetParmeters().GetInterfaceParameters(),
		})
	}
	return out
}

func interfaceTo(i nsm.Interface) *api.Interface {
	return &api.Interface{
		Type: api.InterfaceType(i.Type), Preference: api.InterfacePreference(i.Preference),
		Parmeters: &api.InterfaceParameters{InterfaceParameters: i.Parameters},
	}
}

func interfacesTo(list []nsm.Interface) []*api.Interface {
	var out []*api.Interface
	for _, i := range list {
		out = append(out, interfaceTo(i))
	}
	return out
}

func endpointFrom(e *api.NetworkServiceEndpoint) nsm.Endpoint {
	return nsm.Endpoint{
		Service: e.GetNetworkServiceName(), Host: e.GetNetworkServiceHost(), Name: e.GetNseProviderName(),
		Socket: e.GetSocketLocation(), Interfaces: interfacesFrom(e.GetInterface()),
	}
}

func endpointTo(e nsm.Endpoint) *api.NetworkServiceEndpoint {
	return &api.NetworkServiceEndpoint{
		NetworkServiceName: e.Service, NetworkServiceHost: e.Host, NseProviderName: e.Name, SocketLocation: e.Socket,
		Interface: interfacesTo(e.Interfaces),
	}
}

// parseNamespace parses the inode of a namespace.
func parseNamespace(text string) (uint64, error) {
	inode, err := strconv.ParseUint(text, 10, 64)
	if err != nil || inode == 0 {
		return 0, fmt.Errorf("%w: linux_namespace %.40q: it must be the inode of /proc/self/ns/net, a decimal number", nsm.ErrInvalid, text)
	}
	return inode, nil
}

func requestFrom(r *api.ConnectionRequest) (nsm.Request, error) {
	inode, err := parseNamespace(r.GetLinuxNamespace())
	return nsm.Request{ID: r.GetRequestId(), Service: r.GetNetworkServiceName(), Namespace: inode, Interfaces: interfacesFrom(r.GetInterface())}, err
}

func prefixFrom(p *api.Prefix) (netip.Prefix, error) {
	a, ok := netip.AddrFromSlice(p.GetPrefix())
	family, length := p.GetPrefixRequest().GetAddressFamily(), p.GetPrefixRequest().GetLen()
	if !ok || a.Is4In6() || a.Is4() != (family == 1) || a.Is6() != (family == 2) || length < 0 || length > int64(a.BitLen()) {
		return netip.Prefix{}, fmt.Errorf("%w: a prefix of family %d, length %d and %d bytes: want 1 and 4 bytes, or 2 and 16", nsm.ErrInvalid, family, length, len(p.GetPrefix()))
	}
	return netip.PrefixFrom(a, int(length)), nil
}

func prefixesFrom(list []*api.Prefix) (out []netip.Prefix, err error) {
	for _, p := range list {
		q, err := prefixFrom(p)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

func family(a netip.Addr) int32 {
	if a.Is4() {
		return 1
	}
	return 2
}

func prefixTo(p netip.Prefix) *api.Prefix {
	if !p.IsValid() {
		return nil
	}
	return &api.Prefix{PrefixRequest: &api.PrefixRequest{AddressFamily: family(p.Addr()), Len: int64(p.Bits())}, Prefix: p.Addr().AsSlice()}
}

func prefixesTo(list []netip.Prefix) (out []*api.Prefix) {
	for _, p := range list {
		out = append(out, prefixTo(p))
	}
	return out
}

// parsePort parses two bytes in big-endian order, or more bytes as digits.
func parsePort(b []byte) (uint16, error) {
	n, err := strconv.ParseUint(string(b), 10, 16)
	if len(b) == 2 {
		n, err = uint64(binary.BigEndian.Uint16(b)), nil
	}
	if err != nil || n == 0 || len(b) < 2 {
		return 0, fmt.Errorf("%w: a port of %d bytes: want 2 bytes, the high one first, or its digits", nsm.ErrInvalid, len(b))
	}
	return uint16(n), nil
}

func formatPort(port uint16) []byte { return binary.BigEndian.AppendUint16(nil, port) }

func vnisFrom(list []*api.VniRange) (out []nsm.VNIs, err error) {
	for _, r := range list {
		if r.GetVni() < 0 || r.GetCount() < 0 {
			return nil, fmt.Errorf("%w: exclude_vnis: %d VNIs from %d on", nsm.ErrInvalid, r.GetCount(), r.GetVni())
		}
		out = append(out, nsm.VNIs{First: uint32(r.GetVni()), Count: uint32(r.GetCount())})
	}
	return out, nil
}

func contextRequestFrom(r *api.ConnectionContextRequest) (nsm.ContextRequest, error) {
	excluded, err := prefixesFrom(r.GetExcludedPrefixes())
	out := nsm.ContextRequest{Addressed: r.GetConnectionAddressed(), Excluded: excluded, DefaultRoute: true} // the requestor knows which client asked for it
	for _, p := range r.GetAdditionalPrefixRequests() {
		want := nsm.PrefixRequest{V6: p.GetAddressFamily() == 2, Bits: int(min(max(p.GetLen(), 0), 200))}
		if f := p.GetAddressFamily(); err == nil && f != 1 && f != 2 {
			err = fmt.Errorf("%w: address family %d: want 1 or 2", nsm.ErrInvalid, f)
		}
		out.Additional = append(out.Additional, want)
	}
	return out, err
}

func contextRequestTo(r nsm.ContextRequest) *api.ConnectionContextRequest {
	out := &api.ConnectionContextRequest{ConnectionAddressed: r.Addressed, ExcludedPrefixes: prefixesTo(r.Excluded)}
	for _, p := range r.Additional {
		want := &api.PrefixRequest{AddressFamily: 1, Len: int64(p.Bits)}
		if p.V6 {
			want.AddressFamily = 2
		}
		out.AdditionalPrefixRequests = append(out.AdditionalPrefixRequests, want)
	}
	return out
}

func contextFrom(c *api.ConnectionContext) (out nsm.Context, err error) {
	single := func(p *api.Prefix) netip.Prefix {
		if p == nil || err != nil {
			return netip.Prefix{}
		}
		var q netip.Prefix
		q, err = prefixFrom(p)
		return q
	}
	out.Client, out.Endpoint = single(c.GetNscConnectionAddresses()), single(c.GetNseConnectionAddresses())
	if err == nil {
		out.Routes, err = prefixesFrom(c.GetRoutes())
	}
	if err == nil {
		out.Additional, err = prefixesFrom(c.GetAdditionalAddresses())
	}
	return out, err
}

func contextTo(c nsm.Context) *api.ConnectionContext {
	return &api.ConnectionContext{
		NscConnectionAddresses: prefixTo(c.Client), NseConnectionAddresses: prefixTo(c.Endpoint),
		Routes: prefixesTo(c.Routes), AdditionalAddresses: prefixesTo(c.Additional),
	}
}
