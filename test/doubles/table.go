// SPDX-License-Identifier: Apache-2.0

package doubles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// Table stands for nft.Firewall. Its fields are read and changed within Do.
type Table struct {
	kernel[nft.Event]
	Hold    time.Duration    // of every Apply
	Fail    error            // of every Apply
	Refuse  map[string]error // of endpoints, by path
	Full    []string         // interfaces whose endpoints came to their connections of late
	Audits  int              // asked for so far
	Applied map[string]int   // the indexes of links, by name, when it was applied last

	settings  policy.Settings
	endpoints map[string]*policy.Endpoint
	links     map[string]int
	touched   map[string]bool // endpoints to report on
	pending   int             // changes that aren't written
	checked   bool            // what is held is known: it needn't be compared
	cuts      map[string]nft.Flow
}

// NewTable makes one that holds nothing.
func NewTable() *Table {
	return &Table{endpoints: map[string]*policy.Endpoint{}, links: map[string]int{}, touched: map[string]bool{}, cuts: map[string]nft.Flow{}, pending: 1}
}

// Configure is nft.Firewall's.
func (t *Table) Configure(s policy.Settings) {
	t.Do(func() {
		if reflect.DeepEqual(t.settings, s) {
			return
		}
		t.settings = s
		t.pending++
		for path, ep := range t.endpoints {
			if ep != nil {
				t.touched[path] = true
			}
		}
	})
}

// Tunnels is nft.Firewall's. It keeps nothing of them.
func (t *Table) Tunnels(policy.Tunnels) {}

// Update is nft.Firewall's.
func (t *Table) Update(c policy.Changes) {
	t.Do(func() {
		t.pending += len(c.Rules) + len(c.Sets)
		if c.Pools != nil {
			t.pending++
		}
		for path, ep := range c.Endpoints {
			t.touched[path] = true
			if !reflect.DeepEqual(t.endpoints[path], ep) {
				t.endpoints[path] = ep
				if t.problem(path) == nil {
					t.pending++
				}
			}
		}
	})
}

// Links is nft.Firewall's.
func (t *Table) Links(indexes map[string]int) { t.Do(func() { maps.Copy(t.links, indexes) }) }

// Audit is nft.Firewall's.
func (t *Table) Audit() { t.Do(func() { t.checked, t.Audits = false, t.Audits+1 }) }

// Apply is nft.Firewall's. Of its counts of what is in the table it knows none.
func (t *Table) Apply(ctx context.Context) (r nft.Report, err error) {
	var hold time.Duration
	t.Do(func() { hold = t.Hold })
	time.Sleep(hold)
	t.Do(func() { r, err = t.apply(ctx) })
	return r, err
}

func (t *Table) apply(ctx context.Context) (nft.Report, error) {
	err := cmp.Or(ctx.Err(), t.Fail)
	if len(t.settings.Prefixes) == 0 {
		err = cmp.Or(err, errors.New("there are no prefixes of workload interfaces: configure them"))
	}
	r := nft.Report{Programmed: map[string]error{}, Whole: !t.checked}
	for path := range t.touched {
		r.Programmed[path] = cmp.Or(err, t.problem(path))
	}
	t.Applied = maps.Clone(t.links)
	if t.checked = err == nil; err != nil {
		return r, fmt.Errorf("apply policy to nftables: %w", err)
	}
	if r.Whole {
		r.Repairs, t.drift = t.drift, 0
	}
	r.Writes, t.pending = t.pending+r.Repairs, 0
	clear(t.touched)
	return r, nil
}

func (t *Table) problem(path string) error {
	ep := t.endpoints[path]
	if ep != nil && ep.Workload && ep.Dropped == "" && ep.Interface != "" {
		for _, prefix := range t.settings.Prefixes {
			if strings.HasPrefix(ep.Interface, prefix) {
				return t.Refuse[path]
			}
		}
		return fmt.Errorf("interface %s begins with none of the prefixes of workload interfaces (%s): it is not enforced", ep.Interface, strings.Join(t.settings.Prefixes, ", "))
	}
	return t.Refuse[path]
}

// Cut is nft.Firewall's, but forgets nothing by itself.
func (t *Table) Cut(cuts []nft.Cut) error {
	t.Do(func() {
		for _, c := range cuts {
			t.cuts[c.Set()+c.Key()] = c.Flow
		}
	})
	return nil
}

// Uncut is nft.Firewall's.
func (t *Table) Uncut(flows []nft.Flow) (err error) {
	t.Do(func() {
		for _, f := range flows {
			if _, ok := t.cuts[f.Set()+f.Key()]; !ok {
				err = fmt.Errorf("%+v is not cut", f)
				return
			}
		}
		for _, f := range flows {
			delete(t.cuts, f.Set()+f.Key())
		}
	})
	return err
}

// ReadCuts is nft.Firewall's.
func (t *Table) ReadCuts() (flows []nft.Flow, err error) {
	t.Do(func() {
		for _, f := range t.cuts {
			flows = append(flows, f)
		}
	})
	return flows, nil
}

// Reached is nft.Firewall's.
func (t *Table) Reached() (names []string, err error) {
	t.Do(func() { names = slices.Clone(t.Full) })
	return names, nil
}

// Close is nft.Firewall's.
func (t *Table) Close() error { return nil }
