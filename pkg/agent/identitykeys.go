// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"

	"github.com/calico-go/calico/pkg/model"
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
