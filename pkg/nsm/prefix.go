// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"
)

// The parameters of an interface, in requests of clients and advertisements of endpoints.
const (
	ParamName         = "name"                 // of the interface in the pod
	ParamAddressed    = "connection_addressed" // "true": the client wants an address
	ParamDefaultRoute = "default_route"        // "true": the client also takes a default route
	ParamExcluded     = "excluded_prefixes"    // comma-separated
	ParamAdditional   = "additional_prefixes"  // comma-separated, 4/LENGTH or 6/LENGTH
	ParamPools        = "pools"                // of an endpoint: for its connections' addresses
	ParamRoutes       = "routes"               // of an endpoint: destinations that its clients send to it
)

// PrefixRequest asks for a prefix with a family and a length.
type PrefixRequest struct {
	V6   bool `json:"v6,omitempty"`
	Bits int  `json:"bits"`
}

func (r PrefixRequest) String() string {
	if r.V6 {
		return "6/" + strconv.Itoa(r.Bits)
	}
	return "4/" + strconv.Itoa(r.Bits)
}

// ContextRequest is what a client asks for, with the prefixes that may be neither assigned nor routed.
type ContextRequest struct {
	Addressed, DefaultRoute bool
	Excluded                []netip.Prefix
	Additional              []PrefixRequest
}

// Offer is what an endpoint offers: pools of addresses, and routes.
type Offer struct{ Pools, Routes []netip.Prefix }

// ParseContextRequest parses the parameters of a client's interface.
func ParseContextRequest(params map[string]string) (r ContextRequest, err error) {
	r.Addressed, err = parseBool(params, ParamAddressed)
	if err == nil {
		r.DefaultRoute, err = parseBool(params, ParamDefaultRoute)
	}
	if err == nil {
		r.Excluded, err = parsePrefixes(params, ParamExcluded)
	}
	for _, text := range fields(params[ParamAdditional]) {
		if err == nil {
			var p PrefixRequest
			p, err = parsePrefixRequest(text)
			r.Additional = append(r.Additional, p)
		}
	}
	return r, cmp.Or(err, r.Check())
}

// Check returns an error if no connection can fulfil the request.
func (r ContextRequest) Check() error {
	for _, p := range r.Additional {
		if err := p.Check(); err != nil {
			return err
		}
	}
	return checkEntries("additional prefixes", len(r.Additional))
}

