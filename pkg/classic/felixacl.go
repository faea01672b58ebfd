// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// aclState is Felix's state about the ACL manager.
type aclState struct {
	line      line
	published time.Time            // time of the last publication
	asks      []string             // endpoints to ask about, in order
	queued    map[string]bool      // those in asks
	unruled   map[string]time.Time // endpoints without an ACL, and when it was last requested
}

func (s *aclState) renew(now time.Time) {
	s.line.renew(now)
	s.published = now
}

// ask queues a question about an endpoint.
func (s *aclState) ask(id string) {
	if !s.queued[id] {
		s.queued[id] = true
		s.asks = append(s.asks, id)
	}
}

func (s *aclState) next(t FelixTiming, earlier func(time.Time)) {
	earlier(s.line.heard.Add(t.Lost))
	earlier(s.published.Add(t.Lost))
	if s.line.asked == "" {
		earlier(s.line.quiet().Add(t.Heartbeat))
	}
	for id, asked := range s.unruled {
		if !s.queued[id] {
			earlier(asked.Add(t.Ask))
		}
	}
}

// wireGetACL is the encoding of GETACLSTATE.
type wireGetACL struct {
	Type   string      `json:"type"`
	ID     string      `json:"endpoint_id"`
	Issued json.Number `json:"issued"`
}

// tickACLs sends the requests to the ACL manager that are due.
func (f *Felix) tickACLs(now time.Time) {
	s := &f.acls
	if reached(now, s.line.heard, f.timing.Lost) || reached(now, s.published, f.timing.Lost) {
		f.do(problem("the ACL manager has been silent for %s: connecting anew", f.timing.Lost), Reconnect{PeerACL})
		s.renew(now)
		f.askAll()
	}
	for id, asked := range s.unruled {
		if reached(now, asked, f.timing.Ask) {
			s.ask(id)
		}
	}
	for s.line.asked == "" && len(s.asks) > 0 {
		id := s.asks[0]
		s.asks = s.asks[1:]
		delete(s.queued, id)
		if f.endpoints[id] == nil {
			continue
		}
		if _, waits := s.unruled[id]; waits {
			s.unruled[id] = now
		}
		s.line.ask(TypeGetACL, now)
		f.do(Ask{PeerACL, encode(wireGetACL{TypeGetACL, id, timestamp(now)})})
	}
	if s.line.asked == "" && reached(now, s.line.quiet(), f.timing.Heartbeat) {
		s.line.ask(TypeHeartbeat, now)
		f.do(Ask{PeerACL, encode(wireHeartbeat{Type: TypeHeartbeat})})
	}
}

func (f *Felix) askAll() {
	for _, id := range slices.Sorted(maps.Keys(f.endpoints)) {
		f.acls.ask(id)
	}
}

// ACLReply handles the ACL manager's response to the last request.
func (f *Felix) ACLReply(now time.Time, body []byte) []Action {
	if f.acls.line.answer(now) == TypeGetACL {
		o, _, err := parse(body)
		rc, message := "", ""
		if err == nil {
			rc, message, err = o.outcome()
		}
		switch {
		case err != nil:
			f.do(problem("the ACL manager's answer to %s: %v", TypeGetACL, err))
		case rc != "" && rc != Success:
			f.do(problem("the ACL manager answers %s by %.40s %.200s", TypeGetACL, rc, message))
		}
	}
	return f.Tick(now)
}

// Subscribed records that the ACL manager's publications arrive, for the first time or again, and requests everything
// published before.
func (f *Felix) Subscribed(now time.Time) []Action {
	f.askAll()
	return f.Tick(now)
}

// Published handles a publication of the ACL manager.
func (f *Felix) Published(now time.Time, topic string, body []byte) []Action {
	f.acls.published = now
	if ep := f.endpoints[topic]; ep != nil {
		f.publishedACL(ep, body)
	}
	return f.Tick(now)
}

func (f *Felix) publishedACL(ep *felixEndpoint, body []byte) {
	o, kind, err := parse(body)
	if err == nil && kind != TypeACL {
		return
	}
	var told []model.Entry
	former := ep.profile
	if err == nil {
		told, err = f.rule(ep, o)
	}
	if err != nil {
		f.do(f.listed.list(ep.about(), fmt.Errorf("they stay as they are: %w", err))...)
		return
	}
	f.do(f.listed.list(ep.about(), errors.Join(f.profiles[ep.profile].left...))...)
	if ep.profile != former {
		f.do(f.save(ep))
		f.apply(append(told, f.entries(ep)...)...)
	}
}

func (ep *felixEndpoint) about() string { return "ACLs of endpoint " + ep.ID }

// noACL is the profile of endpoints without an ACL: it denies.
const noACL = orchestrator + "-none"

// rule sets an endpoint's ACL to that of a message, nil = none, and returns the resulting changes of profiles for the
// agent. The error says why the ACL can't be used.
func (f *Felix) rule(ep *felixEndpoint, o object) (told []model.Entry, err error) {
	name := noACL
	if o != nil {
		sum := sha256.Sum256(o["acls"])
		name = fmt.Sprintf("%s-%x", orchestrator, sum[:16])
	}
	if name == ep.profile {
		return nil, nil
	}
	p := f.profiles[name]
	if p == nil {
		if p, err = newProfile(name, o); err != nil {
			return nil, err
		}
		f.revision++
		p.entry.Created, p.entry.Revision = f.revision, f.revision
		f.profiles[name] = p
		told = append(told, p.entry)
	}
	p.users++
	told = append(told, f.release(ep)...)
	if ep.profile = name; o != nil {
		delete(f.acls.unruled, ep.ID)
	}
	return told, nil
}

