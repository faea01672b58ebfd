// SPDX-License-Identifier: Apache-2.0

package params

import (
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

// judge refuses values of a parameter that parse but can't be used on this host, because of its links. It keeps its verdicts while the
// values are set.
type judge struct {
	param string
	// value returns what to judge, "" = nothing.
	value func(p *Params) string
	of    func(value string, roles LinkRoles) verdict
	// refused says which verdicts are final, however the links change: refusals, or else acceptances.
	refused  bool
	roles    LinkRoles // nil = nothing is refused
	verdicts map[string]verdict
	seen     map[string]struct{} // values asked for since the last rest
}

// LinkRoles returns the roles of the host's links whose names begin with one of the prefixes: hostnet.Roles.
type LinkRoles func(prefixes []string) ([]hostnet.Role, error)

// verdict is why a value is refused.
type verdict struct {
	err     error // nil = it isn't
	unknown bool  // the links could not be read
}

// refuse returns why a value that parses can't be used.
func (j *judge) refuse(name string, p *Params) error {
	if name != j.param || j.roles == nil || j.value(p) == "" {
		return nil
	}
	value := j.value(p)
	j.seen[value] = struct{}{}
	v, known := j.verdicts[value]
	if !known || v.unknown {
		v = j.of(value, j.roles)
		j.verdicts[value] = v
	}
	return v.err
}

// rest forgets the values that are no longer set.
func (j *judge) rest() {
	for value := range j.verdicts {
		if _, set := j.seen[value]; !set {
			delete(j.verdicts, value)
		}
	}
	clear(j.seen)
}

// review judges by the host's present links, and reports whether a verdict changed.
func (j *judge) review() bool {
	changed := false
	for value, before := range j.verdicts {
		if !before.unknown && (before.err != nil) == j.refused {
			continue
		}
		if after := j.of(value, j.roles); !after.unknown {
			j.verdicts[value] = after
			changed = changed || problems.Reason(after.err) != problems.Reason(before.err)
		}
	}
	return changed
}