// ParseOffer parses the parameters of an endpoint's interface.
func ParseOffer(params map[string]string) (o Offer, err error) {
	if o.Pools, err = parsePrefixes(params, ParamPools); err == nil {
		o.Routes, err = parsePrefixes(params, ParamRoutes)
	}
	return o, cmp.Or(err, checkEntries("pools and routes", len(o.Pools)+len(o.Routes)))
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func parseBool(params map[string]string, name string) (bool, error) {
	if params[name] == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(params[name])
	if err != nil {
		return false, fmt.Errorf("%w: parameter %s: %.40q is neither true nor false", ErrInvalid, name, params[name])
	}
	return b, nil
}

func parsePrefixes(params map[string]string, name string) (list []netip.Prefix, err error) {
	for _, text := range fields(params[name]) {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() || p != p.Masked() {
			return nil, fmt.Errorf("%w: parameter %s: %.60q is not a prefix like 10.60.0.0/24", ErrInvalid, name, text)
		}
		list = append(list, p)
	}
	return list, nil
}

func parsePrefixRequest(text string) (PrefixRequest, error) {
	family, length, _ := strings.Cut(text, "/")
	bits, err := strconv.Atoi(length)
	r := PrefixRequest{family == "6", bits}
	if err != nil || family != "4" && family != "6" {
		return r, fmt.Errorf("%w: parameter %s: %.40q is not 4/LENGTH or 6/LENGTH", ErrInvalid, ParamAdditional, text)
	}
	return r, nil
}

// Check returns an error if there is no such prefix.
func (r PrefixRequest) Check() error {
	longest := 32
	if r.V6 {
		longest = 128
	}
	if r.Bits < 1 || r.Bits > longest {
		return fmt.Errorf("%w: a prefix %v: the length must be 1 to %d", ErrInvalid, r, longest)
	}
	return nil
}

// IsDefault reports whether a route covers so many addresses that a client must ask for it explicitly: a few such
// routes cover everything.
func IsDefault(route netip.Prefix) bool { return route.Bits() < 8 }

// Allot assigns addresses to a connection from the endpoint's offer: a /30 or /126 of the first pool with room, in
// which the endpoint is the first host and the client the second, and each additional prefix. None of them overlaps
// what is taken or excluded. It assigns all or nothing: the error wraps ErrAborted.
func Allot(o Offer, r ContextRequest, taken []netip.Prefix) (Context, error) {
	var ctx Context
	for _, route := range o.Routes {
		if IsDefault(route) && !r.DefaultRoute {
			continue
		}
		for _, x := range r.Excluded {
			if route.Bits() != 0 && route.Overlaps(x) {
				return Context{}, fmt.Errorf("%w: the endpoint's route to %v overlaps %v, which the client excludes or routes elsewhere", ErrAborted, route, x)
			}
		}
		ctx.Routes = append(ctx.Routes, route)
	}
	if !r.Addressed && len(r.Additional) == 0 {
		return ctx, nil
	}
	if len(o.Pools) == 0 {
		return Context{}, fmt.Errorf("%w: the client wants addresses, and the endpoint has no pool: advertise it with the parameter %s", ErrAborted, ParamPools)
	}
	free, err := freeIn(o.Pools, taken, r.Excluded)
	if err != nil {
		return Context{}, err
	}
	if r.Addressed {
		subnet, ok := take(free, PrefixRequest{false, 30})
		if !ok {
			subnet, ok = take(free, PrefixRequest{true, 126})
		}
		if !ok {
			return Context{}, fmt.Errorf("%w: no /30 or /126 is left in the endpoint's pools %v outside of what is excluded", ErrAborted, o.Pools)
		}
		first := subnet.Addr().Next()
		ctx.Endpoint = netip.PrefixFrom(first, subnet.Bits())
		ctx.Client = netip.PrefixFrom(first.Next(), subnet.Bits())
	}
	for _, want := range r.Additional {
		p, ok := take(free, want)
		if !ok {
			return Context{}, fmt.Errorf("%w: no prefix %v is left in the endpoint's pools %v outside of what is excluded", ErrAborted, want, o.Pools)
		}
		ctx.Additional = append(ctx.Additional, p)
	}
	return ctx, nil
}

// freeIn returns the free addresses of each family.
func freeIn(pools []netip.Prefix, not ...[]netip.Prefix) (map[bool]*netipx.IPSet, error) {
	free := map[bool]*netipx.IPSet{}
	for _, v6 := range []bool{false, true} {
		var b netipx.IPSetBuilder
		for _, p := range pools {
			if p.Addr().Is6() == v6 {
				b.AddPrefix(p)
			}
		}
		for _, list := range not {
			for _, p := range list {
				b.RemovePrefix(p)
			}
		}
		set, err := b.IPSet()
		if err != nil {
			return nil, fmt.Errorf("%w: pools %v: %w", ErrInvalid, pools, err)
		}
		free[v6] = set
	}
	return free, nil
}

// take removes a prefix from the free addresses and returns it.
func take(free map[bool]*netipx.IPSet, want PrefixRequest) (netip.Prefix, bool) {
	p, rest, ok := free[want.V6].RemoveFreePrefix(uint8(want.Bits))
	if ok {
		free[want.V6] = rest
	}
	return p, ok
}

// Prefixes returns what a connection uses of its endpoint's pools.
func (c Context) Prefixes() []netip.Prefix {
	list := append([]netip.Prefix(nil), c.Additional...)
	if c.Client.IsValid() {
		list = append(list, c.Client.Masked())
	}
	return list
}
