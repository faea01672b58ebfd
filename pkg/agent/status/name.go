// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// problemName is the setting to change if another host has the name.
const problemName = "NODENAME"

// nameTakenError says that another agent's lease holds the host's name.
type nameTakenError struct {
	Name string
	Addr netip.Addr // the other's, invalid = unknown
}

// Error says what to do.
func (e *nameTakenError) Error() string {
	has := ""
	if e.Addr.IsValid() {
		has = " and has " + e.Addr.String()
	}
	return fmt.Sprintf("another host that is called %s lives%s: give this one another name, or wait until that one's status is gone", e.Name, has)
}

// ranges returns what judge must know of etcd.
func (h *host) ranges() []model.Range {
	keys := addressKeys(h.name)
	return []model.Range{model.KeyRange(model.StatusKey{Host: h.name}), model.KeyRange(keys[0]), model.KeyRange(keys[1]), model.KeyRange(subnetKey(h.name))}
}

// judge returns a *nameTakenError if the status in etcd is another host's. It is this host's if its lease was obtained in the place where
// this agent runs. It is also this host's if a starting agent finds one of the host's own addresses beside it: that of an agent before the
// boot. An agent that has already had the name must not rely on the address: two hosts with one address would take the name from each other
// for ever.
func (h *host) judge(v *model.View, own []netip.Addr) error {
	stands := v.Get(model.StatusKey{Host: h.name})
	if !stands.Exists() || h.leases.owns(stands.Lease) {
		return nil
	}
	taken := &nameTakenError{Name: h.name}
	for _, a := range storedAddresses(h.name, v) {
		if h.written == 0 && slices.Contains(own, a) {
			return nil
		}
		if !taken.Addr.IsValid() || a.Is4() {
			taken.Addr = a
		}
	}
	return taken
}

func addressKeys(host string) [2]model.Key {
	return [2]model.Key{model.BGPHostKey{Host: host, Field: model.BGPHostIPv4}, model.BGPHostKey{Host: host, Field: model.BGPHostIPv6}}
}

func subnetKey(host string) model.Key {
	return model.BGPHostKey{Host: host, Field: model.BGPHostNetworkV4}
}

// storedAddresses returns the host's addresses in etcd, by key, without unreadable ones.
func storedAddresses(host string, v *model.View) map[model.Key]netip.Addr {
	all := map[model.Key]netip.Addr{}
	for _, key := range addressKeys(host) {
		text, _ := v.Get(key).Value.(model.Text)
		if a, err := netip.ParseAddr(string(text)); err == nil {
			all[key] = a
		}
	}
	return all
}

// staleAddresses returns the keys of addresses in etcd that the host doesn't have.
func (h *host) staleAddresses(v *model.View, own []netip.Addr) []model.Key {
	var stale []model.Key
	for key, a := range storedAddresses(h.name, v) {
		if slices.Contains(own, a) {
			continue
		}
		stale = append(stale, key)
		if subnet := v.Get(subnetKey(h.name)); a.Is4() && subnet.Exists() {
			stale = append(stale, subnet.Key)
		}
	}
	return stale
}

// ownAddresses returns the addresses of this host's links.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	var addrs []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs, err
}
