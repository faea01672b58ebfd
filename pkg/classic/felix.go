// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Peers of Felix, as Ask and Reconnect name them.
const (
	PeerPlugin = "plugin"
	PeerACL    = "acl"
)

// FelixTiming is how long Felix waits; what is 0 has its default.
type FelixTiming struct {
	Heartbeat time.Duration // 5 s: a peer that was asked nothing else for so long is asked for a sign of life
	Lost      time.Duration // 40 s: a connection that is silent for so long is lost
	Resync    time.Duration // 1800 s: all is asked for again so long after the last time
	Retry     time.Duration // 5 s: so long after an answer that was none
	Ask       time.Duration // 2 s: ACLs that didn't come are asked for again
}

func (t FelixTiming) orDefaults() FelixTiming {
	orDefault(&t.Heartbeat, 5*time.Second)
	orDefault(&t.Lost, 40*time.Second)
	orDefault(&t.Resync, 1800*time.Second)
	orDefault(&t.Retry, 5*time.Second)
	orDefault(&t.Ask, 2*time.Second)
	return t
}

func orDefault(d *time.Duration, to time.Duration) {
	if *d <= 0 {
		*d = to
	}
}

// FelixConfig is what Felix is told when it starts.
type FelixConfig struct {
	Hostname string
	NewID    func() string // makes an ID for a RESYNCSTATE
	// Present says whether there is an interface, for ENDPOINTCREATED to be refused where there is none; nil: it is
	// waited for.
	Present func(string) bool
	// DHCP has machines told their addresses by DHCP, those of a family whose addresses all have gateways.
	DHCP   bool
	Timing FelixTiming
	// Saved is what Save left of a former run, by name.
	Saved map[string][]byte
}

type (
	// Apply has the agent do what endpoints and ACLs say. The first is a Resync.
	Apply struct{ Update model.Update }
	// Save keeps something for the next run, before what follows; without Data it is forgotten.
	Save struct {
		Name string
		Data []byte
	}
)

// savedPrefix is the name under which the interface prefix is kept; endpoints are kept under their ID with savedSuffix.
const (
	savedPrefix = "prefix"
	savedSuffix = ".json"
)

// Felix is the agent of a host.
type Felix struct {
	cfg       FelixConfig
	timing    FelixTiming
	endpoints map[string]*felixEndpoint
	profiles  map[string]*profile // by name
	prefix    string              // of interfaces, "" = not known
	started   bool                // the agent was told a Resync
	revision  int64

	resync      resync
	plugin      line
	heard       time.Time // of the plugin's requests
	waiting     []request // until there was a valid answer
	serves      bool      // there was
	waitingSize int

	acls   aclState
	listed listed
	out    []Action
}

type felixEndpoint struct {
	Endpoint
	born, changed int64         // the revisions of its first and its last state, 0 = none yet
	profile       string        // the name of its ACL
	subnets       []model.Entry // for DHCP
}

// profile is the ACL of all endpoints that have the same.
type profile struct {
	entry model.Entry
	raw   json.RawMessage // as it came, nil = none did
	left  []error         // rules of it that are left out
	users int
}

// request is one of the plugin that is still to be answered.
type request struct {
	from any
	body []byte
}

// line is a connection on which one request at a time is outstanding.
type line struct {
	asked string    // its type, "" = none
	sent  time.Time // the last one
	heard time.Time // the last sign of life
}

// ask notes a request. There must be none outstanding.
func (l *line) ask(kind string, now time.Time) { l.asked, l.sent = kind, now }

// answer notes a response, and returns the type of the request.
func (l *line) answer(now time.Time) string {
	kind := l.asked
	l.asked, l.heard = "", now
	return kind
}

// renew notes that there are new sockets.
func (l *line) renew(now time.Time) { l.asked, l.heard, l.sent = "", now, now }

// quiet is since when nothing was sent or heard.
func (l *line) quiet() time.Time {
	if l.sent.After(l.heard) {
		return l.sent
	}
	return l.heard
}

// NewFelix returns a Felix that has not started.
func NewFelix(cfg FelixConfig) *Felix {
	return &Felix{cfg: cfg, timing: cfg.Timing.orDefaults(), endpoints: map[string]*felixEndpoint{}, profiles: map[string]*profile{}, listed: listed{}, acls: aclState{unruled: map[string]time.Time{}, queued: map[string]bool{}}}
}

// Start begins, with what a former run left.
func (f *Felix) Start(now time.Time) []Action {
	for _, name := range slices.Sorted(maps.Keys(f.cfg.Saved)) {
		f.restore(now, name, f.cfg.Saved[name])
	}
	f.do(Subscribe{TopicACLHeartbeat})
	if f.prefix != "" {
		f.tellAll()
	}
	f.plugin.renew(now)
	f.acls.renew(now)
	f.resync.due = now
	return f.Tick(now)
}

