// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ManagerTiming has the ACL manager's timeouts. Zero values have defaults.
type ManagerTiming struct {
	Heartbeat time.Duration // 30 s: between two signs of life
	Lost      time.Duration // 65 s: a plugin silent for so long is lost
}

// Manager is the ACL manager: it makes ACLs from security groups.
type Manager struct {
	timing    ManagerTiming
	groups    map[string]*group
	endpoints map[string]*managed
	refers    map[string]map[string]bool // by group, the groups that refer to it

	plugin    line
	published time.Time       // time of the plugin's last publication
	beat      time.Time       // time of the next sign of life
	sweep     time.Time       // when to delete groups that were not repeated; zero = never
	due       time.Time       // when to ask for all groups; zero = never
	unheard   bool            // nothing was published over the current connection
	named     bool            // a group was received since all were asked for
	quiet     time.Time       // when the groups count as complete because no more came; zero = not yet
	whole     bool            // the groups have been complete: before that, Felixes keep what they have
	wanted    map[string]bool // endpoints that were asked for before that
	listed    listed
	out       []Action
}

// group is a security group.
type group struct {
	rules   Rules
	members map[string][]netip.Addr
	stale   bool    // not repeated since all were asked for
	parts   *[4]one // the resulting ACL parts; nil = must be computed
}

// one is an encoded list of rules of one family and direction, without brackets.
type one []byte

// managed is an endpoint that is, or was, in a group.
type managed struct {
	groups    map[string]bool
	published []byte // its encoded ACLs, nil = never
}

// NewManager returns an ACL manager without groups.
func NewManager(timing ManagerTiming) *Manager {
	orDefault(&timing.Heartbeat, 30*time.Second)
	orDefault(&timing.Lost, 65*time.Second)
	return &Manager{timing: timing, groups: map[string]*group{}, endpoints: map[string]*managed{}, refers: map[string]map[string]bool{}, wanted: map[string]bool{}, listed: listed{}}
}

// Start starts the manager.
func (m *Manager) Start(now time.Time) []Action {
	m.do(Subscribe{TopicGroups}, Subscribe{TopicNetworkHeartbeat})
	m.plugin.renew(now)
	m.published, m.beat = now, now
	return m.Tick(now)
}

const (
	// settle is the time for a subscription to take effect, and the longest pause between two of many groups.
	settle = 100 * time.Millisecond
	// allCame is the pause after which all groups count as received for the first time, unless a sign of life says so.
	allCame = time.Second
	// retryGroups is the pause before asking again for groups that the plugin didn't know yet.
	retryGroups = 5 * time.Second
	// maxWanted bounds the endpoints recorded before the groups are known.
	maxWanted = 1 << 16
)

// Connected records that the plugin's publications arrive, for the first time or again. It asks for all groups, and
// once more when the first publication shows that the subscription is in effect.
func (m *Manager) Connected(now time.Time) []Action {
	m.due, m.unheard = now.Add(settle), true
	return m.Tick(now)
}

func (m *Manager) getGroups(now time.Time) {
	for _, g := range m.groups {
		g.stale = true
	}
	m.sweep, m.due, m.named = time.Time{}, time.Time{}, false
	m.plugin.ask(TypeGetGroups, now)
	m.do(Ask{PeerPlugin, encode(wireHeartbeat{TypeGetGroups, timestamp(now)})})
}

// PluginReply handles the response to GETGROUPS.
func (m *Manager) PluginReply(now time.Time, body []byte) []Action {
	if m.plugin.answer(now) == TypeGetGroups {
		o, _, err := parse(body)
		rc, message := "", ""
		if err == nil {
			rc, message, err = o.outcome()
		}
		switch {
		case err != nil:
			m.due = now.Add(retryGroups)
			m.do(problem("the plugin's answer to %s: %v", TypeGetGroups, err))
		case rc != "" && rc != Success:
			m.due = now.Add(retryGroups)
			m.do(problem("the plugin answers %s by %.40s %.200s", TypeGetGroups, rc, message))
		default:
			m.sweep, m.quiet = now.Add(m.timing.Lost), now.Add(allCame)
		}
	}
	return m.Tick(now)
}

// Request handles a request of a Felix.
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

// wireACLAnswer is the encoding of the response to GETACLSTATE.
type wireACLAnswer struct {
	Type    string `json:"type"`
	ID      string `json:"endpoint_id"`
	RC      string `json:"rc"`
	Message string `json:"message"`
}

// Subscribed handles a Felix's subscription to a topic.
func (m *Manager) Subscribed(now time.Time, topic string) []Action {
	switch {
	case topic == TopicACLHeartbeat:
		m.beat = now
	case m.endpoints[topic] != nil:
		m.republish(now, topic)
	}
	return m.Tick(now)
}

