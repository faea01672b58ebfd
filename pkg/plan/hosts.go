// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// DefaultAS is the AS number of hosts where nothing is set.
const DefaultAS model.ASNumber = 64512

// hostAddr is what a host says is its address.
type hostAddr struct {
	addr    netip.Addr // invalid = it says none
	path    string     // of the key that says so
	created int64      // when
}

// host is what etcd says of one; the zero value is of one that isn't there.
type host struct {
	// alive: the agent's lease holds, or it never reported at all.
	exists, alive bool
	addrs         [2]hostAddr    // by family
	as            model.ASNumber // 0 = none that can be read
	cluster       netip.Addr
	// mine are the addresses that are the host's for us: no other comes first.
	mine [2]netip.Addr
}

// readHost puts together what etcd says of a host.
func (e *Engine) readHost(name string) host {
	self := name == e.self
	bird := e.objects[model.HostBirdIPKey{Host: name}]
	h := host{exists: self || bird != nil || e.objects[model.HostMetadataKey{Host: name}] != nil}
	if !h.exists {
		return host{}
	}
	h.alive = self || e.objects[model.StatusKey{Host: name}] != nil || e.objects[model.LastStatusKey{Host: name}] == nil
	v4 := e.objects[model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}]
	if v4 == nil || v4.value == "" {
		v4 = bird
	}
	h.addrs = [2]hostAddr{addrOf(v4, true), addrOf(e.objects[model.BGPHostKey{Host: name, Field: model.BGPHostIPv6}], false)}
	if o := e.objects[model.BGPHostKey{Host: name, Field: model.BGPHostAS}]; o != nil {
		h.as, _ = model.ParseASNumber(valueOf[string](o))
	}
	if o := e.objects[model.BGPHostKey{Host: name, Field: model.BGPHostReflector}]; o != nil {
		h.cluster, _ = netip.ParseAddr(valueOf[string](o)) // a number in an address's form, not a host's: 224.0.0.1 is one
	}
	return h
}

// addrOf reads an address that stands in a key. One that no host can have is none.
func addrOf(o *object, is4 bool) hostAddr {
	if o == nil {
		return hostAddr{}
	}
	a, err := netip.ParseAddr(valueOf[string](o))
	if err != nil || a.Is4() != is4 || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return hostAddr{}
	}
	return hostAddr{a, o.path, o.created}
}

// flushHosts follows from what became of hosts to what depends on them.
func (e *Engine) flushHosts() {
	affected := map[string]struct{}{}
	for name := range e.dirty.hosts {
		affected[name] = struct{}{}
		was, is := e.hosts[name], e.readHost(name)
		for f := range is.addrs {
			e.claim(name, was.addrs[f], is.addrs[f], affected)
		}
		is.mine = was.mine
		e.hosts[name] = is
	}
	for name := range affected {
		e.settle(name)
	}
}

// claim follows a host from one address to another; all that have either are affected.
func (e *Engine) claim(name string, was, is hostAddr, affected map[string]struct{}) {
	if was.path != "" {
		e.report(SameAddress, was.path, "")
	}
	if was.addr != is.addr && was.addr.IsValid() {
		e.claims.remove(was.addr, name)
		if e.claims[was.addr] == nil {
			i, _ := slices.BinarySearchFunc(e.addrs, was.addr, netip.Addr.Compare)
			e.addrs = slices.Delete(e.addrs, i, i+1)
			e.touchAround(was.addr)
		}
	}
	if was.addr != is.addr && is.addr.IsValid() {
		if e.claims[is.addr] == nil {
			i, _ := slices.BinarySearchFunc(e.addrs, is.addr, netip.Addr.Compare)
			e.addrs = slices.Insert(e.addrs, i, is.addr)
			e.touchAround(is.addr)
		}
		e.claims.add(is.addr, name)
	}
	e.dirty.config = e.dirty.config || was.addr != is.addr // a tunnel of ours may have it
	for _, a := range []netip.Addr{was.addr, is.addr} {
		if was.addr != is.addr {
			for p := range e.byGateway[a] { // that may be taken only from its holder
				e.touch(p)
			}
		}
		for other := range e.claims[a] {
			affected[other] = struct{}{}
		}
	}
}

// touchAround has what an address lies in looked at again.
func (e *Engine) touchAround(a netip.Addr) {
	p := single(a)
	e.touch(p)
	for block := range e.blocks.around(p) {
		e.touch(block)
	}
	for learned := range e.learned.around(p) {
		e.touch(learned)
	}
}

// hostAt is the host to which an address belongs, "" = none. Where several say
// that it is theirs: for us this host, then a live one, then the first to say so.
func (e *Engine) hostAt(a netip.Addr) string {
	best := ""
	for name := range e.claims[a] {
		if best == "" || e.before(name, best, familyOf(a)) {
			best = name
		}
	}
	return best
}

func (e *Engine) before(a, b string, family int) bool {
	x, y := e.hosts[a], e.hosts[b]
	switch {
	case a == e.self || b == e.self:
		return a == e.self
	case x.alive != y.alive:
		return x.alive
	}
	return cmp.Or(cmp.Compare(x.addrs[family].created, y.addrs[family].created), strings.Compare(a, b)) < 0
}

