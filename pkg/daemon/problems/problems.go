// SPDX-License-Identifier: Apache-2.0

// Package problems is the ledger of what is wrong: objects in etcd and settings that the agent can't use, and problems of the host itself.
package problems

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Ledger records the objects in etcd and the settings that can't be used. Each is logged once, counted and shown while it lasts, and logged
// again when it is over.
type Ledger struct {
	log   *slog.Logger
	began time.Time
	// Unread says why the content of etcd is still unknown, "" = it has been read; nil = unknown. Set it before using the ledger.
	Unread func() string
	// Source names what Unread is about, "" = etcd.
	Source string

	mu   sync.Mutex
	open map[problemID]Problem
	said map[problemID]time.Time // when Tell last logged it
}

// Kinds of problems that Report and its like use. Callers may use others.
const (
	object  = "object"
	Setting = "setting"
	Host    = "host"
	Notice  = "notice" // of an object that is used all the same, a container's interface without one, or a setting without effect
)

// problemID identifies a problem: there is at most one of a kind for a path.
type problemID struct{ kind, path string }

// Problem is why something can't be used.
type Problem struct {
	Path   string    `json:"path"` // the key in etcd, or another name of the subject
	Kind   string    `json:"kind"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"` // when it was first found wrong, even if the reason was another one then
	// For a setting: its value, quoted, and what is used instead.
	Value string `json:"value,omitempty"`
	Used  string `json:"used,omitempty"`
}

// New returns a ledger without problems, which logs new ones.
func New(log *slog.Logger) *Ledger {
	return &Ledger{log: log, began: time.Now(), open: map[problemID]Problem{}, said: map[problemID]time.Time{}}
}

// maxReason bounds what is kept of a reason, which may quote values from etcd. A command for each of several prefixes fits.
const maxReason = 1000

// Report records and logs a problem with an object in etcd; err == nil clears it.
func (p *Ledger) Report(path string, err error) {
	switch before, after := p.Note(object, path, err); {
	case after == before:
	case after == "":
		p.log.Info("object in etcd is in order again", "key", path)
	default:
		p.log.Warn("object in etcd is not acted upon", "key", path, "reason", after)
	}
}

// ReportSetting records and logs a problem with a setting; err == nil clears it. instead says what is used while it is invalid.
func (p *Ledger) ReportSetting(path string, err error, instead string) {
	p.ReportValue(path, err, "", instead)
}

// ReportValue is ReportSetting with the setting's value.
func (p *Ledger) ReportValue(path string, err error, value, instead string) {
	before, after := p.Keep(Problem{Path: path, Kind: Setting, Reason: Reason(err), Value: value, Used: instead})
	switch {
	case after.Reason == before.Reason && after.Value == before.Value:
	case after.Reason == "":
		p.log.Info("setting is in order again", "setting", path)
	default:
		p.log.Warn("setting is not used", "setting", path, "reason", after.Reason, "instead", instead)
	}
}

// Note records a problem of a kind, or clears it if err is nil, and returns the old and the new reason, "" = none. It logs nothing.
func (p *Ledger) Note(kind, path string, err error) (before, after string) {
	was, is := p.Keep(Problem{Path: path, Kind: kind, Reason: Reason(err)})
	return was.Reason, is.Reason
}

// sayAgain is how long Tell waits before it logs another reason for a known problem: some reasons differ each time, as by how long etcd was
// waited for.
const sayAgain = time.Minute

