// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// asksPodCIDR reports whether a subnet stands for the node's pod CIDR, and of which family. Upper and lower case are
// the same, as in Calico.
func asksPodCIDR(subnet string) (v6, asks bool) {
	v6 = strings.EqualFold(subnet, usePodCIDR+"IPv6")
	return v6, v6 || strings.EqualFold(subnet, usePodCIDR)
}

// replacePodCIDRs replaces the subnets, at any depth of a decoded value, that stand for the node's pod CIDR. It reports
// whether there were any.
func replacePodCIDRs(value any, by func(v6 bool) string) (found bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, sub := range v {
			s, _ := sub.(string)
			if v6, asks := asksPodCIDR(s); asks && name == "subnet" {
				v[name], found = by(v6), true
			} else if replacePodCIDRs(sub, by) {
				found = true
			}
		}
	case []any:
		for _, sub := range v {
			if replacePodCIDRs(sub, by) {
				found = true
			}
		}
	}
	return found
}

// decodeIPAM keeps numbers as written.
func decodeIPAM(raw json.RawMessage) (value any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return nil // absent
	}
	return value
}

// WithoutPodCIDR returns Raw with the node's pod CIDR replaced by the subnet of all addresses of the family. Everything
// else is unchanged.
func (c *Config) WithoutPodCIDR() ([]byte, error) {
	return c.replacePodCIDRs(func(v6 bool) string {
		if v6 {
			return "::/0"
		}
		return "0.0.0.0/0"
	})
}

// WithPodCIDRs returns Raw with the subnets that stand for the node's pod CIDR replaced by the first one of the family.
// The error says that the node has none.
func (c *Config) WithPodCIDRs(cidrs []netip.Prefix) ([]byte, error) {
	var lacks error
	raw, err := c.replacePodCIDRs(func(v6 bool) string {
		i := slices.IndexFunc(cidrs, func(p netip.Prefix) bool { return p.Addr().Is6() == v6 })
		if i >= 0 {
			return cidrs[i].String()
		}
		family, asked := "IPv4", usePodCIDR
		if v6 {
			family, asked = "IPv6", usePodCIDR+"IPv6"
		}
		lacks = &FieldError{"ipam.subnet", fmt.Sprintf("%s: the Kubernetes Node has no %s podCIDR, of %v", asked, family, cidrs)}
		return ""
	})
	return raw, errors.Join(err, lacks)
}

func (c *Config) replacePodCIDRs(by func(v6 bool) string) ([]byte, error) {
	if !c.IPAM.PodCIDR {
		return c.Raw, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.Raw, &fields); err != nil {
		return nil, err
	}
	ipam := decodeIPAM(fields["ipam"])
	replacePodCIDRs(ipam, by)
	var err error
	if fields["ipam"], err = json.Marshal(ipam); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
