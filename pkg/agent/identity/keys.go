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

// hostKeys are the values that keys of a host should hold, by path; an empty value means none. Other keys stay as they are.
type hostKeys map[string]hostValue

type hostValue struct {
	key  model.Key
	text model.Text
}

func (k hostKeys) set(key model.Key, text string) { k[key.Path()] = hostValue{key, model.Text(text)} }

// wantedKeys returns the keys for what was found.
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

// conflicts say, by family, why the host must not take what it found; nil = it may.
type conflicts [2]error

func (c conflicts) any() bool { return c[0] != nil || c[1] != nil }

func (c conflicts) equal(o conflicts) bool {
	return problems.Reason(c[0]) == problems.Reason(o[0]) && problems.Reason(c[1]) == problems.Reason(o[1])
}

// text returns the first conflict, "" for none.
func (c conflicts) text() string { return cmp.Or(problems.Reason(c[0]), problems.Reason(c[1])) }

// refuse removes the addresses that are other hosts'.
func (f *finding) refuse(c conflicts) {
	for family, err := range c {
		if err != nil {
			f.own[family], f.keep[family], f.errs[family] = plan.Identity{}, false, err
		}
	}
}

// change makes the keys hold these values, provided that they are still as stored. It is empty if they hold them already.
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
