// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// hostKeys are what keys of a host shall hold, by path; an empty value is none.
// Keys that aren't among them stay as they are.
type hostKeys map[string]hostValue

type hostValue struct {
	key  model.Key
	text model.Text
}

func (k hostKeys) set(key model.Key, text string) { k[key.Path()] = hostValue{key, model.Text(text)} }

// wantedKeys are those that say what was found.
func wantedKeys(host string, f finding, as model.ASNumber) hostKeys {
	k := hostKeys{}
	for family, own := range f.own {
		if f.keep[family] {
			continue
		}
		addr, subnet := "", ""
		if own.Addr.IsValid() {
			addr, subnet = own.Addr.Addr().String(), own.Addr.Masked().String()
		}
		if family == 0 {
			k.set(model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, addr)
			k.set(model.BGPHostKey{Host: host, Field: model.BGPHostNetworkV4}, subnet)
		} else {
			k.set(model.BGPHostKey{Host: host, Field: model.BGPHostIPv6}, addr)
		}
	}
	if as != 0 {
		k.set(model.BGPHostKey{Host: host, Field: model.BGPHostAS}, as.String())
	}
	return k
}

// refusedKeys say of no address that it is the host's.
func refusedKeys(host string) hostKeys { return wantedKeys(host, finding{}, 0) }

// conflicts say by family why the host must not take what it found, nil = it may.
type conflicts [2]error

func (c conflicts) any() bool { return c[0] != nil || c[1] != nil }

func (c conflicts) equal(o conflicts) bool {
	return problems.Reason(c[0]) == problems.Reason(o[0]) && problems.Reason(c[1]) == problems.Reason(o[1])
}

// text is of the first, "" for none.
func (c conflicts) text() string { return cmp.Or(problems.Reason(c[0]), problems.Reason(c[1])) }

// refuse leaves out the addresses that are other hosts'. The other family has its own:
// it stays as it is until the name is known to be this host's.
func (f *finding) refuse(c conflicts, unnamed bool) {
	for family := range c {
		switch {
		case c[family] != nil:
			f.own[family], f.keep[family], f.errs[family] = plan.Identity{}, false, c[family]
		case c.any() && unnamed:
			f.keep[family] = true
		}
	}
}

// takeBack leaves out the families of which etcd has an address that is another host's by now. What was found comes into
// its place when the name is known to be this host's.
func (f *finding) takeBack(stale [2]bool) {
	for family := range stale {
		switch {
		case stale[family]:
			f.own[family], f.keep[family] = plan.Identity{}, false
		case stale != [2]bool{}:
			f.keep[family] = true
		}
	}
}

// change makes them so, if the keys are still as they are stored. It is empty
// where they are right.
func (k hostKeys) change(stored map[string]model.Entry) model.Change {
	var c model.Change
	for _, path := range slices.Sorted(maps.Keys(k)) {
		want, is := k[path], stored[path]
		text, read := is.Value.(model.Text)
		if read && is.Err == nil && text == want.text || want.text == "" && !is.Exists() {
			continue
		}
		c.Compares = append(c.Compares, model.Compare{Key: want.key, Revision: is.Revision})
		if want.text == "" {
			c.Deletes = append(c.Deletes, want.key)
		} else {
			c.Puts = append(c.Puts, model.Put{Key: want.key, Value: want.text})
		}
	}
	return c
}
