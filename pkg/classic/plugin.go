// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// PluginTiming has the plugin's timeouts. Zero values have defaults.
type PluginTiming struct {
	Heartbeat        time.Duration // 30 s: if nothing was sent to a Felix for so long, ask it for a sign of life
	NetworkHeartbeat time.Duration // 30 s: between two signs of life to the ACL manager
	Late             time.Duration // 10 s: a Felix that doesn't answer for so long is not available
}

// PluginConfig is the configuration of the plugin.
type PluginConfig struct {
	Prefix string                 // of the interfaces of endpoints
	Serves func(host string) bool // reports whether a host is one of this plugin's
	Timing PluginTiming
}

// World is what the plugin publishes: the endpoints of each host by ID, and the security groups.
type World struct {
	Endpoints map[string]map[string]Endpoint
	Groups    map[string]Group
}

// Group is a security group. Members has the addresses of its endpoints by ID.
type Group struct {
	Rules   Rules
	Members map[string][]netip.Addr
}

// Plugin sends each Felix its endpoints, and the ACL manager the groups.
type Plugin struct {
	cfg   PluginConfig
	world World
	known bool // a world was set
	hosts map[string]*felixHost
	told  map[string][]byte // of each group, its encoded rules and members
	// listed has the groups that are too large.
	listed listed
	beat   time.Time
	out    []Action
}

// felixHost is an available Felix.
type felixHost struct {
	line   line
	told   map[string]Endpoint // the state sent to it
	resync string              // its ID, while endpoints are being sent for it
	due    []Endpoint          // still to be sent for it
	queue  []string            // endpoints that may have to be sent again
	queued map[string]bool     // those in queue
	asked  Endpoint            // the endpoint being sent
}

// NewPlugin returns a plugin without a world.
func NewPlugin(cfg PluginConfig) *Plugin {
	orDefault(&cfg.Timing.Heartbeat, 30*time.Second)
	orDefault(&cfg.Timing.NetworkHeartbeat, 30*time.Second)
	orDefault(&cfg.Timing.Late, 10*time.Second)
	return &Plugin{cfg: cfg, hosts: map[string]*felixHost{}, told: map[string][]byte{}, listed: listed{}}
}

// Start starts the plugin.
func (p *Plugin) Start(now time.Time) []Action {
	p.beat = now
	return p.Tick(now)
}

// Set sets the world, which the caller must not modify afterwards.
func (p *Plugin) Set(now time.Time, w World) []Action {
	before := p.world
	p.world, p.known = w, true
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[name]
		for _, id := range slices.Sorted(maps.Keys(before.Endpoints[name])) {
			h.enqueue(id)
		}
		for _, id := range slices.Sorted(maps.Keys(w.Endpoints[name])) {
			h.enqueue(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.Groups)) {
		if text := w.Groups[id].encode(); string(p.told[id]) != string(text) {
			p.told[id] = text
			p.publishGroup(now, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.told)) {
		if _, there := w.Groups[id]; !there {
			p.told[id] = Group{}.encode()
			p.publishGroup(now, id)
			delete(p.told, id)
		}
	}
	return p.Tick(now)
}

func (h *felixHost) enqueue(id string) {
	if !h.queued[id] {
		h.queued[id] = true
		h.queue = append(h.queue, id)
	}
}

// encode returns the encoded group, from its rules on.
func (g Group) encode() []byte {
	if g.Members == nil {
		g.Members = map[string][]netip.Addr{}
	}
	return fmt.Appendf(nil, `"rules":%s,"members":%s`, encode(g.Rules), encode(g.Members))
}

func (p *Plugin) publishGroup(now time.Time, id string) {
	text := p.told[id]
	var err error
	if n := len(text); n > maxPublication {
		err = fmt.Errorf("it is told without rules and members: they have %d bytes, and can have %d: divide it", n, maxPublication)
		text = Group{}.encode()
	}
	p.do(p.listed.list("group "+id, err)...)
	p.do(Publish{TopicGroups, fmt.Appendf(nil, `{"type":%q,"group":%s,%s,"issued":%s}`, TypeGroup, encode(id), text, timestamp(now))})
}

// publishGroups ends with a sign of life, which means that there are no more groups.
func (p *Plugin) publishGroups(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(p.told)) {
		p.publishGroup(now, id)
	}
	p.publishHeartbeat(now)
}

