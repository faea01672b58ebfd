// SPDX-License-Identifier: Apache-2.0

package params

import (
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

// judge refuses values of a parameter that parse and can't be used on this host, by
// what its links are. It keeps its verdicts while the values are set.
type judge struct {
	param string
	// value is what is judged, "" = there is nothing to refuse.
	value func(p *Params) string
	of    func(value string, roles LinkRoles) verdict
	// refused says which verdicts stay, whatever becomes of the links: those that
	// refuse, else those that don't.
	refused  bool
	roles    LinkRoles // nil = nothing is refused
	verdicts map[string]verdict
	seen     map[string]struct{} // those that were asked for since the last rest
}

// LinkRoles are what the links are whose names begin so: of the host's namespace, as hostnet.Roles reads them.
type LinkRoles func(prefixes []string) ([]hostnet.Role, error)

// verdict is why a value is refused.
type verdict struct {
	err     error // nil = it isn't
	unknown bool  // as the links could not be read
}

// refuse says why a value that parses can't be used.
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

// rest forgets the values that are not set any more.
func (j *judge) rest() {
	for value := range j.verdicts {
		if _, set := j.seen[value]; !set {
			delete(j.verdicts, value)
		}
	}
	clear(j.seen)
}

// review looks at the host's links again, of which there may be others by now, and
// says whether a verdict changed.
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
