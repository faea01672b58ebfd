// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// PoolRef says which pool is meant: by its CIDR, or by its name as a resource. The zero value means none.
type PoolRef struct {
	CIDR netip.Prefix
	Name string // "" = by CIDR
}

// ParsePoolRef reads what people write for a pool.
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

// String is the CIDR or the name.
func (r PoolRef) String() string {
	if r.Name != "" {
		return r.Name
	}
	return r.CIDR.String()
}

// Names says whether it is this pool that is meant.
func (r PoolRef) Names(p Pool) bool {
	if r.Name != "" {
		return r.Name == p.ResourceName()
	}
	return r.CIDR.IsValid() && r.CIDR.Masked() == p.CIDR
}

// ResourceName is what the pool is called as a resource: by the name that it was given, or after its CIDR.
func (p Pool) ResourceName() string {
	return cmp.Or(p.Name, strings.ReplaceAll(p.CIDR.String(), "/", "-"))
}
