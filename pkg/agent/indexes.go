// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/policy"
)

// index tells the firewall which indexes the links of workload interfaces have now. It compares packets by
// them, so it is told of each that is another at once: also while nothing of etcd is acted upon.
func (l *loop) index(names []string) {
	if len(names) > 0 {
		l.firewall.Links(l.path.Indexes(names...))
	}
}

// indexAll tells it of all links.
func (l *loop) indexAll() { l.index(slices.Collect(maps.Keys(l.desired.interfaces))) }

// interfacesOf are those of the workloads that come, or are others.
func interfacesOf(c policy.Changes) []string {
	var names []string
	for _, ep := range c.Endpoints {
		if ep != nil && ep.Workload && ep.Interface != "" {
			names = append(names, ep.Interface)
		}
	}
	return names
}