// settle finds which addresses are a host's, and has looked at again what goes by it.
func (e *Engine) settle(name string) {
	h := e.hosts[name]
	was := h.mine
	h.mine = [2]netip.Addr{}
	for f, said := range h.addrs {
		if said.addr.IsValid() {
			winner := e.hostAt(said.addr)
			reason := ""
			if winner == name {
				h.mine[f] = said.addr
			} else {
				reason = fmt.Sprintf("host %s says that it has %s, which is host %s's: packets for it go to %s; give one of them another address, or delete the host that is gone",
					name, said.addr, winner, winner)
			}
			e.report(SameAddress, said.path, reason)
		}
		reason := ""
		if owned := e.owned[name]; owned != nil && owned[f] > 0 && h.exists && !said.addr.IsValid() {
			reason = fmt.Sprintf("host %s holds %s blocks but has no address that can be read: they are not routed until its agent has written one: its /debug/invalid says by %[3]s what keeps it from that; where it doesn't, start it with %[3]s, such as %[3]s=first-found",
				name, familyName(f), addrSetting(f))
		}
		e.report(NoHostAddress, model.BGPHostKey{Host: name, Field: addrField(f)}.Path(), reason)
	}
	for f := range was {
		e.dirty.peers[was[f]] = struct{}{}
		e.dirty.peers[h.mine[f]] = struct{}{}
		e.dirty.all = e.dirty.all || was[f] != h.mine[f] && (e.links.pending[was[f]] || e.links.pending[h.mine[f]])
	}
	e.hosts[name] = h
	e.dirty.awaited = e.dirty.awaited || was != h.mine
	if !h.exists && name != e.self {
		delete(e.hosts, name)
	}
	for p := range e.byHost[name] {
		e.touch(p)
	}
	e.reportDead(name)
	if name == e.self {
		e.dirty.config, e.dirty.neighbours = true, true
		e.dirty.all = e.dirty.all || was != h.mine
	}
}

// reportDead says that nothing is sent to a host which would be, if it lived.
func (e *Engine) reportDead(name string) {
	reason := ""
	if h := e.hosts[name]; h.exists && !h.alive && e.byHost[name] != nil {
		reason = fmt.Sprintf("host %s is taken for dead, as its agent's status is not in etcd: nothing is sent to its workloads in pools with an encapsulation; see that calico-node runs there and reaches etcd, or, if the host is gone, delete what etcd has of it",
			name)
	}
	e.report(DeadHost, model.StatusKey{Host: name}.Path(), reason)
}

// addrSetting is what an agent is told by how to find its host's address.
func addrSetting(family int) string { return [...]string{"IP", "IP6"}[family] }

func familyName(family int) string {
	if family == 0 {
		return "IPv4"
	}
	return "IPv6"
}

func addrField(family int) model.BGPHostField {
	if family == 0 {
		return model.BGPHostIPv4
	}
	return model.BGPHostIPv6
}

// asOf is a host's AS number. One that can't be read counts as not set: without any, one
// that is mistyped for all hosts would end all sessions between them.
func (e *Engine) asOf(h host) model.ASNumber {
	return cmp.Or(h.as, valueOf[model.ASNumber](e.objects[model.BGPGlobalASKey{}]), DefaultAS)
}

// isSelf reports whether an address is one of this host's. One of another host that a link
// was just given is not, as the kernel is about to find out.
func (e *Engine) isSelf(a netip.Addr) bool {
	_, onLink := e.links.own[a]
	if name := e.hostAt(a); e.links.pending[a] && name != e.self && name != "" {
		return false
	}
	return onLink || a.IsValid() && a == e.hosts[e.self].mine[familyOf(a)]
}

// ConflictError says that another live host has what this host would take.
type ConflictError struct {
	Host string     // the other one
	Addr netip.Addr // that both would have
}

// Error says what to do.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("address %s is that of host %s, which lives: give one of them another address; if %s is a former name of this machine, its status in etcd ends ReportingTTLSecs after its agent",
		e.Addr, e.Host, e.Host)
}

// Conflict says why this host must not take the addresses that it has found, own:
// one is another live host's. Live is whose agent's lease holds. said are the
// addresses that this very agent has written since it started: of two hosts that
// took one at the same time, the first to write it keeps it. What was told must
// have been flushed. Errors are *ConflictError.
func (e *Engine) Conflict(own, said []netip.Addr) error {
	live := func(name string) bool { return e.objects[model.StatusKey{Host: name}] != nil }
	self := e.hosts[e.self]
	for _, a := range own {
		if !a.IsValid() {
			continue
		}
		f := familyOf(a)
		ours := self.addrs[f]
		for _, name := range slices.Sorted(maps.Keys(e.claims[a])) {
			first := slices.Contains(said, a) && ours.addr == a && ours.created < e.hosts[name].addrs[f].created
			if name != e.self && live(name) && !first {
				return &ConflictError{Host: name, Addr: a}
			}
		}
	}
	return nil
}
