// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// defaultNetworkID is the network of a subnet that doesn't name one.
const defaultNetworkID = "calico"

func parseSubnet(r *reader) (Subnet, error) {
	s := Subnet{NetworkID: defaultNetworkID}
	err := r.record(
		field{"network_id", func(r *reader) (err error) {
			var id string
			if id, err = r.optionalStr(); id != "" {
				s.NetworkID = id
			}
			return err
		}},
		into("cidr", &s.CIDR, (*reader).prefix),
		into("gateway_ip", &s.GatewayIP, parseAnyAddr),
		into("dns_servers", &s.DNSServers, each(parseAnyAddr)),
		into("host_routes", &s.HostRoutes, each(parseHostRoute)),
		into("meta", &s.Meta, parseMeta),
	)
	return s, err
}

func parseHostRoute(r *reader) (h HostRoute, err error) {
	err = r.record(
		into("destination", &h.Destination, (*reader).prefix),
		into("nexthop", &h.NextHop, parseAnyAddr),
	)
	return h, err
}

// check requires the subnet and everything in it to be of one family.
func (s Subnet) check() error {
	if !s.CIDR.IsValid() {
		return missing("cidr")
	}
	v6 := isV6(s.CIDR)
	if err := checkFamily(s.CIDR.Addr(), v6); err != nil {
		return inField("cidr", err)
	}
	if s.CIDR != s.CIDR.Masked() {
		return inField("cidr", fmt.Errorf("%s has host bits set: write %s", s.CIDR, s.CIDR.Masked()))
	}
	if !s.GatewayIP.IsValid() && !v6 { // IPv6's router is link-local
		return missing("gateway_ip")
	}
	if err := checkFamily(s.GatewayIP, v6); s.GatewayIP.IsValid() && err != nil {
		return inField("gateway_ip", err)
	}
	if err := checkAddrs(s.DNSServers, v6); err != nil {
		return inField("dns_servers", err)
	}
	for i, h := range s.HostRoutes {
		if err := h.check(v6); err != nil {
			return inField("host_routes", atIndex(i, err))
		}
	}
	return nil
}

func (h HostRoute) check(v6 bool) error {
	if !h.Destination.IsValid() {
		return missing("destination")
	}
	if !h.NextHop.IsValid() {
		return missing("nexthop")
	}
	if err := checkFamily(h.Destination.Addr(), v6); err != nil {
		return inField("destination", err)
	}
	if err := checkFamily(h.NextHop, v6); err != nil {
		return inField("nexthop", err)
	}
	return nil
}

func (s Subnet) format(w *writer) error {
	if s.NetworkID == "" {
		s.NetworkID = defaultNetworkID
	}
	w.open('{')
	w.str("network_id", s.NetworkID)
	w.prefix("cidr", s.CIDR)
	w.addr("gateway_ip", s.GatewayIP)
	if len(s.DNSServers) > 0 {
		w.addrs("dns_servers", s.DNSServers)
	}
	if len(s.HostRoutes) > 0 {
		writeList(w, "host_routes", s.HostRoutes, func(w *writer, h HostRoute) {
			w.open('{')
			w.prefix("destination", h.Destination)
			w.addr("nexthop", h.NextHop)
			w.close('}')
		})
	}
	w.meta(s.Meta)
	w.close('}')
	return nil
}
