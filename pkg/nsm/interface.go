// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// InterfaceType is the number of a type in the messages.
type InterfaceType int

// Kernel is the type that is implemented. Default means Kernel.
const (
	Default InterfaceType = iota
	Kernel
)

func interfaceTypes() []string {
	return []string{"DEFAULT_INTERFACE", "KERNEL_INTERFACE", "VHOST_INTERFACE", "MEM_INTERFACE", "SRIOV_INTERFACE", "HW_INTERFACE"}
}

// String returns the type's name in the messages.
func (t InterfaceType) String() string {
	if names := interfaceTypes(); t >= 0 && int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("interface type %d", int(t))
}

// ParseInterfaceType is the inverse of String.
func ParseInterfaceType(name string) (InterfaceType, error) {
	if i := slices.Index(interfaceTypes(), name); i >= 0 {
		return InterfaceType(i), nil
	}
	return 0, fmt.Errorf("%w: interface type %.40q: want one of %s", ErrInvalid, name, strings.Join(interfaceTypes(), ", "))
}

// orKernel replaces an empty list, and the default type, with what they stand for.
func orKernel(list []Interface) []Interface {
	if len(list) == 0 {
		return []Interface{{Type: Kernel}}
	}
	list = slices.Clone(list)
	for i := range list {
		if list[i].Type == Default {
			list[i].Type = Kernel
		}
	}
	return list
}

// A Candidate is an endpoint that can be asked, with the client's and the endpoint's matching interfaces.
type Candidate struct {
	Endpoint        Endpoint
	Wanted, Offered Interface
}

// Candidates returns the endpoints for a request in the order in which to ask them: those of the own node first; then
// the others, by a hash of the request that spreads clients; last those that have failed, by time. failed returns when
// an endpoint failed, 0 = it hasn't. The error wraps ErrNotFound.
func Candidates(r Request, endpoints []Endpoint, host string, failed func(Endpoint) int64) ([]Candidate, error) {
	wanted := orKernel(r.Interfaces)
	slices.SortStableFunc(wanted, func(a, b Interface) int { return cmp.Compare(rank(a), rank(b)) })
	var found []Candidate
	var unbuilt []string
	some := false
	for _, e := range endpoints {
		if e.Service != r.Service {
			continue
		}
		some = true
		if c, refused := match(wanted, e); refused == "" {
			found = append(found, c)
		} else {
			unbuilt = append(unbuilt, refused)
		}
	}
	if !some {
		return nil, fmt.Errorf("%w: network service %q has no endpoint: start one that advertises it", ErrNotFound, r.Service)
	}
	if len(found) == 0 {
		slices.Sort(unbuilt)
		return nil, fmt.Errorf("%w: no endpoint of network service %q has an interface for the request: %s", ErrNotFound, r.Service, strings.Join(slices.Compact(unbuilt), "; "))
	}
	slices.SortFunc(found, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(failed(a.Endpoint), failed(b.Endpoint)), cmp.Compare(distance(a.Endpoint, host), distance(b.Endpoint, host)),
			cmp.Compare(spread(r, a.Endpoint), spread(r, b.Endpoint)),
			cmp.Compare(a.Endpoint.Host, b.Endpoint.Host), cmp.Compare(a.Endpoint.Name, b.Endpoint.Name))
	})
	return found, nil
}

// rank returns the position of an interface among those that a client wants.
func rank(i Interface) int {
	if i.Preference <= 0 {
		return 1 << 30
	}
	return i.Preference
}

// match returns the first interface that is wanted, offered and implemented, or the reason why there is none.
func match(wanted []Interface, e Endpoint) (c Candidate, refused string) {
	for _, w := range wanted {
		for _, o := range orKernel(e.Interfaces) {
			switch {
			case o.Type != w.Type:
			case o.Type != Kernel:
				refused = fmt.Sprintf("%v is not built here, only %v is", o.Type, Kernel)
			default:
				return Candidate{e, w, o}, ""
			}
		}
	}
	if refused == "" {
		refused = fmt.Sprintf("endpoint %s offers %s, and the client asked for %s", e.Name, typeNames(orKernel(e.Interfaces)), typeNames(wanted))
	}
	return Candidate{}, refused
}

func typeNames(list []Interface) string {
	var names []string
	for _, i := range list {
		names = append(names, i.Type.String())
	}
	return strings.Join(names, ", ")
}

func distance(e Endpoint, host string) int {
	if e.Host == host {
		return 0
	}
	return 1
}

func spread(r Request, e Endpoint) uint64 {
	h := fnv.New64a()
	for _, s := range []string{r.ID, e.Host, e.Name} {
		_, _ = h.Write([]byte(s + "\x00")) // never fails
	}
	return h.Sum64()
}

// InterfaceName returns the wanted name, or the first nsm<n> that is unused in the namespace.
func InterfaceName(wanted string, taken func(string) bool) (string, error) {
	if wanted != "" {
		if strings.ContainsAny(wanted, "/: \t\n\v\f\r\x00%") || len(wanted) > 15 || slices.Contains([]string{".", "..", "all", "default"}, wanted) {
			return "", fmt.Errorf("%w: interface name %.40q: it must have at most 15 bytes, without spaces, slashes, colons and percent signs", ErrInvalid, wanted)
		}
		if taken(wanted) {
			return "", fmt.Errorf("%w: the pod has an interface %s: choose another name", ErrInvalid, wanted)
		}
		return wanted, nil
	}
	for n := 0; ; n++ {
		if name := fmt.Sprintf("nsm%d", n); !taken(name) {
			return name, nil
		}
	}
}
