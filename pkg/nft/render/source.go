// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Source is an address that the endpoint of an interface sends from.
type Source struct {
	Interface string
	Addr      netip.Addr // not IPv4 in IPv6
}

// Set is the name of the set that it belongs to.
func (s Source) Set() string {
	if s.Addr.Is4() {
		return Versioned(setSources, 4)
	}
	return Versioned(setSources, 6)
}

// Key is that of its element in the set.
func (s Source) Key() string {
	return table.Concat(table.NameBytes(s.Interface), table.AddrBytes(s.Addr))
}

func sourceSet(version int) table.Set {
	return table.Set{
		Name: Versioned(setSources, version), Key: []table.Type{table.TypeInterface, address(version, false).Type},
		Comment: "the addresses that the endpoint sends from",
	}
}
