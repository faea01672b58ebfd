// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ManagerTiming is how long the ACL manager waits; what is 0 has its default.
type ManagerTiming struct {
	Heartbeat time.Duration // 30 s: between two signs of life
	Lost      time.Duration // 65 s: a plugin that is silent for so long is lost
}

// Manager is the ACL manager: it makes ACLs of security groups.
type Manager struct {
	timing    ManagerTiming
	groups    map[string]*group
	endpoints map[string]*managed
	refers    map[string]map[string]bool // to a group, which groups

	plugin    line
	published time.Time // the plugin's last publication
	beat      time.Time // the next sign of life
	sweep     time.Time // when groups that were not told again are gone; zero = never
	due       time.Time // when all groups are to be asked for; zero = never
	out       []Action
}

// group is a security group.
type group struct {
	rules   Rules
	members map[string][]netip.Addr
	stale   bool    // it was not told since all were asked for
	parts   *[4]one // what its rules come to; nil = to be worked out
}

// one is a list of rules of one family and direction, as it is written, without brackets.
type one []byte

// managed is an endpoint that is, or was, in a group.
type managed struct {
	groups    map[string]bool
	published []byte // its acls, nil = never
}

// NewManager returns an ACL manager that knows no group.
func NewManager(timing ManagerTiming) *Manager {
	orDefault(&timing.Heartbeat, 30*time.Second)
	orDefault(&timing.Lost, 65*time.Second)
	return &Manager{timing: timing, groups: map[string]*group{}, endpoints: map[string]*managed{}, refers: map[string]map[string]bool{}}
}

// Start begins.
func (m *Manager) Start(now time.Time) []Action {
	m.do(Subscribe{TopicGroups}, Subscribe{TopicNetworkHeartbeat})
	m.plugin.renew(now)
	m.published, m.beat = now, now
	return m.Tick(now)
}

// settle is how long a subscription that was sent takes to be heeded.
const settle = 100 * time.Millisecond

// Connected is that the plugin's publications arrive, from now on or again: all groups are asked for.
func (m *Manager) Connected(now time.Time) []Action {
	m.due = now.Add(settle)
	return m.Tick(now)
}

func (m *Manager) getGroups(now time.Time) {
	for _, g := range m.groups {
		g.stale = true
	}
	m.sweep, m.due = time.Time{}, time.Time{}
	m.plugin.ask(TypeGetGroups, now)
	m.do(Ask{PeerPlugin, encode(wireHeartbeat{TypeGetGroups, timestamp(now)})})
}

// PluginReply is the response to GETGROUPS.
func (m *Manager) PluginReply(now time.Time, body []byte) []Action {
	if m.plugin.answer(now) == TypeGetGroups {
		o, _, err := parse(body)
		rc, message := "", ""
		if err == nil {
			rc, message, err = o.outcome()
		}
		switch {
		case err != nil:
			m.do(problem("the plugin's answer to %s: %v", TypeGetGroups, err))
		case rc != "" && rc != Success:
			m.do(problem("the plugin answers %s by %.40s %.200s", TypeGetGroups, rc, message))
		default:
			m.sweep = now.Add(m.timing.Lost)
		}
	}
	return m.Tick(now)
}

// Request is one of a Felix.
func (m *Manager) Request(now time.Time, from any, body []byte) []Action {
	o, kind, err := parse(body)
	switch {
	case err != nil:
		m.do(Reply{from, encode(response{kind, Invalid, err.Error()})})
	case kind == TypeHeartbeat:
		m.do(Reply{from, encode(wireHeartbeat{Type: TypeHeartbeat})})
	case kind == TypeGetACL:
		id, err := parseID(o)
		if err != nil {
			m.do(Reply{from, encode(response{kind, Invalid, err.Error()})})
			break
		}
		m.do(Reply{from, encode(wireACLAnswer{TypeGetACL, id, Success, ""})})
		m.republish(now, id)
	default:
		m.do(Reply{from, encode(response{kind, Invalid, fmt.Sprintf("unknown type %.40q", kind)})})
	}
	return m.Tick(now)
}

// wireACLAnswer is the response to GETACLSTATE as it is written.
type wireACLAnswer struct {
	Type    string `json:"type"`
	ID      string `json:"endpoint_id"`
	RC      string `json:"rc"`
	Message string `json:"message"`
}

// Subscribed is that a Felix subscribed to a topic.
func (m *Manager) Subscribed(now time.Time, topic string) []Action {
	if m.endpoints[topic] != nil {
		m.republish(now, topic)
	}
	return m.Tick(now)
}

// Tick is that time has passed.
func (m *Manager) Tick(now time.Time) []Action {
	if !now.Before(m.beat) {
		m.do(Publish{TopicACLHeartbeat, encode(wireHeartbeat{TypeHeartbeat, timestamp(now)})})
		m.beat = now.Add(m.timing.Heartbeat)
	}
	if lost := m.timing.Lost; m.plugin.asked != "" && reached(now, m.plugin.sent, lost) || reached(now, m.published, lost) {
		m.do(problem("the plugin has been silent for %s: connecting anew", lost), Reconnect{PeerPlugin})
		m.plugin.renew(now)
		m.published, m.due = now, now
	}
	if m.plugin.asked == "" && !m.due.IsZero() && !now.Before(m.due) {
		m.getGroups(now)
	}
	if !m.sweep.IsZero() && !now.Before(m.sweep) {
		m.sweep = time.Time{}
		m.sweepGroups(now)
	}
	out := m.out
	m.out = nil
	return out
}

// sweepGroups deletes what the plugin did not tell when it was asked for all: it was deleted while nobody heard it.
func (m *Manager) sweepGroups(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		if m.groups[id].stale {
			m.do(note("group %s is not there any more", id))
			m.update(now, id, Rules{}, nil)
		}
	}
}