// Tell is Note for what is checked or retried repeatedly: it logs a problem that is new or over. It reports whether it logged a problem.
func (p *Ledger) Tell(kind, about string, err error) (news bool) {
	before, after := p.Note(kind, about, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	id := problemID{kind, about}
	switch said, now := p.said[id], time.Now(); {
	case after == "" && before != "":
		p.log.Info("in order again", "what", about)
	case after != before && now.Sub(said) >= sayAgain:
		p.said[id] = now
		p.log.Warn("not in order", "what", about, "reason", after)
		return true
	}
	if after == "" {
		delete(p.said, id)
	}
	return false
}

// Group is all problems of a kind that one part of the program finds, by subject.
type Group struct {
	ledger *Ledger
	kind   string
	open   map[string]string
}

// Group returns an empty group. It is not safe for concurrent use.
func (p *Ledger) Group(kind string) *Group { return &Group{ledger: p, kind: kind} }

// Set calls Tell for every subject, given the reasons by subject: what isn't found is in order. It returns the subjects logged as problems.
func (g *Group) Set(found map[string]string) (news []string) {
	for _, about := range slices.Sorted(maps.Keys(g.open)) {
		if found[about] == "" {
			g.ledger.Tell(g.kind, about, nil)
		}
	}
	for _, about := range slices.Sorted(maps.Keys(found)) {
		if g.ledger.Tell(g.kind, about, errors.New(found[about])) {
			news = append(news, about)
		}
	}
	g.open = found
	return news
}

// Keep is Note for a whole Problem; an empty Reason clears it.
func (p *Ledger) Keep(of Problem) (before, after Problem) {
	if len(of.Reason) > maxReason {
		of.Reason = strings.ToValidUTF8(of.Reason[:maxReason], "") + "…"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := problemID{of.Kind, of.Path}
	before = p.open[id]
	if of.Reason == "" {
		delete(p.open, id)
		return before, Problem{}
	}
	of.Since = before.Since
	if of.Since.IsZero() {
		of.Since = time.Now()
	}
	p.open[id] = of
	return before, of
}

// Of returns the problem of a kind with a path; its Reason is "" if there is none.
func (p *Ledger) Of(kind, path string) Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[problemID{kind, path}]
}

// Count returns how many objects and settings are not in order.
func (p *Ledger) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for id := range p.open {
		if id.kind == object || id.kind == Setting {
			n++
		}
	}
	return n
}

// All returns all problems, sorted by path, then by kind.
func (p *Ledger) All() []Problem {
	p.mu.Lock()
	all := make([]Problem, 0, len(p.open))
	for _, o := range p.open {
		all = append(all, o)
	}
	p.mu.Unlock()
	if p.Unread != nil {
		if reason := p.Unread(); reason != "" { // nothing in etcd is in order so far
			all = append(all, Problem{Path: cmp.Or(p.Source, "etcd"), Kind: Host, Reason: reason, Since: p.began})
		}
	}
	slices.SortFunc(all, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind)) })
	return all
}

// ServeHTTP shows all problems as text, or as JSON to a client that asks for application/json or format=json.
func (p *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all := p.All()
	if r.FormValue("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
		for i := range all {
			for _, s := range []*string{&all[i].Path, &all[i].Reason, &all[i].Value, &all[i].Used} {
				if !utf8.ValidString(*s) { // JSON can't hold it
					*s = strconv.Quote(*s)
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		_ = e.Encode(all) // a client that left needs no answer
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	writeProblems(w, all)
}

// writeProblems writes the problems as text for people.
func writeProblems(w io.Writer, all []Problem) {
	if len(all) == 0 {
		_, _ = fmt.Fprintln(w, "every object and setting is in order")
		return
	}
	for _, o := range all {
		_, _ = fmt.Fprintf(w, "%s %s\n  since   %s\n  reason  %s\n", o.Kind, Printable(o.Path), o.Since.UTC().Format(time.RFC3339), Indent(o.Reason))
		for _, more := range [][2]string{{"value", o.Value}, {"used", o.Used}} {
			if more[1] != "" {
				_, _ = fmt.Fprintf(w, "  %-6s  %s\n", more[0], Printable(more[1]))
			}
		}
	}
}

// Indent indents the further lines of a reason, and quotes lines with control characters to keep them off terminals.
func Indent(reason string) string {
	lines := strings.Split(reason, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n          ")
}

// Printable quotes a text with unprintable characters: nothing from etcd may control a terminal.
func Printable(s string) string {
	// ContainsFunc turns an invalid byte into U+FFFD, which is printable.
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Reason returns the error's text, "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// MostSaid is how many lines of one kind are logged at a time: a neighbour may send thousands of routes that are refused.
const MostSaid = 20
