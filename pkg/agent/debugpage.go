// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

// debugPage serves /debug/state: what this host has and wants.
type debugPage struct {
	loop   *loop
	router *router.Router
}

// answerTimeout is how long each part of the agent has to describe itself.
const answerTimeout = 3 * time.Second

// ServeHTTP answers with JSON, or with text where the query says format=text.
func (d debugPage) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), answerTimeout)
	defer cancel()
	state := struct {
		Endpoints debugstate.Endpoints `json:"endpoints"`
		Router    router.State         `json:"router"`
	}{d.loop.describe(ctx), d.router.State(ctx)}
	var b bytes.Buffer
	if req.URL.Query().Get("format") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = state.Endpoints.WriteText(&b) // into memory
		b.WriteString(state.Router.Text(time.Now()))
	} else {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		if err := e.Encode(state); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	_, _ = w.Write(b.Bytes()) // a client that left needs no answer
}

// describe asks the loop for the endpoints; Busy if it doesn't answer in time.
func (l *loop) describe(ctx context.Context) debugstate.Endpoints {
	answer := make(chan debugstate.Endpoints, 1)
	select {
	case l.asks <- func() bool { answer <- l.picture(); return false }:
		return <-answer
	case <-ctx.Done():
		return debugstate.Endpoints{Busy: true}
	}
}

// picture returns the host's endpoints and their status.
func (l *loop) picture() debugstate.Endpoints {
	targets := l.workload.Targets()
	out := debugstate.Endpoints{All: make([]debugstate.Endpoint, 0, len(targets))}
	for _, path := range slices.Sorted(maps.Keys(targets)) {
		t := targets[path]
		ep := debugstate.Endpoint{Path: problems.Printable(path), Interface: t.Want.Interface, Status: string(l.reports.status(t))}
		for _, a := range t.Want.Addrs {
			ep.Addresses = append(ep.Addresses, a.String())
		}
		for _, reason := range [...]error{t.Refused, t.Problem, l.firewall.Stands(path)} {
			if ep.Reason == "" {
				ep.Reason = problems.Printable(problems.Reason(reason))
			}
		}
		out.All = append(out.All, ep)
	}
	return out
}
