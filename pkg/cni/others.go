// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

// othersHave reports whether the handle's addresses are another container's.
func (s *session) othersHave(v *view, id identity) (bool, error) {
	for _, e := range v.entries {
		b, _ := e.Value.(model.Block)
		for _, a := range b.Attributes {
			if a.HandleID != id.handle {
				continue
			}
			if others, err := s.othersAddress(v, id, a.Secondary); err != nil || others {
				return others, err
			}
		}
	}
	return false, nil
}

// othersAddress reports whether an address of the handle, by what is kept beside it, is that of
// a container whose names make the same handle, or another host's: it has a
// container of the same id, as a disk that was copied brings along.
func (s *session) othersAddress(v *view, id identity, kept map[string]string) (bool, error) {
	if id.network != "" && !sameNames(kept, id.attributes()) {
		s.log.Warn("leaving the addresses of a container whose names make the same handle", "handle", id.handle, "network", kept["network"])
		return true, nil
	}
	node := kept["node"]
	switch node {
	case "":
		return false, nil
	case s.node:
		return false, s.checkName(v)
	}
	another, err := s.isAnother(v, node)
	if err == nil && another {
		s.log.Warn("leaving the addresses of a container with the same id on another node", "handle", id.handle, "node", node)
	}
	return another, err
}

// startAgent says how a node whose name was guessed gets it.
const startAgent = "start calico-node, which writes the file with this node's name, or set nodename in the network configuration"

// isAnother reports whether a node is another than this, or else this one under a former
// name. One that reports is another. One that doesn't may be silent or stopped while its
// pods go on: it is this one if its address is, or if etcd knows of no host by the name.
func (s *session) isAnother(v *view, node string) (bool, error) {
	status, metadata := model.StatusKey{Host: node}, model.HostMetadataKey{Host: node}
	if err := v.needs(append([]model.Key{status, metadata}, addressKeys(node)...)); err != nil {
		return false, err
	}
	addrs, here, err := v.addressesOf(node)
	if err != nil {
		return false, err
	}
	lives, known := v.get(status).Exists(), v.get(metadata).Exists() || len(addrs) > 0
	var hint string
	switch {
	case lives && s.guessed:
		hint = startAgent
	case lives && here:
		hint = "try again: the status that a node leaves in etcd under a former name ends by itself"
	case lives:
		return true, nil
	case here || !known:
		return false, nil
	case s.guessed:
		hint = startAgent
	default:
		name := model.EscapeName(node)
		hint = "if it is another, start its calico-node or wait until its container is deleted; if it is gone, or was this one, " +
			"`etcdctl del " + metadata.Path() + "` and `etcdctl del --prefix /calico/bgp/v1/host/" + name + "/`"
	}
	return false, failf(CodeTryAgain, hint, "whether node %s, which has the container's addresses, is this one isn't known", node)
}

// addressKeys have the addresses of a host.
func addressKeys(node string) []model.Key {
	return []model.Key{
		model.BGPHostKey{Host: node, Field: model.BGPHostIPv4}, model.BGPHostKey{Host: node, Field: model.BGPHostIPv6}, model.HostBirdIPKey{Host: node},
	}
}

// addressesOf are the addresses that etcd has of a node, and whether one of them is this
// host's. Its addressKeys were read.
func (v *view) addressesOf(node string) (addrs []netip.Addr, here bool, err error) {
	for _, k := range addressKeys(node) {
		text, _ := v.get(k).Value.(model.Text)
		addr, err := netip.ParseAddr(string(text))
		if err != nil {
			continue
		}
		has, err := hasAddress(addr)
		if err != nil {
			return nil, false, err
		}
		addrs, here = append(addrs, addr), here || has
	}
	return addrs, here, nil
}

// hasAddress reports whether this host has the address.
func hasAddress(addr netip.Addr) (bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, fail(CodeKernel, err, "try again")
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr {
			return true, nil
		}
	}
	return false, nil
}
