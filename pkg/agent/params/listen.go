// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

// newListenJudge refuses values of BGPListenAddresses with which BGP could listen on no address that others reach: without BGP sessions the
// host is cut off from others' workloads. An accepted value stays accepted while it is set: if its address goes and comes back, other
// sessions need not end.
func newListenJudge() *judge {
	return &judge{
		param: "BGPListenAddresses", of: judgeListen, verdicts: map[string]verdict{}, seen: map[string]struct{}{},
		value: func(p *Params) string { return listenKey(p.BGPListen) },
	}
}

func listenKey(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}

// judgeListen checks the host's addresses. If they can't be read, it accepts: BGP itself reports where it can't listen.
func judgeListen(value string, roles LinkRoles) verdict {
	addrs, err := parseListenAddresses(value)
	if err != nil {
		return verdict{err: err}
	}
	links, err := roles([]string{""})
	if err != nil {
		return verdict{}
	}
	return verdict{err: reachable(addrs, links)}
}

func reachable(addrs []netip.Addr, links []hostnet.Role) error {
	own := map[netip.Addr]bool{}
	for _, l := range links {
		for _, a := range l.Addrs {
			own[a] = true
		}
	}
	for _, a := range addrs {
		if !a.IsUnspecified() && !a.IsLoopback() && !own[a] {
			return fmt.Errorf("address %s: no link of this host has it, so that BGP could not listen and all sessions would end: want addresses of the host, or nothing for all", a)
		}
	}
	if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		return errors.New("only the host itself reaches what listens there, so that no other host could open a session: want addresses that others reach, or nothing for all")
	}
	return nil
}
