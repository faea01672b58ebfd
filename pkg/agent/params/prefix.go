// SPDX-License-Identifier: Apache-2.0

package params

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// newPrefixJudge refuses values of InterfacePrefix that cover a link of the host's own: treated as a workload's it would pass nothing and
// cut the host off, even from a correction in etcd. A refused value stays refused while it is set: if it were used when the link loses its
// address, the link would not get it back. The default is never refused, as there is no other.
func newPrefixJudge() *judge {
	return &judge{
		param: "InterfacePrefix", of: judgePrefixes, refused: true, verdicts: map[string]verdict{}, seen: map[string]struct{}{},
		value: func(p *Params) string {
			if slices.Equal(p.InterfacePrefixes, Resolve().Params.InterfacePrefixes) {
				return ""
			}
			return strings.Join(p.InterfacePrefixes, ",")
		},
	}
}

func judgePrefixes(value string, roles LinkRoles) verdict {
	prefixes := strings.Split(value, ",")
	links, err := roles(prefixes)
	if err != nil {
		return verdict{fmt.Errorf("the host's own links could not be read, to see that none of them begins so: %w", err), true}
	}
	return verdict{err: coversOwn(prefixes, links)}
}

// coversOwn returns an error that says which link is the host's own, and why.
func coversOwn(prefixes []string, links []hostnet.Role) error {
	refuse := func(link, why string) error {
		return fmt.Errorf("interface prefix %q: %s begins so and is the host's own, as %s; taken for a workload's it would pass nothing and the host be cut off: "+
			"want the beginning of workloads' interfaces alone, such as cali or tap", prefixOf(link, prefixes), link, why)
	}
	for _, l := range links {
		switch {
		case l.Loopback || l.Tunnel: // see below
		case len(l.Addrs) > 0:
			return refuse(l.Name, "it has the address "+l.Addrs[0].String())
		case l.Uplink:
			return refuse(l.Name, "it leads to the default route or to other routers")
		}
	}
	for _, l := range links {
		switch {
		case l.Loopback:
			return refuse(l.Name, "it is the loopback")
		case l.Tunnel:
			return refuse(l.Name, "it is the tunnel to other hosts")
		}
	}
	// A link that doesn't exist yet comes when a pool needs it.
	for _, name := range append(link.TunnelNames(), policy.Loopback) {
		if model.IsWorkloadInterface(name, prefixes) {
			return refuse(name, "that is the name of the loopback or of a tunnel to other hosts")
		}
	}
	return nil
}

// prefixOf returns the prefix that covers a link, "" if none does.
func prefixOf(link string, prefixes []string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(link, p) {
			return p
		}
	}
	return ""
}
