// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// PoolRef refers to a pool by its CIDR, or by its name as a resource. The zero value refers to none.
type PoolRef struct {
	CIDR netip.Prefix
	Name string // "" = by CIDR
}

// ParsePoolRef parses a reference to a pool as people write it.
func ParsePoolRef(s string) (PoolRef, error) {
	s = strings.TrimSpace(s)
	_, notAddr := netip.ParseAddr(s)
	if s != "" && notAddr != nil && !strings.Contains(s, "/") {
		return PoolRef{Name: s}, nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return PoolRef{}, fmt.Errorf("want the CIDR or the name of a pool, got %q", s)
	case p != p.Masked():
		return PoolRef{}, fmt.Errorf("%s has bits set after its length: want %s", s, p.Masked())
	}
	return PoolRef{CIDR: p}, nil
}

// String returns the CIDR or the name.
func (r PoolRef) String() string {
	if r.Name != "" {
		return r.Name
	}
	return r.CIDR.String()
}

// Names reports whether r refers to the pool.
func (r PoolRef) Names(p Pool) bool {
	if r.Name != "" {
		return r.Name == p.ResourceName()
	}
	return r.CIDR.IsValid() && r.CIDR.Masked() == p.CIDR
}

// ResourceName returns the pool's name as a resource: its given name, or one derived from its CIDR.
func (p Pool) ResourceName() string {
	return cmp.Or(p.Name, strings.ReplaceAll(p.CIDR.String(), "/", "-"))
}
