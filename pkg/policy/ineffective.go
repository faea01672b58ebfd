// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/calico-go/calico/pkg/model"
)

// ineffective says of untracked policies, by path, that they are without effect here:
// those that pick "*" and no other host endpoint of this host. Where a forwarded
// packet will leave is not known before connection tracking.
func (ls *locals) ineffective() map[string]error {
	var wild, others []*local
	for _, l := range ls.hosts {
		if l.host.Name == "*" {
			wild = append(wild, l)
		} else {
			others = append(others, l)
		}
	}
	out := map[string]error{}
	for _, l := range wild {
		for _, path := range ls.untrackedOf(l) {
			if out[path] == nil {
				out[path] = fmt.Errorf(`it is untracked, and picks no host endpoint of this host but %s, whose name is "*": on forwarded packets it has no effect. `+
					`Take "untracked" out, or have it pick a host endpoint with the name or an address of an interface`, l.path)
			}
		}
	}
	for _, l := range others {
		for _, path := range ls.untrackedOf(l) {
			delete(out, path)
		}
	}
	return out
}

// untrackedOf are the paths of the untracked policies that pick an endpoint.
func (ls *locals) untrackedOf(l *local) []string {
	ep := ls.index.endpoints[l.path]
	if ep == nil {
		return nil
	}
	var paths []string
	for _, m := range ep.matches[forOwn] {
		for _, p := range m.query.policies {
			if p.how.untracked {
				paths = append(paths, model.PolicyKey{Tier: p.id.Tier, Policy: p.id.Name}.Path())
			}
		}
	}
	return paths
}
