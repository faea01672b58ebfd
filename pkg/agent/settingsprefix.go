// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel"
	"github.com/calico-go/calico/pkg/policy"
)

// prefixJudge refuses values of InterfacePrefix that cover a link of the host's own:
// taken for a workload's it would pass nothing, and the host be cut off, etcd with
// what corrects the value included.
type prefixJudge struct {
	roles    func(prefixes []string) ([]kernel.LinkRole, error) // nil = nothing is refused
	verdicts map[string]prefixVerdict                           // of the values that are set, by value
	seen     map[string]struct{}                                // those that were asked for since the last rest
}

// prefixVerdict is why a value is refused.
type prefixVerdict struct {
	err     error // nil = it isn't
	unknown bool  // as the links could not be read
}

func newPrefixJudge() *prefixJudge {
	return &prefixJudge{verdicts: map[string]prefixVerdict{}, seen: map[string]struct{}{}}
}

// refuse says why a value that parses can't be used. One that is refused stays so
// while it is set: were it used when the link loses its address, the link would not
// get it back. The default is never refused, as there is nothing else.
func (j *prefixJudge) refuse(name string, p *Params) error {
	if name != "InterfacePrefix" || j.roles == nil || slices.Equal(p.InterfacePrefixes, resolve().params.InterfacePrefixes) {
		return nil
	}
	key := strings.Join(p.InterfacePrefixes, ",")
	j.seen[key] = struct{}{}
	v, known := j.verdicts[key]
	if !known || v.unknown {
		v = j.judge(p.InterfacePrefixes)
		j.verdicts[key] = v
	}
	return v.err
}

// rest forgets the values that are not set any more.
func (j *prefixJudge) rest() {
	for key := range j.verdicts {
		if _, set := j.seen[key]; !set {
			delete(j.verdicts, key)
		}
	}
	clear(j.seen)
}

// review looks at the host's links again, of which there may be others by now, and
// says whether a verdict changed.
func (j *prefixJudge) review() bool {
	changed := false
	for key, before := range j.verdicts {
		if before.err != nil && !before.unknown {
			continue
		}
		after := j.judge(strings.Split(key, ","))
		if after.unknown {
			continue
		}
		j.verdicts[key] = after
		changed = changed || errorText(after.err) != errorText(before.err)
	}
	return changed
}

func (j *prefixJudge) judge(prefixes []string) prefixVerdict {
	links, err := j.roles(prefixes)
	if err != nil {
		return prefixVerdict{fmt.Errorf("the host's own links could not be read, to see that none of them begins so: %w", err), true}
	}
	return prefixVerdict{err: coversOwn(prefixes, links)}
}

// coversOwn says which of the links is the host's own, and how that shows.
func coversOwn(prefixes []string, links []kernel.LinkRole) error {
	refuse := func(link, why string) error {
		return fmt.Errorf("interface prefix %q: %s begins so and is the host's own, as %s; taken for a workload's it would pass nothing and the host be cut off: "+
			"want the beginning of workloads' interfaces alone, such as cali or tap", beginningOf(link, prefixes), link, why)
	}
	for _, l := range links {
		switch {
		case l.Loopback || l.Tunnel: // below
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
	// What isn't there yet comes when a pool asks for it.
	for _, name := range append(kernel.TunnelNames(), policy.Loopback) {
		if beginningOf(name, prefixes) != "" {
			return refuse(name, "that is the name of the loopback or of a tunnel to other hosts")
		}
	}
	return nil
}

// beginningOf is the prefix that covers a link, "" = none does.
func beginningOf(link string, prefixes []string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(link, p) {
			return p
		}
	}
	return ""
}
