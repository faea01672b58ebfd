// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/agent/statefile"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
)

// Of pods that leave while no agent runs nobody tells, and an agent may be killed before it has
// deleted the connections of one that left. So the addresses of endpoints are on record from
// before they are connected until their connections are deleted.

// loseFormer notes the addresses on record that led to endpoints of a former run and now don't
// lead there, as lostAddrs does of those that leave in this one.
func (l *loop) loseFormer() {
	if l.recorded != nil {
		return
	}
	former, err := l.system.addresses.Read()
	if err != nil {
		l.log.Warn("connections of pods that left while no agent ran stay tracked until they time out", "err", err)
	}
	l.recorded = map[statefile.Address]struct{}{}
	var lost []netip.Addr
	for _, a := range former {
		l.recorded[a] = struct{}{}
		if l.hasLeft(a) {
			lost = append(lost, a.Addr)
		}
	}
	l.lose(l.state.notOwn(lost))
}

// hasLeft says that an address no longer leads where it led.
func (l *loop) hasLeft(a statefile.Address) bool {
	var next hostpath.Endpoint
	if t := l.desired.interfaces[a.Interface]; t != nil {
		next = t.want
	}
	return len(lostAddrs(hostpath.Endpoint{Interface: a.Interface, Container: a.Container, Addrs: []netip.Addr{a.Addr}, Active: true}, next)) > 0
}

// record puts the addresses of endpoints on record, and returns these.
func (l *loop) record(endpoints []hostpath.Endpoint) []hostpath.Endpoint {
	var failed error
	for _, e := range endpoints {
		for _, addr := range e.Addrs {
			a := statefile.Address{Addr: addr, Interface: e.Interface, Container: e.Container}
			if _, there := l.recorded[a]; there || !e.Active {
				continue
			}
			err := l.system.addresses.Add(a)
			if err == nil {
				l.recorded[a] = struct{}{}
			} else {
				failed, l.unrecorded = err, true
			}
		}
	}
	l.sayRecord(failed)
	return endpoints
}

// recordAgain puts on record what could not be.
func (l *loop) recordAgain() {
	if l.unrecorded {
		l.unrecorded = false
		l.record(l.desired.all())
	}
}

// forget takes off the record who left and has no connections any more.
func (l *loop) forget() {
	for a := range l.recorded {
		if l.isFlushing(a.Addr) || !l.hasLeft(a) {
			continue
		}
		err := l.system.addresses.Remove(a)
		if err == nil {
			delete(l.recorded, a)
		}
		l.sayRecord(err)
	}
}

// sayRecord logs that the record can't be kept, when that changes.
func (l *loop) sayRecord(err error) {
	text := problems.Reason(err)
	if text != "" && text != l.recordProblem {
		l.log.Warn("addresses of pods are not on record: where one leaves while no agent runs, its connections stay tracked until they time out", "reason", text)
	}
	l.recordProblem = text
}
