// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// aclState is what Felix knows of the ACL manager.
type aclState struct {
	line      line
	published time.Time            // the last publication
	asks      []string             // endpoints to ask about, in order
	queued    map[string]bool      // those in asks
	unruled   map[string]time.Time // endpoints of which no ACL has come, and when it was asked for last
}

func (s *aclState) renew(now time.Time) {
	s.line.renew(now)
	s.published = now
}

// ask queues a question.
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

// wireGetACL is GETACLSTATE as it is written.
type wireGetACL struct {
	Type   string      `json:"type"`
	ID     string      `json:"endpoint_id"`
	Issued json.Number `json:"issued"`
}

// tickACLs asks the ACL manager for what is due.
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

// ACLReply is the ACL manager's response to what was asked last.
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

// Subscribed is that the ACL manager's publications arrive, from now on or again: what was published before is asked for.
func (f *Felix) Subscribed(now time.Time) []Action {
	f.askAll()
	return f.Tick(now)
}

// Published is a publication of the ACL manager.
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
	var acl ACL
	var left []string
	if err == nil {
		if bytes.Equal(ep.raw, o["acls"]) {
			return
		}
		acl, left, err = parseACL(o)
	}
	if err != nil {
		f.do(problem("the ACLs of endpoint %s stay as they are: %v", ep.ID, err))
		return
	}
	for _, why := range left {
		f.do(problem("ACLs of endpoint %s: %s", ep.ID, why))
	}
	f.rule(ep, o["acls"], acl)
	f.do(Save{ep.ID + savedSuffix, ep.save()})
	f.apply(ep.acl)
}

// rule gives an endpoint its ACL.
func (f *Felix) rule(ep *felixEndpoint, raw json.RawMessage, acl ACL) {
	delete(f.acls.unruled, ep.ID)
	ep.raw = bytes.Clone(raw)
	rules := acl.Model()
	ep.acl.Value, ep.acl.Err = rules, nil
	if _, err := model.FormatValue(rules); err != nil {
		ep.acl.Value, ep.acl.Err = nil, err // it denies
	}
}

// save is what is kept of an endpoint for the next run.
func (ep *felixEndpoint) save() []byte {
	return encode(struct {
		wireCreated
		ACLs json.RawMessage `json:"acls,omitempty"`
	}{ep.created("", time.Unix(0, 0)), ep.raw})
}

// track takes in an endpoint that is new, changed or as it was.
func (f *Felix) track(now time.Time, spec Endpoint) {
	ep := f.endpoints[spec.ID]
	if ep == nil {
		key := model.ProfileRulesKey{Profile: spec.profile()}
		f.revision++
		ep = &felixEndpoint{born: f.revision, acl: model.Entry{Path: key.Path(), Key: key, Created: f.revision, Revision: f.revision, Value: model.Rules{}}}
		f.endpoints[spec.ID] = ep
		f.acls.unruled[spec.ID] = now
		f.do(Subscribe{spec.ID})
		f.acls.ask(spec.ID)
	} else if ep.Equal(spec) {
		return
	}
	fresh := ep.changed == 0
	ep.Endpoint = spec
	f.revision++
	ep.changed = f.revision
	if !f.started {
		return // all is told together
	}
	f.do(Save{spec.ID + savedSuffix, ep.save()})
	if fresh {
		f.apply(ep.acl, f.endpointEntry(ep))
	} else {
		f.apply(f.endpointEntry(ep))
	}
}

func (f *Felix) remove(id string) {
	ep := f.endpoints[id]
	delete(f.endpoints, id)
	delete(f.acls.unruled, id)
	key := ep.key(f.cfg.Hostname)
	f.do(Unsubscribe{id}, Save{Name: id + savedSuffix})
	f.apply(model.Entry{Path: key.Path(), Key: key}, model.Entry{Path: ep.acl.Path, Key: ep.acl.Key})
}

func (f *Felix) endpointEntry(ep *felixEndpoint) model.Entry {
	key := ep.key(f.cfg.Hostname)
	e := model.Entry{Path: key.Path(), Key: key, Created: ep.born, Revision: ep.changed}
	spec, err := ep.model()
	if e.Value = spec; err != nil {
		e.Value, e.Err = nil, err
	}
	return e
}

func (f *Felix) prefixEntry() model.Entry {
	key := model.GlobalConfigKey{Name: "InterfacePrefix"}
	return model.Entry{Path: key.Path(), Key: key, Value: model.Text(f.prefix), Created: 1, Revision: 1}
}

// apply tells the agent of changes. Those that exist get a revision where they have none of now.
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

// tellAll tells the agent everything there is.
func (f *Felix) tellAll() {
	f.started = true
	f.revision++
	ready := model.ReadyKey{}
	entries := []model.Entry{{Path: ready.Path(), Key: ready, Value: model.Ready(true), Created: 1, Revision: 1}, f.prefixEntry()}
	for _, e := range f.cfg.Settings {
		e.Created, e.Revision = 1, 1
		entries = append(entries, e)
	}
	for _, id := range slices.Sorted(maps.Keys(f.endpoints)) {
		ep := f.endpoints[id]
		f.do(Save{id + savedSuffix, ep.save()})
		entries = append(entries, ep.acl, f.endpointEntry(ep))
	}
	f.do(Apply{model.Update{Revision: f.revision, Resync: true, Entries: entries}})
}