// restore takes in what a former run saved. What can't be read is to be had of the plugin.
func (f *Felix) restore(now time.Time, name string, data []byte) {
	if name == savedPrefix {
		if checkPrefix(string(data)) == nil {
			f.prefix = string(data)
		}
		return
	}
	o, _, err := parse(data)
	if err != nil {
		return
	}
	spec, err := parseEndpoint(o, true)
	if err == nil {
		_, err = spec.model(noACL)
	}
	if err != nil || spec.ID+savedSuffix != name {
		return
	}
	f.track(now, spec)
	if ep := f.endpoints[spec.ID]; o["acls"] != nil {
		_, err := f.rule(ep, o) // the agent is told all together
		if err == nil {
			f.do(f.listed.list(ep.about(), errors.Join(f.profiles[ep.profile].left...))...)
		}
	}
}

// Request is one of the plugin.
func (f *Felix) Request(now time.Time, from any, body []byte) []Action {
	f.heard = now
	if f.serves {
		f.serve(now, request{from, body})
	} else if f.waitingSize += len(body); len(f.waiting) < maxWaiting && f.waitingSize <= maxWaitingSize {
		f.waiting = append(f.waiting, request{from, body})
	} else {
		_, kind, _ := parse(body)
		f.do(Reply{from, encode(response{kind, Failure, "not synchronised yet, and too many requests wait"})})
	}
	return f.Tick(now)
}

// maxWaiting and maxWaitingSize, in bytes, bound the requests that wait for the first resynchronisation. A plugin has one at a time.
const (
	maxWaiting     = 1000
	maxWaitingSize = 4 << 20
)

// serve answers a request.
func (f *Felix) serve(now time.Time, r request) {
	o, kind, err := parse(r.body)
	rc, message := Success, ""
	switch {
	case err != nil:
		rc, message = Invalid, err.Error()
	case kind == TypeHeartbeat:
		f.do(Reply{r.from, encode(wireHeartbeat{Type: TypeHeartbeat})})
		return
	case kind == TypeCreated:
		rc, message = f.createdEndpoint(now, o)
	case kind == TypeUpdated:
		rc, message = f.updatedEndpoint(now, o)
	case kind == TypeDestroyed:
		rc, message = f.destroyedEndpoint(o)
	default:
		rc, message = Invalid, fmt.Sprintf("unknown type %.40q", kind)
	}
	if rc != Success {
		f.do(problem("%.40q of the plugin is refused: %s %s", kind, rc, message))
	}
	f.do(Reply{r.from, encode(response{kind, rc, message})})
}

func (f *Felix) createdEndpoint(now time.Time, o object) (rc, message string) {
	spec, err := parseEndpoint(o, true)
	if _, there := o["resync_id"]; err == nil && !there {
		err = &fieldError{field: "resync_id"}
	}
	id := ""
	if err == nil {
		id, err = o.optionalText("resync_id")
	}
	if err == nil && !strings.HasPrefix(spec.Interface, f.prefix) {
		err = &fieldError{"interface_name", fmt.Errorf("%.40q does not begin with the interface_prefix %q", spec.Interface, f.prefix)}
	}
	if err == nil {
		_, err = spec.model(noACL)
	}
	if err != nil {
		return Invalid, err.Error()
	}
	absent := f.cfg.Present != nil && !f.cfg.Present(spec.Interface)
	if !absent {
		f.freeInterface(spec)
		f.track(now, spec)
	}
	f.resync.refresh(spec.ID, id, now)
	f.completeResync(now)
	if absent {
		return NoInterface, fmt.Sprintf("there is no interface %s", spec.Interface)
	}
	return Success, ""
}

// freeInterface removes another endpoint that had the interface: it is gone, and what told of that was lost.
func (f *Felix) freeInterface(spec Endpoint) {
	for id, ep := range f.endpoints {
		if id != spec.ID && ep.Interface == spec.Interface {
			f.do(note("endpoint %s has interface %s now, which %s had: that one is removed", spec.ID, spec.Interface, id))
			f.remove(id)
		}
	}
}

func (f *Felix) updatedEndpoint(now time.Time, o object) (rc, message string) {
	spec, err := parseEndpoint(o, false)
	if err != nil {
		return Invalid, err.Error()
	}
	ep := f.endpoints[spec.ID]
	if ep == nil {
		return NotExist, fmt.Sprintf("endpoint %s is not known", spec.ID)
	}
	spec.Interface = ep.Interface
	if _, err := spec.model(noACL); err != nil {
		return Invalid, err.Error()
	}
	f.track(now, spec)
	return Success, ""
}

func (f *Felix) destroyedEndpoint(o object) (rc, message string) {
	id, err := parseID(o)
	if err != nil {
		return Invalid, err.Error()
	}
	if f.endpoints[id] == nil {
		return NotExist, fmt.Sprintf("endpoint %s is not known", id)
	}
	f.remove(id)
	return Success, ""
}

func (f *Felix) do(a ...Action) { f.out = append(f.out, a...) }

func (f *Felix) take() []Action {
	out := f.out
	f.out = nil
	return out
}
