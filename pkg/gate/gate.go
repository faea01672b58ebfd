// SPDX-License-Identifier: Apache-2.0

// Package gate is the protocol with which the CNI plugin asks the node's agent whether a workload endpoint is
// programmed, and what the Kubernetes API knows about a pod. It is HTTP/1.1 over a unix socket.
//
//	GET /v1/programmed?host=&orchestrator=&workload=&endpoint=&revision=[&within=9s]
//	GET /v1/ready[?host=]
//	GET /v1/pod?namespace=&name=&uid=[&within=9s]
//
// The answer is 200 and {} for yes; 409 and {"reason": "…"} if it will never be yes; and 503 and {"reason": "…"} if the
// agent can't tell now, or it isn't yes within the time given by the client. "name" is a Name; "undecided" says that
// the agent will soon report another one. The answer about a pod is 200 and a Pod, or 404 and {"absent": true,
// "reason": "…"}.
package gate

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const (
	pathProgrammed = "/v1/programmed"
	pathReady      = "/v1/ready"
)

// ErrNoAgent is returned if nothing listens on the socket: it doesn't exist, or a dead process left it behind.
var ErrNoAgent = errors.New("no agent listens")

// Request asks for the endpoint as of an etcd revision or later.
type Request struct {
	Endpoint model.WorkloadEndpointKey
	Revision int64
}

// RejectedError is an agent's refusal.
type RejectedError struct {
	Reason string // one sentence
	Retry  bool   // the agent can't tell now; retrying later may help
	Name   Name
	// Undecided says that the agent is still checking a name in doubt, which takes seconds.
	Undecided bool
}

// Name is what an agent knows about its own node name.
type Name string

const (
	NameUnsaid  Name = ""         // not stated, as by an older agent
	NameOwn     Name = "own"      // it belongs to this host alone
	NameInDoubt Name = "in-doubt" // another host has it, or may have it
)

// Error says that the agent refused and why.
func (e *RejectedError) Error() string {
	if e.Retry {
		return "the agent is not ready: " + e.Reason
	}
	return "the agent refused: " + e.Reason
}

// query encodes the request for the URL.
func (r Request) query() string {
	return url.Values{
		"host":         {r.Endpoint.Host},
		"orchestrator": {r.Endpoint.Orchestrator},
		"workload":     {r.Endpoint.Workload},
		"endpoint":     {r.Endpoint.Endpoint},
		"revision":     {strconv.FormatInt(r.Revision, 10)},
	}.Encode()
}

// hostQuery encodes the host that a question is about.
func hostQuery(host string) string { return url.Values{"host": {host}}.Encode() }

// withinQuery encodes the time within which to answer.
func withinQuery(d time.Duration) string {
	return "&within=" + url.QueryEscape(d.String())
}

// parseWithin is the inverse of withinQuery. It reports false if there is no time.
func parseWithin(raw string) (time.Duration, bool) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return 0, false
	}
	d, err := time.ParseDuration(values.Get("within"))
	return d, err == nil
}

// parseQuery is the inverse of query. Unknown parameters are allowed.
func parseQuery(raw string) (Request, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return Request{}, fmt.Errorf("query of %s: %w", pathProgrammed, err)
	}
	r := Request{Endpoint: model.WorkloadEndpointKey{
		Host:         values.Get("host"),
		Orchestrator: values.Get("orchestrator"),
		Workload:     values.Get("workload"),
		Endpoint:     values.Get("endpoint"),
	}}
	for _, p := range []struct{ name, value string }{
		{"host", r.Endpoint.Host},
		{"orchestrator", r.Endpoint.Orchestrator},
		{"workload", r.Endpoint.Workload},
		{"endpoint", r.Endpoint.Endpoint},
	} {
		if p.value == "" {
			return Request{}, fmt.Errorf("%s: parameter %q is missing", pathProgrammed, p.name)
		}
	}
	r.Revision, err = strconv.ParseInt(values.Get("revision"), 10, 64)
	if err != nil || r.Revision < 0 {
		return Request{}, fmt.Errorf("%s: revision %q: want an etcd revision", pathProgrammed, values.Get("revision"))
	}
	return r, nil
}

// answer is the body of every response.
type answer struct {
	Reason string `json:"reason,omitempty"`
	Name   Name   `json:"name,omitempty"`

	Undecided bool `json:"undecided,omitempty"`
	Absent    bool `json:"absent,omitempty"` // see ErrNoPod
}
