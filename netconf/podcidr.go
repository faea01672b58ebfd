// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
)

// podCIDR is what takes the place of a subnet that asks for the node's pod CIDR,
// invalid where it doesn't. Calico's users have it in either case.
func podCIDR(subnet string) netip.Prefix {
	switch {
	case strings.EqualFold(subnet, usePodCIDR):
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case strings.EqualFold(subnet, usePodCIDR+"IPv6"):
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.Prefix{}
}

// replacePodCIDRs replaces the subnets at any depth of a decoded value that ask
// for the node's pod CIDR, and reports whether there were any.
func replacePodCIDRs(value any) (found bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, sub := range v {
			if s, ok := sub.(string); ok && name == "subnet" && podCIDR(s).IsValid() {
				v[name], found = podCIDR(s).String(), true
			} else if replacePodCIDRs(sub) {
				found = true
			}
		}
	case []any:
		for _, sub := range v {
			if replacePodCIDRs(sub) {
				found = true
			}
		}
	}
	return found
}

// decodeIPAM keeps numbers as they are written.
func decodeIPAM(raw json.RawMessage) (value any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil // absent
	}
	return value
}

// WithoutPodCIDR is Raw with every subnet of its family in place of the node's
// pod CIDR. Everything else stays as it came.
func (c *Config) WithoutPodCIDR() ([]byte, error) {
	if !c.IPAM.PodCIDR {
		return c.Raw, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.Raw, &fields); err != nil {
		return nil, err
	}
	ipam := decodeIPAM(fields["ipam"])
	replacePodCIDRs(ipam)
	var err error
	if fields["ipam"], err = json.Marshal(ipam); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
