// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

// Agent is what a node's agent reports.
type Agent struct {
	Ready     bool               `json:"ready"`
	Readiness string             `json:"readiness"` // the page, which says why it isn't ready
	Problems  []problems.Problem `json:"problems"`
	debugstate.State
}

// NoAgentError says that no agent answers at a URL.
type NoAgentError struct{ Err error }

// Error says that no agent answers, and why.
func (e *NoAgentError) Error() string { return "no agent answers: " + e.Err.Error() }

// Ask asks the agent whose health port has this URL. The error is a *NoAgentError if none answers.
func Ask(ctx context.Context, url string) (a Agent, err error) {
	text, status, err := session.Page(ctx, url+"/readiness")
	if err != nil {
		return a, &NoAgentError{err}
	}
	a.Ready, a.Readiness = status == http.StatusOK, text
	for page, v := range map[string]any{"/debug/invalid?format=json": &a.Problems, "/debug/state": &a.State} {
		text, status, err := session.Page(ctx, url+page)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%.200s", text)
		}
		if err == nil {
			err = json.Unmarshal([]byte(text), v)
		}
		if err != nil {
			return a, fmt.Errorf("the agent's page %s: %w", page, err)
		}
	}
	return a, nil
}