func newProfile(name string, o object) (*profile, error) {
	var acl ACL
	p := &profile{raw: bytes.Clone(o["acls"])}
	if o != nil {
		var err error
		if acl, p.left, err = parseACL(o); err != nil {
			return nil, err
		}
	}
	key, rules := model.ProfileRulesKey{Profile: name}, acl.Model()
	p.entry = model.Entry{Path: key.Path(), Key: key, Value: rules}
	if _, err := model.FormatValue(rules); err != nil {
		p.entry.Value, p.entry.Err = nil, err // it denies
	}
	return p, nil
}

// release ends an endpoint's use of its profile, and returns the resulting changes for the agent.
func (f *Felix) release(ep *felixEndpoint) []model.Entry {
	p := f.profiles[ep.profile]
	if p == nil {
		return nil
	}
	if p.users--; p.users > 0 {
		return nil
	}
	delete(f.profiles, ep.profile)
	return []model.Entry{{Path: p.entry.Path, Key: p.entry.Key}}
}

// save stores an endpoint for the next run.
func (f *Felix) save(ep *felixEndpoint) Save {
	return Save{ep.ID + savedSuffix, encode(struct {
		wireCreated
		ACLs json.RawMessage `json:"acls,omitempty"`
	}{ep.created("", time.Unix(0, 0)), f.profiles[ep.profile].raw})}
}

// track processes an endpoint that is new, changed or unchanged.
func (f *Felix) track(now time.Time, spec Endpoint) {
	ep := f.endpoints[spec.ID]
	var told []model.Entry
	if ep == nil {
		f.revision++
		ep = &felixEndpoint{born: f.revision}
		told, _ = f.rule(ep, nil) // no ACL is always valid
		f.endpoints[spec.ID] = ep
		f.acls.unruled[spec.ID] = now
		f.do(Subscribe{spec.ID})
		f.acls.ask(spec.ID)
	} else if ep.Equal(spec) {
		return
	}
	ep.Endpoint = spec
	f.revision++
	ep.changed = f.revision
	if !f.started {
		return // the agent gets everything together
	}
	f.do(f.save(ep))
	f.apply(append(told, f.entries(ep)...)...)
}

func (f *Felix) remove(id string) {
	ep := f.endpoints[id]
	delete(f.endpoints, id)
	delete(f.acls.unruled, id)
	key := ep.key(f.cfg.Hostname)
	f.do(Unsubscribe{id}, Save{Name: id + savedSuffix})
	f.do(f.listed.list(ep.about(), nil)...)
	f.apply(slices.Concat(gone(ep.subnets, nil), []model.Entry{{Path: key.Path(), Key: key}}, f.release(ep))...)
}

// entries returns an endpoint's entries, including deletions of its former subnets.
func (f *Felix) entries(ep *felixEndpoint) []model.Entry {
	key := ep.key(f.cfg.Hostname)
	e := model.Entry{Path: key.Path(), Key: key, Created: ep.born, Revision: ep.changed}
	spec, err := ep.model(ep.profile)
	former := ep.subnets
	if ep.subnets = nil; f.cfg.DHCP && err == nil {
		ep.subnets = ep.Endpoint.subnets(&spec)
	}
	for i := range ep.subnets {
		ep.subnets[i].Created, ep.subnets[i].Revision = ep.born, ep.changed
	}
	if e.Value = spec; err != nil {
		e.Value, e.Err = nil, err
	}
	return slices.Concat(ep.subnets, []model.Entry{e}, gone(former, ep.subnets))
}

// gone returns entries that delete those of before that aren't in now.
func gone(before, now []model.Entry) (out []model.Entry) {
	for _, e := range before {
		if !slices.ContainsFunc(now, func(n model.Entry) bool { return n.Path == e.Path }) {
			out = append(out, model.Entry{Path: e.Path, Key: e.Key})
		}
	}
	return out
}

func (f *Felix) prefixEntry() model.Entry {
	key := model.GlobalConfigKey{Name: "InterfacePrefix"}
	return model.Entry{Path: key.Path(), Key: key, Value: model.Text(f.prefix), Created: 1, Revision: 1}
}

// apply passes changes to the agent. Existing entries get a new revision.
func (f *Felix) apply(entries ...model.Entry) {
	if !f.started {
		return
	}
	f.revision++
	for i, e := range entries {
		if e.Exists() {
			entries[i].Revision = f.revision
		}
	}
	f.do(Apply{model.Update{Revision: f.revision, Entries: entries}})
}

// tellAll passes the complete state to the agent.
func (f *Felix) tellAll() {
	f.started = true
	f.revision++
	ready := model.ReadyKey{}
	entries := []model.Entry{{Path: ready.Path(), Key: ready, Value: model.Ready(true), Created: 1, Revision: 1}, f.prefixEntry()}
	for _, name := range slices.Sorted(maps.Keys(f.profiles)) {
		entries = append(entries, f.profiles[name].entry)
	}
	for _, id := range slices.Sorted(maps.Keys(f.endpoints)) {
		entries = append(entries, f.entries(f.endpoints[id])...)
	}
	f.do(Apply{model.Update{Revision: f.revision, Resync: true, Entries: entries}})
}
