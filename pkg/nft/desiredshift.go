// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// A policy that comes to all endpoints changes what each of them asks, and is worked
// out once for each list: where all members of a group come to ask the same, the group
// does, and its members stay where they are.

// shift is what members of a group come to ask.
type shift struct {
	from *group
	to   policy.Place
}

// shifted is who does so.
type shifted struct {
	to    policy.Verdicts
	names []string // of their interfaces
}

// shift has a workload interface ask something else. nameGroups must follow, and
// nothing else of the interface change before.
func (d *desired) shift(name string, old, v *policy.Verdicts, direction model.Direction) {
	if old.Equal(*v) {
		return
	}
	s := shift{d.groups.joined[slot{dispatchOf(direction), table.NameBytes(name)}], v.Place()}
	m := d.groups.shifts[s]
	if m == nil {
		m = &shifted{to: *v}
		d.groups.shifts[s] = m
	}
	m.names = append(m.names, name)
}

// shiftGroups has them do so.
func (d *desired) shiftGroups() {
	trimmed := func(use func(had, has []policy.RulesID, n int)) {
		for s, m := range d.groups.shifts {
			for _, lists := range [...][2][]policy.RulesID{{s.from.verdicts.Policies, m.to.Policies}, {s.from.verdicts.Profiles, m.to.Profiles}} {
				had, has := policy.Trim(lists[0], lists[1])
				use(had, has, len(m.names))
			}
		}
	}
	trimmed(func(_, has []policy.RulesID, n int) { d.use(has, n) }) // first: what some come to and others leave stays
	trimmed(func(had, _ []policy.RulesID, n int) { d.use(had, -n) })
	var key []byte
	for s, m := range d.groups.shifts {
		direction := s.from.direction
		key = groupKey(key[:0], &m.to, direction)
		if s.from.name != "" && len(m.names) == len(s.from.members) && d.groups.asking[string(key)] == nil {
			delete(d.groups.asking, s.from.key)
			s.from.verdicts, s.from.key = m.to, string(key)
			d.groups.asking[s.from.key] = s.from
			d.dirty[s.from.name] = true
			continue
		}
		for _, name := range m.names {
			d.join(name, &m.to, direction)
		}
	}
	clear(d.groups.shifts)
}
