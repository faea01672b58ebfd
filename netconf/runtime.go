// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

func (c *Config) parseRuntime(o object) {
	d := o.object("dns")
	d.str("domain", &c.DNS.Domain)
	c.DNS.Nameservers, c.DNS.Search, c.DNS.Options = d.strings("nameservers"), d.strings("search"), d.strings("options")

	r := o.object("runtimeConfig")
	c.Runtime.IPs = r.addrs("ips")
	var mac string
	if r.str("mac", &mac) && mac != "" {
		var err error
		if c.Runtime.MAC, err = parseMAC(mac); err != nil {
			r.fail("mac", "%v", err)
		}
	}
	r.object("bandwidth").parseBandwidth(&c.Runtime.Bandwidth)
	if r.get("dns") != nil {
		d = r.object("dns")
		c.DNS = DNS{Nameservers: d.strings("servers"), Search: d.strings("searches"), Options: d.strings("options")}
	}
	// Of args, read only what the conventions define.
	c.Runtime.ArgsIPs = o.object("args").object("cni").addrs("ips")
}

func (o object) addrs(field string) []netip.Addr {
	var out []netip.Addr
	for i, s := range o.strings(field) {
		addr, err := parseAddr(s)
		if err != nil {
			o.fail(fmt.Sprintf("%s[%d]", field, i), "%v", err)
			return nil
		}
		out = append(out, addr)
	}
	return out
}

// parseAddr parses an address and drops a prefix length if present, since calico's pods have /32 and /128.
func parseAddr(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if p, notPrefix := netip.ParsePrefix(s); notPrefix == nil {
		addr, err = p.Addr(), nil
	}
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("want an IP address, got %q", s)
	}
	return addr.Unmap(), nil
}

// parseMAC parses the address of a single interface.
func parseMAC(s string) (model.MAC, error) {
	mac, err := model.ParseMAC(s)
	if err == nil && (mac.IsZero() || mac[0]&1 != 0) {
		return model.MAC{}, fmt.Errorf("MAC address %s: want that of a single interface, like 02:00:00:00:00:01", mac)
	}
	return mac, err
}

// parseAttachments reads what GC keeps. It rejects an entry without an owner, which would let GC remove what is in use.
// null is an empty list: libcni writes it if CRI-O passes a network without pods, as after a reboot.
func (c *Config) parseAttachments(o object) {
	const field = "cni.dev/valid-attachments"
	raw := o.fields[field]
	if raw == nil {
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		o.fail(field, "want a list, got %s", kind(raw))
		return
	}
	c.ValidAttachments = make([]Attachment, len(list))
	for i, item := range list {
		a := object{path: fmt.Sprintf("%s[%d]", field, i), errs: o.errs}
		if json.Unmarshal(item, &a.fields) != nil || a.fields == nil {
			*o.errs = append(*o.errs, &FieldError{a.path, "want an object, got " + kind(item)})
			return
		}
		keep := &c.ValidAttachments[i]
		wrong := len(*o.errs)
		a.str("containerID", &keep.ContainerID)
		a.str("ifname", &keep.IfName)
		switch {
		case len(*o.errs) > wrong:
			return
		case keep.ContainerID == "":
			a.fail("containerID", "missing")
			return
		case keep.IfName == "":
			a.fail("ifname", "missing")
			return
		}
	}
}