func (p *Plugin) publishHeartbeat(now time.Time) {
	p.do(Publish{TopicNetworkHeartbeat, encode(wireHeartbeat{TypeHeartbeat, timestamp(now)})})
	p.beat = now.Add(p.cfg.Timing.NetworkHeartbeat)
}

// Subscribed handles an ACL manager's subscription to a topic.
func (p *Plugin) Subscribed(now time.Time, topic string) []Action {
	if topic == TopicGroups && p.known {
		p.publishGroups(now)
	}
	return p.Tick(now)
}

// Request handles a request of a Felix.
func (p *Plugin) Request(now time.Time, from any, body []byte) []Action {
	o, kind, err := parse(body)
	switch {
	case err != nil:
		p.do(Reply{from, encode(response{kind, Invalid, err.Error()})})
	case kind == TypeHeartbeat:
		p.do(Reply{from, encode(wireHeartbeat{Type: TypeHeartbeat})})
	case kind == TypeResync:
		p.resync(now, from, o)
	default:
		p.do(Reply{from, encode(response{kind, Invalid, fmt.Sprintf("unknown type %.40q", kind)})})
	}
	return p.Tick(now)
}

// NetworkRequest handles a request of an ACL manager.
func (p *Plugin) NetworkRequest(now time.Time, from any, body []byte) []Action {
	_, kind, err := parse(body)
	switch {
	case err != nil:
		p.do(Reply{from, encode(response{kind, Invalid, err.Error()})})
	case kind == TypeHeartbeat:
		p.do(Reply{from, encode(wireHeartbeat{Type: TypeHeartbeat})})
	case kind != TypeGetGroups:
		p.do(Reply{from, encode(response{kind, Invalid, fmt.Sprintf("unknown type %.40q", kind)})})
	case !p.known:
		p.do(Reply{from, encode(response{kind, Failure, "the groups are not known yet"})})
	default:
		p.do(Reply{from, encode(response{kind, Success, ""})})
		p.publishGroups(now)
	}
	return p.Tick(now)
}

// wireResyncAnswer is the encoding of the response to RESYNCSTATE.
type wireResyncAnswer struct {
	Type    string `json:"type"`
	Count   int    `json:"endpoint_count"`
	Prefix  string `json:"interface_prefix"`
	RC      string `json:"rc"`
	Message string `json:"message"`
}

func (p *Plugin) resync(now time.Time, from any, o object) {
	answer := wireResyncAnswer{Type: TypeResync, Prefix: p.cfg.Prefix, RC: Success}
	id, err := o.text("resync_id")
	host := ""
	if err == nil {
		host, err = o.text("hostname")
	}
	switch {
	case err != nil:
		answer.RC, answer.Message = Invalid, err.Error()
	case !p.cfg.Serves(host):
		answer.RC, answer.Message = NotExist, fmt.Sprintf("host %.255s is not one of this plugin's", host)
		p.do(problem("%.255q asks for endpoints, and is not one of this plugin's hosts", host))
	case !p.known:
		answer.RC, answer.Message = Failure, "the endpoints are not known yet"
	}
	if answer.RC != Success {
		p.do(Reply{from, encode(answer)})
		return
	}
	h := &felixHost{told: map[string]Endpoint{}, queued: map[string]bool{}, resync: id}
	h.line.renew(now)
	for _, id := range slices.Sorted(maps.Keys(p.world.Endpoints[host])) {
		h.due = append(h.due, p.world.Endpoints[host][id])
	}
	p.hosts[host] = h
	answer.Count = len(h.due)
	p.do(Reply{from, encode(answer)}, Connect{host}, note("host %s is told its %d endpoints", host, len(h.due)))
}

