// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// problemName is what a person would change where another host has the name.
const problemName = "NODENAME"

// nameTakenError says that another agent's lease holds the host's name.
type nameTakenError struct {
	Name string
	Addr netip.Addr // the other's, invalid = not known
}

// Error says what to do.
func (e *nameTakenError) Error() string {
	has := ""
	if e.Addr.IsValid() {
		has = " and has " + e.Addr.String()
	}
	return fmt.Sprintf("another host that is called %s lives%s: give this one another name, or wait until that one's status is gone", e.Name, has)
}

// ranges are what is to be known of etcd to judge whose the name is.
func (h *host) ranges() []model.Range {
	keys := addressKeys(h.name)
	return []model.Range{model.KeyRange(model.StatusKey{Host: h.name}), model.KeyRange(keys[0]), model.KeyRange(keys[1]), model.KeyRange(subnetKey(h.name))}
}

// judge returns a *nameTakenError where the status in etcd is another host's. It is this host's where its lease was taken
// in the place where this agent runs, and where an agent that starts finds one of the host's own addresses beside it: of
// the agent before the boot. An agent that has had the name knows better: two hosts with one address would take it
// from each other for ever.
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

// storedAddresses are the host's addresses as etcd says, by key. What can't be read is none.
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

// staleAddresses are the keys of addresses in etcd that the host doesn't have.
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

// ownAddresses are the addresses of this host's links.
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
