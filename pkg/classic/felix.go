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

// Peers of Felix, as in Ask and Reconnect.
const (
	PeerPlugin = "plugin"
	PeerACL    = "acl"
)

// FelixTiming has Felix's timeouts. Zero values have defaults.
type FelixTiming struct {
	Heartbeat time.Duration // 5 s: if nothing else was sent to a peer for so long, ask it for a sign of life
	Lost      time.Duration // 40 s: a connection silent for so long is lost
	Resync    time.Duration // 1800 s: time between requests for everything
	Retry     time.Duration // 5 s: pause after an invalid answer
	Ask       time.Duration // 2 s: pause before asking again for missing ACLs
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

// FelixConfig is the configuration of Felix.
type FelixConfig struct {
	Hostname string
	NewID    func() string // makes an ID for a RESYNCSTATE
	// Present reports whether an interface exists, so that ENDPOINTCREATED is refused if it doesn't; if nil, Felix
	// waits for the interface.
	Present func(string) bool
	// DHCP serves addresses to machines over DHCP, for families whose addresses all have gateways.
	DHCP   bool
	Timing FelixTiming
	// Saved has what Save stored in a former run, by name.
	Saved map[string][]byte
}

type (
	// Apply passes changes of endpoints and ACLs to the agent. The first one is a Resync.
	Apply struct{ Update model.Update }
	// Save stores something for the next run, before the following actions; nil Data deletes it.
	Save struct {
		Name string
		Data []byte
	}
)

// savedPrefix is the name for the interface prefix. Endpoints are stored under their ID with savedSuffix.
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
	prefix    string              // of interfaces, "" = unknown
	started   bool                // the agent got a Resync
	revision  int64

	resync      resync
	plugin      line
	heard       time.Time // time of the plugin's latest request
	waiting     []request // requests waiting for the first valid answer
	serves      bool      // there was a valid answer
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

// profile is the ACL of all endpoints that have the same one.
type profile struct {
	entry model.Entry
	raw   json.RawMessage // as received, nil = none was
	left  []error         // errors of rules that are left out
	users int
}

// request is a pending request of the plugin.
type request struct {
	from any
	body []byte
}

// line is a connection with at most one outstanding request.
type line struct {
	asked string    // type of the outstanding request, "" = none
	sent  time.Time // time of the last request
	heard time.Time // time of the last sign of life
}

// ask records a request. None may be outstanding.
func (l *line) ask(kind string, now time.Time) { l.asked, l.sent = kind, now }

// answer records a response, and returns the type of the request.
func (l *line) answer(now time.Time) string {
	kind := l.asked
	l.asked, l.heard = "", now
	return kind
}

// renew records that there are new sockets.
func (l *line) renew(now time.Time) { l.asked, l.heard, l.sent = "", now, now }

// quiet returns since when nothing was sent or received.
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

// Start starts Felix with the state of a former run.
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

// restore restores what a former run saved. What can't be read will come from the plugin.
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
		_, err := f.rule(ep, o) // the agent gets everything together
		if err == nil {
			f.do(f.listed.list(ep.about(), errors.Join(f.profiles[ep.profile].left...))...)
		}
	}
}

// Request handles a request of the plugin.
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

// maxWaiting and maxWaitingSize (in bytes) bound the requests that wait for the first resynchronisation. A plugin has
// one at a time.
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

// freeInterface removes another endpoint with the same interface: it is gone, and the message about that was lost.
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
