// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// problems are the objects of etcd and the settings that cannot be acted upon:
// each is logged once, counted while it lasts, shown, and logged again when it
// is over.
type problems struct {
	log   *slog.Logger
	began time.Time
	// unread says why nothing is known of what etcd holds, "" = something is; nil = nobody knows.
	unread func() string

	mu   sync.Mutex
	open map[problemID]problem
}

// What a problem is of.
const (
	problemObject  = "object"
	problemSetting = "setting"
	problemHost    = "host"
	problemNotice  = "notice" // of an object that is acted upon
)

// problemID names a problem: there is one of a kind for a path.
type problemID struct{ kind, path string }

// problem is why something is not acted upon.
type problem struct {
	Path   string    `json:"path"` // in etcd, or what else the setting is called
	Kind   string    `json:"kind"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"` // when it was first found wrong, whatever the reason was then
	// Of a setting: what it says, quoted, and what is used instead.
	Value string `json:"value,omitempty"`
	Used  string `json:"used,omitempty"`
}

func newProblems(log *slog.Logger) *problems {
	return &problems{log: log, began: time.Now(), open: map[problemID]problem{}}
}

// maxReason bounds what is kept of a value that somebody wrote to etcd.
const maxReason = 400

// report says how it stands with an object: nil is well.
func (p *problems) report(path string, err error) {
	switch before, after := p.note(problemObject, path, err); {
	case after == before:
	case after == "":
		p.log.Info("object in etcd is in order again", "key", path)
	default:
		p.log.Warn("object in etcd is not acted upon", "key", path, "reason", after)
	}
}

// reportSetting says how it stands with a setting; instead is what is used where
// it makes no sense.
func (p *problems) reportSetting(path string, err error, instead string) {
	p.reportValue(path, err, "", instead)
}

// reportValue is reportSetting with the value that it has.
func (p *problems) reportValue(path string, err error, value, instead string) {
	before, after := p.keep(problem{Path: path, Kind: problemSetting, Reason: errorText(err), Value: value, Used: instead})
	switch {
	case after.Reason == before.Reason && after.Value == before.Value:
	case after.Reason == "":
		p.log.Info("setting is in order again", "setting", path)
	default:
		p.log.Warn("setting is not used", "setting", path, "reason", after.Reason, "instead", instead)
	}
}

// note keeps how it stands with something and tells how it stood before; "" is well.
func (p *problems) note(kind, path string, err error) (before, after string) {
	was, is := p.keep(problem{Path: path, Kind: kind, Reason: errorText(err)})
	return was.Reason, is.Reason
}

// keep is note for all that is known of it.
func (p *problems) keep(of problem) (before, after problem) {
	if len(of.Reason) > maxReason {
		of.Reason = strings.ToValidUTF8(of.Reason[:maxReason], "") + "…"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := problemID{of.Kind, of.Path}
	before = p.open[id]
	if of.Reason == "" {
		delete(p.open, id)
		return before, problem{}
	}
	of.Since = before.Since
	if of.Since.IsZero() {
		of.Since = time.Now()
	}
	p.open[id] = of
	return before, of
}

// count is how many objects and settings are not in order.
func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for id := range p.open {
		if id.kind == problemObject || id.kind == problemSetting {
			n++
		}
	}
	return n
}

// all are sorted by path, then by kind.
func (p *problems) all() []problem {
	p.mu.Lock()
	all := make([]problem, 0, len(p.open))
	for _, o := range p.open {
		all = append(all, o)
	}
	p.mu.Unlock()
	if p.unread != nil {
		if reason := p.unread(); reason != "" { // nothing in etcd is in order so far
			all = append(all, problem{Path: "etcd", Kind: problemHost, Reason: reason, Since: p.began})
		}
	}
	slices.SortFunc(all, func(a, b problem) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind)) })
	return all
}

// ServeHTTP shows all problems: to people as text, to who asks for
// application/json, or format=json, as that.
func (p *problems) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all := p.all()
	if r.FormValue("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
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
func writeProblems(w io.Writer, all []problem) {
	if len(all) == 0 {
		_, _ = fmt.Fprintln(w, "every object and setting is in order")
		return
	}
	for _, o := range all {
		_, _ = fmt.Fprintf(w, "%s %s\n  since   %s\n  reason  %s\n", o.Kind, printable(o.Path), o.Since.UTC().Format(time.RFC3339), indent(o.Reason))
		for _, more := range [][2]string{{"value", o.Value}, {"used", o.Used}} {
			if more[1] != "" {
				_, _ = fmt.Fprintf(w, "  %-6s  %s\n", more[0], printable(more[1]))
			}
		}
	}
}

// indent keeps a reason of several lines together, and control characters off terminals.
func indent(reason string) string {
	lines := strings.Split(reason, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n          ")
}

// printable quotes what is more than text.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
