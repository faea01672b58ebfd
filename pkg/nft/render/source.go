// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"strings"

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

// ParseSource reads what Key writes; another make of the set may have other keys.
func ParseSource(set table.Set, key string) (Source, bool) {
	if len(key) != table.KeySize(set.Key) {
		return Source{}, false
	}
	n := table.TypeInterface.Size()
	a, ok := netip.AddrFromSlice([]byte(key[n:]))
	return Source{Interface: strings.TrimRight(key[:n], "\x00"), Addr: a}, ok
}

// SourceSets are the sets of sources, empty.
func SourceSets() []table.Set { return []table.Set{sourceSet(4), sourceSet(6)} }

func sourceSet(version int) table.Set {
	return table.Set{
		Name: Versioned(setSources, version), Key: []table.Type{table.TypeInterface, address(version, false).Type},
		Comment: "the addresses that the endpoint sends from",
	}
}
