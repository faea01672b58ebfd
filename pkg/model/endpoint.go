// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
)

// Addrs returns the endpoint's own addresses, IPv4 first, without those of its NAT.
func (e WorkloadEndpoint) Addrs() []netip.Addr {
	out := make([]netip.Addr, 0, len(e.IPv4Nets)+len(e.IPv6Nets))
	for _, p := range e.IPv4Nets {
		out = append(out, p.Addr())
	}
	for _, p := range e.IPv6Nets {
		out = append(out, p.Addr())
	}
	return out
}

// Equal reports whether both mean the same. nil and empty are equal.
func (e WorkloadEndpoint) Equal(o WorkloadEndpoint) bool {
	return e.State == o.State && e.Name == o.Name && e.MAC == o.MAC &&
		slices.Equal(e.ProfileIDs, o.ProfileIDs) &&
		slices.Equal(e.IPv4NAT, o.IPv4NAT) && slices.Equal(e.IPv4Nets, o.IPv4Nets) &&
		slices.Equal(e.IPv6NAT, o.IPv6NAT) && slices.Equal(e.IPv6Nets, o.IPv6Nets) &&
		e.IPv4Gateway == o.IPv4Gateway && e.IPv6Gateway == o.IPv6Gateway &&
		maps.Equal(e.Labels, o.Labels) &&
		slices.Equal(e.IPv4SubnetIDs, o.IPv4SubnetIDs) && slices.Equal(e.IPv6SubnetIDs, o.IPv6SubnetIDs) &&
		e.FQDN == o.FQDN && e.ContainerID == o.ContainerID && e.PodUID == o.PodUID &&
		slices.Equal(e.Ports, o.Ports) && e.MTU == o.MTU && e.MaxConnections == o.MaxConnections
}

func parseWorkloadEndpoint(r *reader) (WorkloadEndpoint, error) {
	var e WorkloadEndpoint
	older := ""
	err := r.record(
		into("state", &e.State, word[EndpointState]),
		into("name", &e.Name, (*reader).str),
		into("mac", &e.MAC, parseMACField),
		into("profile_ids", &e.ProfileIDs, (*reader).strings),
		into("ipv4_nat", &e.IPv4NAT, nats(false)),
		into("ipv4_nets", &e.IPv4Nets, each(parseNet)),
		into("ipv6_nat", &e.IPv6NAT, nats(true)),
		into("ipv6_nets", &e.IPv6Nets, each(parseNet)),
		into("ipv4_gateway", &e.IPv4Gateway, address(false)),
		into("ipv6_gateway", &e.IPv6Gateway, address(true)),
		into("labels", &e.Labels, (*reader).stringMap),
		into("ipv4_subnet_ids", &e.IPv4SubnetIDs, (*reader).strings),
		into("ipv6_subnet_ids", &e.IPv6SubnetIDs, (*reader).strings),
		into("fqdn", &e.FQDN, (*reader).optionalStr),
		into("container_id", &e.ContainerID, (*reader).optionalStr),
		into("active_instance_id", &older, (*reader).optionalStr), // Calico 2's name for it
		into("pod_uid", &e.PodUID, (*reader).optionalStr),
		into("ports", &e.Ports, each(parseEndpointPort)),
		into("mtu", &e.MTU, optionalInt(0, maxMTU)),
		into("max_connections", &e.MaxConnections, optionalInt(0, MaxConnections)),
	)
	e.ContainerID = cmp.Or(e.ContainerID, older)
	return e, err
}

const (
	maxMTU = 65535
	// MaxConnections is the maximum value of an endpoint's limit of connections.
	MaxConnections = 1 << 30
	// maxNets bounds the addresses of an endpoint, since each NAT is looked up in them.
	maxNets = 1024
)

func parseMACField(r *reader) (MAC, error) {
	if r.null() {
		return MAC{}, nil
	}
	s, err := r.str()
	if err != nil || s == "" {
		return MAC{}, err
	}
	if len(s) > 64 {
		return MAC{}, errors.New("too long for a MAC address")
	}
	return ParseMAC(s)
}

// parseNet reads a net unchanged. check judges its host bits.
func parseNet(r *reader) (netip.Prefix, error) {
	s, err := r.str()
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return parsePrefix(s) // a plain address, or the error in our own words
	}
	return p, nil
}

func nats(v6 bool) func(*reader) ([]NAT, error) {
	return each(func(r *reader) (n NAT, err error) {
		err = r.record(
			into("int_ip", &n.IntIP, address(v6)),
			into("ext_ip", &n.ExtIP, address(v6)),
		)
		return n, err
	})
}

func parseEndpointPort(r *reader) (p EndpointPort, err error) {
	err = r.record(
		into("name", &p.Name, (*reader).str),
		into("protocol", &p.Protocol, parseProtocolField),
		field{"port", func(r *reader) (err error) {
			var n int
			n, err = r.integer(1, 65535)
			p.Port = uint16(n)
			return err
		}},
	)
	return p, err
}

func writeEndpointPort(w *writer, p EndpointPort) {
	w.open('{')
	w.str("name", p.Name)
	w.name("protocol")
	w.protocol(p.Protocol)
	w.integer("port", int(p.Port))
	w.close('}')
}

func (e WorkloadEndpoint) format(w *writer) error {
	w.b = make([]byte, 0, 512)
	w.open('{')
	w.str("state", string(e.State))
	w.str("name", e.Name)
	if !e.MAC.IsZero() {
		w.str("mac", e.MAC.String())
	}
	w.strings("profile_ids", e.ProfileIDs)
	w.nats("ipv4_nat", e.IPv4NAT)
	w.prefixes("ipv4_nets", e.IPv4Nets)
	w.nats("ipv6_nat", e.IPv6NAT)
	w.prefixes("ipv6_nets", e.IPv6Nets)
	w.addr("ipv4_gateway", e.IPv4Gateway)
	w.addr("ipv6_gateway", e.IPv6Gateway)
	if len(e.Labels) > 0 {
		w.name("labels")
		w.stringMap(e.Labels)
	}
	if len(e.IPv4SubnetIDs) > 0 {
		w.strings("ipv4_subnet_ids", e.IPv4SubnetIDs)
	}
	if len(e.IPv6SubnetIDs) > 0 {
		w.strings("ipv6_subnet_ids", e.IPv6SubnetIDs)
	}
	w.optional("fqdn", e.FQDN)
	w.optional("container_id", e.ContainerID)
	w.optional("pod_uid", e.PodUID)
	if len(e.Ports) > 0 {
		writeList(w, "ports", e.Ports, writeEndpointPort)
	}
	if e.MTU > 0 {
		w.integer("mtu", e.MTU)
	}
	if e.MaxConnections > 0 {
		w.integer("max_connections", e.MaxConnections)
	}
	w.close('}')
	return nil
}

func (w *writer) nats(name string, nats []NAT) {
	if len(nats) == 0 {
		return
	}
	writeList(w, name, nats, func(w *writer, n NAT) {
		w.open('{')
		w.addr("int_ip", n.IntIP)
		w.addr("ext_ip", n.ExtIP)
		w.close('}')
	})
}