// HostReply handles a Felix's response to the last request.
func (p *Plugin) HostReply(now time.Time, host string, body []byte) []Action {
	h := p.hosts[host]
	if h == nil || h.line.asked == "" {
		return p.Tick(now)
	}
	kind := h.line.answer(now)
	if kind == TypeHeartbeat {
		return p.Tick(now)
	}
	o, _, err := parse(body)
	rc, message := "", ""
	if err == nil {
		rc, message, err = o.outcome()
	}
	switch {
	case err != nil:
		p.do(problem("host %s answers %s of endpoint %s: %v", host, kind, h.asked.ID, err))
	case rc == NotExist && kind == TypeUpdated:
		delete(h.told, h.asked.ID) // so that it is created
		h.enqueue(h.asked.ID)
	case rc != Success && !(rc == NotExist && kind == TypeDestroyed):
		p.do(problem("host %s answers %s of endpoint %s by %.40s %.200s", host, kind, h.asked.ID, rc, message))
	}
	return p.Tick(now)
}

// Tick handles the passing of time.
func (p *Plugin) Tick(now time.Time) []Action {
	if !now.Before(p.beat) {
		p.publishHeartbeat(now)
	}
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		h := p.hosts[name]
		if h.line.asked != "" && reached(now, h.line.sent, p.cfg.Timing.Late) {
			p.do(problem("host %s does not answer %s within %s: it is told nothing until it asks", name, h.line.asked, p.cfg.Timing.Late), Disconnect{name})
			delete(p.hosts, name)
			continue
		}
		p.tell(now, name, h)
	}
	out := p.out
	p.out = nil
	return out
}

// tell sends a host the next message, if there is any.
func (p *Plugin) tell(now time.Time, name string, h *felixHost) {
	if h.line.asked != "" {
		return
	}
	ask := func(kind string, message any) {
		h.line.ask(kind, now)
		p.do(Ask{name, encode(message)})
	}
	if len(h.due) > 0 {
		// An endpoint that is gone is sent all the same, because it was counted. Its removal is sent after it.
		spec := h.due[0]
		h.due = h.due[1:]
		if now, there := p.world.Endpoints[name][spec.ID]; there {
			spec = now
		}
		h.told[spec.ID], h.asked = spec, spec
		ask(TypeCreated, spec.created(h.resync, now))
		return
	}
	for len(h.queue) > 0 {
		id := h.queue[0]
		h.queue = h.queue[1:]
		delete(h.queued, id)
		want, wanted := p.world.Endpoints[name][id]
		has, had := h.told[id]
		if wanted == had && want.Equal(has) {
			continue
		}
		switch {
		case had && (!wanted || want.Interface != has.Interface):
			delete(h.told, id)
			h.asked = has
			if wanted {
				h.enqueue(id)
			}
			ask(TypeDestroyed, wireDestroyed{TypeDestroyed, id, timestamp(now)})
		case had:
			h.told[id], h.asked = want, want
			ask(TypeUpdated, want.updated(now))
		default:
			h.told[id], h.asked = want, want
			ask(TypeCreated, want.created("", now))
		}
		return
	}
	if reached(now, h.line.quiet(), p.cfg.Timing.Heartbeat) {
		ask(TypeHeartbeat, wireHeartbeat{Type: TypeHeartbeat})
	}
}

// wireDestroyed is the encoding of ENDPOINTDESTROYED.
type wireDestroyed struct {
	Type   string      `json:"type"`
	ID     string      `json:"endpoint_id"`
	Issued json.Number `json:"issued"`
}

// Next returns when to call Tick if nothing happens before.
func (p *Plugin) Next() time.Time {
	next := p.beat
	for _, h := range p.hosts {
		t := h.line.quiet().Add(p.cfg.Timing.Heartbeat)
		if h.line.asked != "" {
			t = h.line.sent.Add(p.cfg.Timing.Late)
		}
		if t.Before(next) {
			next = t
		}
	}
	return next
}

func (p *Plugin) do(a ...Action) { p.out = append(p.out, a...) }
