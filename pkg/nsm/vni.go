// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxVNI is the largest VXLAN network identifier (RFC 7348, 5). The smallest one used is 1.
const MaxVNI = 1<<24 - 1

// windowSize is how many VNIs a request to another manager leaves to choose from, in case some are assigned here
// meanwhile.
const windowSize = 16

// VNIs is a range of VNIs.
type VNIs struct {
	First uint32 `json:"first"`
	Count uint32 `json:"count"`
}

// end returns the first VNI after the range.
func (r VNIs) end() uint64 { return uint64(r.First) + uint64(r.Count) }

// LowestVNI returns the lowest VNI that is in none of the lists. The error wraps ErrAborted.
func LowestVNI(lists ...[]VNIs) (uint32, error) {
	return lowest(1, slices.Concat(lists...))
}

func lowest(from uint64, taken []VNIs) (uint32, error) {
	taken = slices.Clone(taken)
	slices.SortFunc(taken, func(a, b VNIs) int { return cmp.Compare(a.First, b.First) })
	for _, r := range taken {
		if uint64(r.First) > from {
			break
		}
		from = max(from, r.end())
	}
	if from > MaxVNI {
		return 0, fmt.Errorf("%w: no VNI is left that neither manager excludes", ErrAborted)
	}
	return uint32(from), nil
}

// Window reserves VNIs, none of them in taken, for a request to another manager: the other one chooses from them, and
// this manager assigns none of them until it has the answer. So two requests that cross never share a VNI. The seed
// says where to begin; another attempt should use another one.
func Window(seed uint64, taken []VNIs) (VNIs, error) {
	const windows = MaxVNI / windowSize
	for i := range uint64(windows) {
		w := VNIs{uint32((seed%windows+i)%windows)*windowSize + 1, windowSize}
		if !slices.ContainsFunc(taken, w.overlaps) {
			return w, nil
		}
	}
	return VNIs{}, fmt.Errorf("%w: no %d VNIs in a row are free on this node: end some connections", ErrAborted, windowSize)
}

func (r VNIs) overlaps(o VNIs) bool {
	return uint64(r.First) < o.end() && uint64(o.First) < r.end()
}

// Has reports whether the range contains a VNI.
func (r VNIs) Has(vni uint32) bool { return r.overlaps(VNIs{vni, 1}) }

// Outside returns everything except the range: what a request must exclude so that it is answered from the range.
func (r VNIs) Outside() []VNIs {
	return []VNIs{{0, r.First}, {uint32(r.end()), uint32(MaxVNI + 1 - r.end())}}
}
