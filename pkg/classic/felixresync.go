// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// resync is a resynchronisation with the plugin.
type resync struct {
	id       string // "" = none is in progress
	answered bool
	count    int             // number of endpoints to expect
	counted  map[string]bool // received for this resynchronisation
	fresh    map[string]bool // received since the plugin learned of it
	doubtful map[string]bool // received since it began, maybe before the plugin learned of it
	progress time.Time       // time of the last progress
	due      time.Time       // time at which to begin the next one
}

// refresh records that an endpoint was received for the resynchronisation id.
func (r *resync) refresh(endpoint, id string, now time.Time) {
	switch {
	case r.id == "", id != "" && id != r.id: // endpoints for an earlier one will be repeated for this one, or are gone
	case id == r.id:
		r.counted[endpoint], r.fresh[endpoint] = true, true
		r.progress = now
	case r.answered || len(r.counted) > 0:
		r.fresh[endpoint] = true
	default:
		r.doubtful[endpoint] = true
	}
}

// answer processes the answer. The plugin sends the counted endpoints before everything else: what came before them may
// have been sent before it learned of the resynchronisation.
func (r *resync) answer(count int, now time.Time) {
	r.answered, r.count, r.progress = true, count, now
	if count == 0 {
		maps.Copy(r.fresh, r.doubtful)
	}
}

// wireResync is the encoding of RESYNCSTATE.
type (
	wireResync struct {
		Type     string      `json:"type"`
		ID       string      `json:"resync_id"`
		Issued   json.Number `json:"issued"`
		Hostname string      `json:"hostname"`
	}
	wireHeartbeat struct {
		Type   string      `json:"type"`
		Issued json.Number `json:"issued,omitempty"`
	}
)

// beginResync asks the plugin for everything.
func (f *Felix) beginResync(now time.Time) {
	f.resync = resync{id: f.cfg.NewID(), counted: map[string]bool{}, fresh: map[string]bool{}, doubtful: map[string]bool{}, progress: now}
	f.plugin.ask(TypeResync, now)
	f.do(Ask{PeerPlugin, encode(wireResync{TypeResync, f.resync.id, timestamp(now), f.cfg.Hostname})})
}

// abandonResync ends the resynchronisation without removing anything, and schedules another.
func (f *Felix) abandonResync(due time.Time, why string) {
	f.do(f.listed.list(AboutResync, fmt.Errorf("it is abandoned, nothing is removed: %s", why))...)
	f.resync = resync{due: due}
}

// PluginReply handles the plugin's response to the last request.
func (f *Felix) PluginReply(now time.Time, body []byte) []Action {
	if f.plugin.answer(now) == TypeResync && f.resync.id != "" && !f.resync.answered {
		count, prefix, err := parseResyncAnswer(body)
		if err != nil {
			f.abandonResync(now.Add(f.timing.Retry), err.Error())
			return f.Tick(now)
		}
		f.heard = now
		f.setPrefix(prefix)
		f.serves = true
		waiting := f.waiting
		f.waiting = nil
		for _, r := range waiting {
			f.serve(now, r)
		}
		f.resync.answer(count, now)
		f.completeResync(now)
	}
	return f.Tick(now)
}

// parseResyncAnswer parses the response to RESYNCSTATE.
func parseResyncAnswer(body []byte) (count int, prefix string, err error) {
	o, kind, err := parse(body)
	if err == nil && kind != TypeResync {
		err = fmt.Errorf("it is answered by %.40q", kind)
	}
	if err != nil {
		return 0, "", err
	}
	rc, err := o.text("rc")
	if err != nil {
		return 0, "", err
	}
	if o.null("message") {
		return 0, "", &fieldError{field: "message"}
	}
	message, err := o.optionalText("message")
	if err != nil {
		return 0, "", err
	}
	if rc != Success {
		return 0, "", fmt.Errorf("the plugin says %.40s %.200s", rc, message)
	}
	if o.null("endpoint_count") {
		return 0, "", &fieldError{field: "endpoint_count"}
	}
	if count, err = number(o["endpoint_count"], 1<<30); err != nil {
		return 0, "", &fieldError{"endpoint_count", err}
	}
	if prefix, err = o.text("interface_prefix"); err == nil {
		err = checkPrefix(prefix)
	}
	return count, prefix, err
}

func checkPrefix(prefix string) error {
	if len(prefix) > 14 || model.CheckInterface(prefix) != nil {
		return &fieldError{"interface_prefix", fmt.Errorf("%.40q: want at most 14 characters of an interface's name", prefix)}
	}
	return nil
}

// setPrefix sets the prefix of interfaces. The first one starts the agent.
func (f *Felix) setPrefix(prefix string) {
	if f.prefix != prefix {
		f.prefix = prefix
		f.do(Save{savedPrefix, []byte(prefix)})
		if f.started {
			f.apply(f.prefixEntry())
		}
	}
	if !f.started {
		f.tellAll()
	}
}

// completeResync removes endpoints that were not refreshed, once all have been received.
func (f *Felix) completeResync(now time.Time) {
	r := f.resync
	if r.id == "" || !r.answered || len(r.counted) < r.count {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(f.endpoints)) {
		if !r.fresh[id] {
			f.do(note("endpoint %s was not refreshed, and is removed", id))
			f.remove(id)
		}
	}
	f.do(note("resynchronisation %s is complete: %d endpoints", r.id, r.count))
	f.do(f.listed.list(AboutResync, nil)...)
	f.resync = resync{due: now.Add(f.timing.Resync)}
}

// Tick handles the passing of time.
func (f *Felix) Tick(now time.Time) []Action {
	lost := f.timing.Lost
	if reached(now, f.plugin.heard, lost) {
		f.do(problem("the plugin has been silent for %s: connecting anew", lost), Reconnect{PeerPlugin})
		f.plugin.renew(now)
		if f.resync.id != "" && !f.resync.answered {
			f.abandonResync(now, "the plugin is silent")
		}
	}
	switch r := f.resync; {
	case r.id != "" && r.answered && reached(now, r.progress, lost):
		f.abandonResync(now, fmt.Sprintf("%d of %d endpoints came", len(r.counted), r.count))
	case r.id == "" && f.serves && reached(now, f.heard, lost):
		f.do(problem("the plugin has asked nothing for %s: resynchronising", lost))
		f.resync.due, f.heard = now, now
	}
	switch {
	case f.plugin.asked != "":
	case f.resync.id == "" && !f.resync.due.After(now):
		f.beginResync(now)
	case reached(now, f.plugin.quiet(), f.timing.Heartbeat):
		f.plugin.ask(TypeHeartbeat, now)
		f.do(Ask{PeerPlugin, encode(wireHeartbeat{Type: TypeHeartbeat})})
	}
	f.tickACLs(now)
	return f.take()
}

func reached(now, since time.Time, d time.Duration) bool { return !now.Before(since.Add(d)) }

// Next returns when to call Tick if nothing happens before.
func (f *Felix) Next() time.Time {
	next := f.plugin.heard.Add(f.timing.Lost)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if f.plugin.asked == "" {
		earlier(f.plugin.quiet().Add(f.timing.Heartbeat))
		if f.resync.id == "" {
			earlier(f.resync.due)
		}
	}
	switch {
	case f.resync.id != "" && f.resync.answered:
		earlier(f.resync.progress.Add(f.timing.Lost))
	case f.resync.id == "" && f.serves:
		earlier(f.heard.Add(f.timing.Lost))
	}
	f.acls.next(f.timing, earlier)
	return next
}