// Next is when Tick is to be called, if nothing happens before.
func (m *Manager) Next() time.Time {
	next := m.published.Add(m.timing.Lost)
	asked, due := time.Time{}, m.due
	if m.plugin.asked != "" {
		asked, due = m.plugin.sent.Add(m.timing.Lost), time.Time{}
	}
	for _, t := range [...]time.Time{m.beat, m.sweep, asked, due} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// Published is a publication of the plugin.
func (m *Manager) Published(now time.Time, topic string, body []byte) []Action {
	m.published = now
	if topic == TopicGroups {
		m.groupUpdate(now, body)
	}
	return m.Tick(now)
}

func (m *Manager) groupUpdate(now time.Time, body []byte) {
	o, kind, err := parse(body)
	if err == nil && kind != TypeGroup {
		return
	}
	var id string
	if err == nil {
		id, err = o.text("group")
	}
	var members map[string][]netip.Addr
	if err == nil {
		members, err = parseMembers(o)
	}
	var in object
	if err == nil {
		in, err = o.object("rules")
	}
	if err == nil && in == nil && len(members) > 0 {
		err = &fieldError{field: "rules"}
	}
	var rules Rules
	var left []string
	if err == nil {
		rules, left, err = parseRules(in)
	}
	if err != nil {
		m.do(problem("a %s is ignored, group %.80q stays as it is: %v", TypeGroup, id, err))
		return
	}
	for _, why := range left {
		m.do(problem("group %s: %s", id, why))
	}
	m.update(now, id, rules, members)
}

func parseMembers(o object) (map[string][]netip.Addr, error) {
	if o.null("members") {
		return nil, &fieldError{field: "members"}
	}
	list, err := o.object("members")
	if err != nil {
		return nil, err
	}
	members := make(map[string][]netip.Addr, len(list))
	for id := range list {
		if err := CheckID(id); err != nil {
			return nil, &fieldError{"members", err}
		}
		var texts []string
		if json.Unmarshal(list[id], &texts) != nil {
			return nil, &fieldError{"members", fmt.Errorf("%s: want a list of addresses", id)}
		}
		addrs := make([]netip.Addr, 0, len(texts))
		for _, s := range texts {
			a, err := parseAddr(strings.TrimSpace(s))
			if err != nil {
				return nil, &fieldError{"members", fmt.Errorf("%s: %w", id, err)}
			}
			addrs = append(addrs, a)
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		members[id] = slices.Compact(addrs)
	}
	return members, nil
}

// update makes a group what it is now; without members it is gone.
func (m *Manager) update(now time.Time, id string, rules Rules, members map[string][]netip.Addr) {
	old := m.groups[id]
	if old == nil {
		old = &group{}
	}
	affected := map[string]bool{}
	for _, g := range [...]map[string][]netip.Addr{old.members, members} {
		for ep := range g {
			affected[ep] = true
		}
	}
	if !maps.EqualFunc(old.members, members, slices.Equal) {
		for other := range m.refers[id] {
			if g := m.groups[other]; g != nil {
				g.parts = nil
				for ep := range g.members {
					affected[ep] = true
				}
			}
		}
	}
	m.refer(id, old.rules, false)
	for ep := range old.members {
		delete(m.endpoints[ep].groups, id)
	}
	delete(m.groups, id)
	if len(members) > 0 {
		m.groups[id] = &group{rules: rules, members: members}
		m.refer(id, rules, true)
	}
	for ep := range members {
		if m.endpoints[ep] == nil {
			m.endpoints[ep] = &managed{groups: map[string]bool{}}
		}
		m.endpoints[ep].groups[id] = true
	}
	acls, bodies := map[string][]byte{}, map[string][]byte{} // by the groups, as many endpoints are in the same
	for _, ep := range slices.Sorted(maps.Keys(affected)) {
		e := m.endpoints[ep]
		of := strings.Join(slices.Sorted(maps.Keys(e.groups)), "\x00")
		if acls[of] == nil {
			acls[of] = m.acls(e)
			bodies[of] = encodeACL(acls[of], now)
		}
		if !bytes.Equal(e.published, acls[of]) {
			e.published = acls[of]
			m.do(Publish{ep, bodies[of]})
		}
		if len(e.groups) == 0 {
			delete(m.endpoints, ep) // that it is in none has been said
		}
	}
}

// refer notes to which groups a group's rules refer, or forgets it.
func (m *Manager) refer(id string, rules Rules, does bool) {
	for _, r := range slices.Concat(rules.Inbound, rules.Outbound) {
		switch {
		case r.Group == "":
		case does:
			if m.refers[r.Group] == nil {
				m.refers[r.Group] = map[string]bool{}
			}
			m.refers[r.Group][id] = true
		default:
			delete(m.refers[r.Group], id)
			if len(m.refers[r.Group]) == 0 {
				delete(m.refers, r.Group)
			}
		}
	}
}

// republish says again what is allowed of an endpoint, nothing where it isn't known.
func (m *Manager) republish(now time.Time, id string) {
	e := m.endpoints[id]
	if e == nil {
		m.do(Publish{id, encodeACL(m.acls(&managed{}), now)})
		return
	}
	if e.published == nil {
		e.published = m.acls(e)
	}
	m.do(Publish{id, encodeACL(e.published, now)})
}

func encodeACL(acls []byte, now time.Time) []byte {
	return fmt.Appendf(nil, `{"type":%q,"acls":%s,"issued":%s}`, TypeACL, acls, timestamp(now))
}

func (m *Manager) do(a ...Action) { m.out = append(m.out, a...) }