// Tick handles the passing of time.
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
		m.quiet = now
	}
	if !m.whole && !m.quiet.IsZero() && !now.Before(m.quiet) {
		m.whole = true
		for ep := range m.endpoints {
			m.wanted[ep] = true
		}
		m.publish(now, m.wanted)
		m.wanted = nil
	}
	out := m.out
	m.out = nil
	return out
}

// sweepGroups deletes groups that the plugin did not repeat when asked for all: they were deleted while no one
// listened.
func (m *Manager) sweepGroups(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		if m.groups[id].stale {
			m.do(note("group %s is not there any more", id))
			m.do(m.listed.list(about(id), nil)...)
			m.update(now, id, Rules{}, nil)
		}
	}
}

// Next returns when to call Tick if nothing happens before.
func (m *Manager) Next() time.Time {
	next := m.published.Add(m.timing.Lost)
	asked, due := time.Time{}, m.due
	if m.plugin.asked != "" {
		asked, due = m.plugin.sent.Add(m.timing.Lost), time.Time{}
	}
	quiet := m.quiet
	if m.whole {
		quiet = time.Time{}
	}
	for _, t := range [...]time.Time{m.beat, m.sweep, quiet, asked, due} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// Published handles a publication of the plugin.
func (m *Manager) Published(now time.Time, topic string, body []byte) []Action {
	m.published = now
	if m.unheard || topic == TopicGroups && !m.due.IsZero() && m.due.Before(now.Add(settle)) {
		m.due, m.unheard = now.Add(settle), false // after the last of those that come together
	}
	switch {
	case topic == TopicGroups:
		if !m.quiet.IsZero() {
			m.quiet = now.Add(allCame)
		}
		m.groupUpdate(now, body)
	case topic == TopicNetworkHeartbeat && m.named && !m.sweep.IsZero() && m.due.IsZero():
		m.sweep = now // it follows the last group
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
	var left []error
	if err == nil {
		rules, left, err = parseRules(in)
	}
	switch {
	case err != nil && id == "":
		m.do(problem("a %s is ignored: %v", TypeGroup, err))
		return
	case err != nil:
		m.do(m.listed.list(about(id), fmt.Errorf("it stays as it is: %w", err))...)
		return
	case len(members) == 0:
		left = nil // the group is gone
	}
	m.named = true
	m.do(m.listed.list(about(id), errors.Join(left...))...)
	m.update(now, id, rules, members)
}

func about(group string) string { return fmt.Sprintf("group %.80s", group) }

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
		if json.Unmarshal(list[id], &texts) != nil || texts == nil {
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

// update sets a group's rules and members. Without members the group is deleted.
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
	if m.whole {
		m.publish(now, affected)
	}
	for ep := range affected {
		if len(m.endpoints[ep].groups) == 0 {
			delete(m.endpoints, ep) // its being in none has been published
		}
	}
}

// publish publishes the ACLs of endpoints if they have changed.
func (m *Manager) publish(now time.Time, endpoints map[string]bool) {
	acls, bodies, large := map[string][]byte{}, map[string][]byte{}, map[string]error{} // by the endpoint's groups, which many endpoints share
	for _, ep := range slices.Sorted(maps.Keys(endpoints)) {
		e := m.endpoints[ep]
		if e == nil {
			m.republish(now, ep)
			continue
		}
		of := strings.Join(slices.Sorted(maps.Keys(e.groups)), "\x00")
		if acls[of] == nil {
			acls[of] = m.acls(e)
			if n := len(acls[of]); n > maxPublication {
				large[of] = fmt.Errorf("nothing is allowed: they have %d bytes, and can have %d: let fewer and wider cidrs do", n, maxPublication)
				acls[of] = m.acls(&managed{})
			}
			bodies[of] = encodeACL(acls[of], now)
		}
		m.do(m.listed.list("ACLs of endpoint "+ep, large[of])...)
		if !bytes.Equal(e.published, acls[of]) {
			e.published = acls[of]
			m.do(Publish{ep, bodies[of]})
		}
	}
}

// refer records, or forgets, which groups a group's rules refer to.
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

// republish publishes an endpoint's ACL again, an empty one for an unknown endpoint. Until the groups are known, it
// only records that it was asked for.
func (m *Manager) republish(now time.Time, id string) {
	e := m.endpoints[id]
	switch {
	case !m.whole:
		if len(m.wanted) < maxWanted {
			m.wanted[id] = true
		}
		return
	case e == nil:
		m.do(Publish{id, encodeACL(m.acls(&managed{}), now)})
		return
	}
	m.do(Publish{id, encodeACL(e.published, now)})
}

func encodeACL(acls []byte, now time.Time) []byte {
	return fmt.Appendf(nil, `{"type":%q,"acls":%s,"issued":%s}`, TypeACL, acls, timestamp(now))
}

func (m *Manager) do(a ...Action) { m.out = append(m.out, a...) }
