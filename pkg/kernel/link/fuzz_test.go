// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FuzzParse: whatever links others create, what is read of one is within its message, and Select returns the link's name.
func FuzzParse(f *testing.F) {
	header := func(attrs ...*nl.RtAttr) []byte {
		b := make([]byte, unix.SizeofIfInfomsg)
		b[4] = 7
		for _, a := range attrs {
			b = append(b, a.Serialize()...)
		}
		return slices.Clip(b)
	}
	info := func(kind string, data ...byte) *nl.RtAttr {
		a := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		a.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
		a.AddRtAttr(unix.IFLA_INFO_DATA, data)
		return a
	}
	name := nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("cali1"))
	family := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	family.AddRtAttr(unix.AF_INET6, nl.NewRtAttr(unix.IFLA_INET6_CONF, make([]byte, 4*40)).Serialize())
	f.Add(header(name, info("veth"), nl.NewRtAttr(unix.IFLA_IFALIAS, []byte("calico net.c.eth0")), family))
	for _, kind := range []string{"vxlan", "bridge", "ipip", "tun", "bond", "vlan", "macvlan", "wireguard", "can", "netkit", "gre", "xfrm", "geneve", "sit", "hsr", "macvtap", "vrf", "gtp", "bareudp", "ipvlan"} {
		f.Add(header(name, info(kind, 5, 0, 1, 0, 7)))
		f.Add(header(name, info(kind, 8, 0, 1, 0, 7, 0, 0, 0, 5, 0, 2, 0, 1, 0, 0, 0, 4, 0, 3, 0)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil {
			return
		}
		if l.Name != nameOf(b) || len(l.Name)+len(l.Alias)+len(l.Kind)+len(l.Conf4)+len(l.Conf6) > len(b) {
			t.Errorf("%+v", l)
		}
		if _, ok := l.Conf6.At(len(l.Conf6) / 4); ok {
			t.Errorf("%d bytes of settings have one more", len(l.Conf6))
		}
		if l.BothEndsHere() && (l.Kind != "veth" || l.IsUnnamed()) {
			t.Errorf("%+v", l)
		}
		_ = l.HasIPv6()
	})
}
