// SPDX-License-Identifier: Apache-2.0

// Package problems is the ledger of what is wrong: objects in etcd and settings that the agent can't use, and problems
// of the host itself.
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

// Ledger are the objects of etcd and the settings that cannot be acted upon:
// each is logged once, counted while it lasts, shown, and logged again when it
// is over.
type Ledger struct {
	log   *slog.Logger
	began time.Time
	// Unread says why nothing is known of what etcd holds, "" = something is; nil = nobody knows.
	// It is set before the ledger is in use.
	Unread func() string
	// Source is what is read, "" = etcd.
	Source string

	mu   sync.Mutex
	open map[problemID]Problem
	said map[problemID]time.Time // when Tell logged of it
}

// What a problem is of: the kinds that Report and its like use. Others may be noted as well.
const (
	object  = "object"
	Setting = "setting"
	Host    = "host"
	Notice  = "notice" // of an object that is acted upon, a container's interface without one, or a setting without effect
)

// problemID names a problem: there is one of a kind for a path.
type problemID struct{ kind, path string }

// Problem is why something is not acted upon.
type Problem struct {
	Path   string    `json:"path"` // in etcd, or what else the setting is called
	Kind   string    `json:"kind"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"` // when it was first found wrong, whatever the reason was then
	// Of a setting: what it says, quoted, and what is used instead.
	Value string `json:"value,omitempty"`
	Used  string `json:"used,omitempty"`
}

// New makes a ledger without problems, which says what is new in the log.
func New(log *slog.Logger) *Ledger {
	return &Ledger{log: log, began: time.Now(), open: map[problemID]Problem{}, said: map[problemID]time.Time{}}
}

// maxReason bounds what is kept of a value that somebody wrote to etcd. A command for each of several prefixes fits in.
const maxReason = 1000

// Report says how it stands with an object: nil is well.
func (p *Ledger) Report(path string, err error) {
	switch before, after := p.Note(object, path, err); {
	case after == before:
	case after == "":
		p.log.Info("object in etcd is in order again", "key", path)
	default:
		p.log.Warn("object in etcd is not acted upon", "key", path, "reason", after)
	}
}

// ReportSetting says how it stands with a setting; instead is what is used where
// it makes no sense.
func (p *Ledger) ReportSetting(path string, err error, instead string) {
	p.ReportValue(path, err, "", instead)
}

// ReportValue is ReportSetting with the value that it has.
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

// Note keeps how it stands with something of a kind, nil is well, and tells the reason that it had before and the one
// that it has, "" = none. It logs nothing.
func (p *Ledger) Note(kind, path string, err error) (before, after string) {
	was, is := p.Keep(Problem{Path: path, Kind: kind, Reason: Reason(err)})
	return was.Reason, is.Reason
}

// sayAgain is when the log is told of another reason for something that is wrong already: how long etcd was waited for, for one, is
// never the same.
const sayAgain = time.Minute

// Tell is Note for what is looked at, or tried, again and again by itself: it logs what is new and what is over. It reports whether it
// has logged that something is wrong.
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

// Group is all that one part of the program finds wrong of a kind, by what it is.
type Group struct {
	ledger *Ledger
	kind   string
	open   map[string]string
}

// Group makes a group in which nothing is wrong. One goroutine uses it.
func (p *Ledger) Group(kind string) *Group { return &Group{ledger: p, kind: kind} }

// Set is Tell for all of it, by reasons: what isn't found is in order. It returns what is news.
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

// Keep is Note for all that is known of it.
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

// Of is what is wrong with something of a kind; it has no reason where nothing is.
func (p *Ledger) Of(kind, path string) Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[problemID{kind, path}]
}

// Count is how many objects and settings are not in order.
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

// All are sorted by path, then by kind.
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

// ServeHTTP shows all problems: as text, or, to a client that asks for
// application/json, or format=json, as that.
func (p *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all := p.All()
	if r.FormValue("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
		for i := range all {
			for _, s := range []*string{&all[i].Path, &all[i].Reason, &all[i].Value, &all[i].Used} {
				if !utf8.ValidString(*s) { // which JSON can't hold
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

// writeProblems is for people to read.
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

// Indent keeps a reason of several lines together, and control characters off terminals.
func Indent(reason string) string {
	lines := strings.Split(reason, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n          ")
}

// Printable quotes what is more than text: nothing from etcd gets at a terminal.
func Printable(s string) string {
	// A byte that is no text is a printable rune to ContainsFunc: the one for what can't be shown.
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Reason is what an error says, "" = there is none.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// MostSaid is how many lines of one kind the log gets at a time: a neighbour may
// send thousands of routes that are refused.
const MostSaid = 20
