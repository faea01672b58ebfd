// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/nft/table"
)

// Source is an address that the endpoint of an interface sends from.
type Source struct {
	Interface string
	Index     int        // of its link; 0 = unknown
	Addr      netip.Addr // not IPv4 in IPv6
}

// Set returns the name of the set for the source.
func (s Source) Set() string { return Versioned(setSources, s.version()) }

// IndexedSet returns the name of the set with the source by its link's index.
func (s Source) IndexedSet() string { return Versioned(setIndexed, s.version()) }

func (s Source) version() int {
	if s.Addr.Is4() {
		return 4
	}
	return 6
}

// Key returns the key of the source's element in Set.
func (s Source) Key() string {
	return table.Concat(table.NameBytes(s.Interface), table.AddrBytes(s.Addr))
}

// IndexedKey returns the key of the source's element in IndexedSet.
func (s Source) IndexedKey() string {
	return table.Concat(table.IndexBytes(s.Index), table.AddrBytes(s.Addr))
}

func sourceSet(version int) table.Set {
	return table.Set{
		Name: Versioned(setSources, version), Key: []table.Type{table.TypeInterface, address(version, false).Type},
		Comment: "the addresses that the endpoint sends from",
	}
}

// indexedSet is only for speed. Its elements are a subset of sources: what it lacks is looked up there.
func indexedSet(version int) table.Set {
	return table.Set{
		Name: Versioned(setIndexed, version), Key: []table.Type{table.TypeIndex, address(version, false).Type},
		Comment: "the addresses that the endpoint sends from, by its link's index: looked up first, as that is faster",
	}
}
