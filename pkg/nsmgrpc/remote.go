// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"fmt"
	"net/netip"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/nsm"
)

func remoteRequestFrom(r *api.RemoteConnectionRequest) (nsm.RemoteRequest, error) {
	context, err := contextRequestFrom(r.GetConnectionContextRequest())
	out := nsm.RemoteRequest{
		ID: r.GetRequestId(), Service: r.GetNetworkServiceName(), Endpoint: r.GetNseName(),
		Requestor: r.GetLabels()[labelRequestor], Context: context,
	}
	for _, m := range r.GetRemoteMechanisms() {
		if m.GetType() != api.RemoteMechanismType_VXLAN {
			out.Others = append(out.Others, m.GetType().String())
			continue
		}
		for _, c := range m.GetConstraints() {
			v := c.GetVxlanConstraint()
			if v == nil || err != nil {
				continue
			}
			ip, ok := netip.AddrFromSlice(v.GetRequestorIp())
			if !ok {
				return out, fmt.Errorf("%w: requestor_ip has %d bytes: want 4 or 16", nsm.ErrInvalid, len(v.GetRequestorIp()))
			}
			offer := nsm.VXLANOffer{IP: ip.Unmap()}
			if offer.Port, err = parsePort(v.GetRequestorPort()); err == nil {
				offer.Excluded, err = vnisFrom(v.GetExcludeVnis())
			}
			out.VXLAN = append(out.VXLAN, offer)
		}
	}
	if err == nil {
		err = out.Check()
	}
	return out, err
}

func remoteRequestTo(r nsm.RemoteRequest) *api.RemoteConnectionRequest {
	out := &api.RemoteConnectionRequest{
		RequestId: r.ID, NetworkServiceName: r.Service, NseName: r.Endpoint,
		Labels: map[string]string{labelRequestor: r.Requestor}, ConnectionContextRequest: contextRequestTo(r.Context),
	}
	for _, o := range r.VXLAN {
		v := &api.VxlanConstraint{RequestorIp: o.IP.AsSlice(), RequestorPort: formatPort(o.Port)}
		for _, x := range o.Excluded {
			v.ExcludeVnis = append(v.ExcludeVnis, &api.VniRange{Vni: int32(x.First), Count: int32(x.Count)})
		}
		out.RemoteMechanisms = append(out.RemoteMechanisms, &api.RemoteMechanismRequest{
			Type:        api.RemoteMechanismType_VXLAN,
			Constraints: []*api.RemoteMechanismConstraint{{Constraint: &api.RemoteMechanismConstraint_VxlanConstraint{VxlanConstraint: v}}},
		})
	}
	return out
}

// remoteReplyFrom converts the answer to a request to this node's point of view: Local is this node's address. The
// error wraps ErrRefused if the other manager has not accepted.
func remoteReplyFrom(id string, r *api.RemoteConnectionReply) (nsm.RemoteReply, error) {
	switch {
	case !r.GetAccepted():
		return nsm.RemoteReply{}, fmt.Errorf("%w: %w: %s", nsm.ErrAborted, ErrRefused, r.GetAdmissionError())
	case r.GetRequestId() != id:
		return nsm.RemoteReply{}, fmt.Errorf("%w: the endpoint's manager answers request %.40q", nsm.ErrAborted, r.GetRequestId())
	}
	v := r.GetRemoteMechanismParameters().GetVxlanParameters()
	requestor, ok1 := netip.AddrFromSlice(v.GetRequestorIp())
	requestee, ok2 := netip.AddrFromSlice(v.GetRequesteeIp())
	port, err := parsePort(v.GetRequesteePort())
	own, err2 := parsePort(v.GetRequestorPort())
	if r.GetRemoteMechanismType() != api.RemoteMechanismType_VXLAN || !ok1 || !ok2 || !nsm.IsNode(requestee.Unmap()) || err != nil || err2 != nil || own != port || v.GetVni() == 0 || v.GetVni() > nsm.MaxVNI {
		return nsm.RemoteReply{}, fmt.Errorf("%w: the endpoint's manager answers with %v and parameters that make no VXLAN tunnel: %v", nsm.ErrAborted, r.GetRemoteMechanismType(), v)
	}
	context, err := contextFrom(r.GetConnectionContext())
	return nsm.RemoteReply{Tunnel: nsm.Tunnel{VNI: v.GetVni(), Local: requestor.Unmap(), Remote: requestee.Unmap(), Port: port}, Context: context}, err
}

func remoteReplyTo(id string, r nsm.RemoteReply) *api.RemoteConnectionReply {
	t := r.Tunnel
	return &api.RemoteConnectionReply{
		RequestId: id, Accepted: true, RemoteMechanismType: api.RemoteMechanismType_VXLAN,
		RemoteMechanismParameters: &api.RemoteMechanismParameters{Mechanism: &api.RemoteMechanismParameters_VxlanParameters{VxlanParameters: &api.Vxlan_Parameters{
			RequestorIp: t.Remote.AsSlice(), RequesteeIp: t.Local.AsSlice(), RequestorPort: formatPort(t.Port), RequesteePort: formatPort(t.Port), Vni: t.VNI,
		}}},
		ConnectionContext: contextTo(r.Context),
	}
}

func keysTo(keys []nsm.Key) (out []*api.RemoteConnectionID) {
	for _, k := range keys {
		out = append(out, &api.RemoteConnectionID{RequestId: k.ID, NetworkServiceName: k.Service})
	}
	return out
}

func keysFrom(list []*api.RemoteConnectionID) (keys []nsm.Key) {
	for _, k := range list {
		keys = append(keys, nsm.Key{ID: k.GetRequestId(), Service: k.GetNetworkServiceName()})
	}
	return keys
}
