// SPDX-License-Identifier: Apache-2.0

package problems

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestProblems(t *testing.T) {
	var log bytes.Buffer
	p := New(untimed(&log, nil))
	for _, err := range []error{nil, errors.New("bad"), errors.New("bad"), errors.New("worse"), nil, nil} {
		p.Report("/calico/x", err)
		p.ReportSetting("FELIX_X", err, `"1", default`)
	}
	p.Report("/calico/y", errors.New(strings.Repeat("long", 249)+"abcäö"))
	if p.Count() != 1 {
		t.Errorf("count: %d", p.Count())
	}
	want := `level=WARN msg="object in etcd is not acted upon" key=/calico/x reason=bad
level=WARN msg="setting is not used" setting=FELIX_X reason=bad instead="\"1\", default"
level=WARN msg="object in etcd is not acted upon" key=/calico/x reason=worse
level=WARN msg="setting is not used" setting=FELIX_X reason=worse instead="\"1\", default"
level=INFO msg="object in etcd is in order again" key=/calico/x
level=INFO msg="setting is in order again" setting=FELIX_X
level=WARN msg="object in etcd is not acted upon" key=/calico/y reason=` + strings.Repeat("long", 249) + "abc…\n"
	if diff := cmp.Diff(want, log.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestDebugInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(slog.New(slog.DiscardHandler))
		get := func(path, accept string) (contentType, body string) {
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w.Header().Get("Content-Type"), w.Body.String()
		}
		text := func(want string) {
			t.Helper()
			if kind, got := get("/debug/invalid", "*/*"); kind != "text/plain; charset=utf-8" || got != want {
				t.Errorf("%s (-want +got):\n%s", kind, cmp.Diff(want, got))
			}
		}
		unread := "etcd has not been read yet: http://192.0.2.1:2379: no route"
		p.Unread = func() string { return unread }
		text("host etcd\n  since   2000-01-01T00:00:00Z\n  reason  " + unread + "\n")
		if _, got := get("/debug/invalid?format=json", ""); !strings.Contains(got, unread) {
			t.Errorf("etcd unread as JSON: %s", got)
		}
		unread = ""
		text("every object and setting is in order\n")
		if _, got := get("/debug/invalid?format=json", ""); got != "[]\n" {
			t.Errorf("nothing as JSON: %q", got)
		}
		p.Report("/calico/v1/policy/b", errors.New("one <x>\nand two"))
		time.Sleep(time.Hour)
		p.Report("/calico/v1/policy/b", errors.New("one <y>\nand \x1b[31mtwo"))
		p.Report("/calico/v1/policy/a\n", errors.New("bad"))
		p.ReportSetting("/calico/v1/config/X", errors.New("odd"), "")
		text(`setting /calico/v1/config/X
  since   2000-01-01T01:00:00Z
  reason  odd
object "/calico/v1/policy/a\n"
  since   2000-01-01T01:00:00Z
  reason  bad
object /calico/v1/policy/b
  since   2000-01-01T00:00:00Z
  reason  one <y>
          "and \x1b[31mtwo"
`)
		for _, ask := range [][2]string{{"/debug/invalid?format=json", "*/*"}, {"/debug/invalid", "text/html, application/json"}} {
			kind, body := get(ask[0], ask[1])
			var got []Problem
			if err := json.Unmarshal([]byte(body), &got); err != nil || kind != "application/json" || !strings.Contains(body, "<y>") {
				t.Errorf("%v, %s: %s", err, kind, body)
			}
			if diff := cmp.Diff(p.All(), got, cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		}
		p.Report("/calico/v1/policy/b", nil)
		p.Report("/calico/v1/policy/a\n", nil)
		p.ReportSetting("/calico/v1/config/X", nil, "")
		text("every object and setting is in order\n")

		p.Report("/calico/v1/policy/é\xff", errors.New("bad \xfe"))
		text(`object "/calico/v1/policy/é\xff"
  since   2000-01-01T01:00:00Z
  reason  "bad \xfe"
`)
		if _, got := get("/debug/invalid?format=json", ""); !strings.Contains(got, `"\"/calico/v1/policy/é\\xff\""`) || !strings.Contains(got, `"\"bad \\xfe\""`) {
			t.Errorf("what is no text as JSON: %s", got)
		}
	})
}

// untimed returns a logger without the time.
func untimed(b *bytes.Buffer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestTell: what is checked repeatedly is logged once, with another reason only later, and when it is over. A group notices by itself what
// is over.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := New(untimed(&log, nil))
		said := func(want string, news, wantNews bool) {
			t.Helper()
			if log.String() != want || news != wantNews {
				t.Errorf("news %v, log:\n%s\nwant %v:\n%s", news, &log, wantNews, want)
			}
			log.Reset()
		}
		bad, worse := errors.New("bad"), errors.New("worse")
		said("", p.Tell(Host, "x", nil), false)
		said("level=WARN msg=\"not in order\" what=x reason=bad\n", p.Tell(Host, "x", bad), true)
		said("", p.Tell(Host, "x", bad), false)
		said("", p.Tell(Host, "x", worse), false)
		if got := p.Of(Host, "x").Reason; got != "worse" {
			t.Errorf("listed: %q", got)
		}
		time.Sleep(sayAgain)
		said("level=WARN msg=\"not in order\" what=x reason=bad\n", p.Tell(Host, "x", bad), true)
		said("level=INFO msg=\"in order again\" what=x\n", p.Tell(Host, "x", nil), false)
		said("level=WARN msg=\"not in order\" what=x reason=bad\n", p.Tell(Host, "x", bad), true)

		g := p.Group(Host)
		for _, step := range []struct {
			found map[string]string
			news  []string
		}{
			{nil, nil},
			{map[string]string{"a": "1", "b": "1"}, []string{"a", "b"}},
			{map[string]string{"b": "1", "c": "1"}, []string{"c"}},
			{nil, nil},
			{map[string]string{"a": "1"}, []string{"a"}},
		} {
			if diff := cmp.Diff(step.news, g.Set(step.found)); diff != "" {
				t.Errorf("%v: news (-want +got):\n%s", step.found, diff)
			}
			listed := map[string]string{}
			for _, o := range p.All() {
				if o.Path != "x" {
					listed[o.Path] = o.Reason
				}
			}
			if diff := cmp.Diff(step.found, listed, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
		}
	})
}
