// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// maxAnswer bounds what is read of a response.
const maxAnswer = 64 << 10

// Wait returns when the agent listening on the socket says that the endpoint is
// programmed. It returns ErrNoAgent when nothing listens, *RejectedError when
// the agent refuses, and the context's error when that ends first. An agent that
// lives says a little before the context's deadline what it still waits for.
func Wait(ctx context.Context, socket string, r Request) error {
	query := r.query()
	if deadline, ok := ctx.Deadline(); ok {
		query += withinQuery(time.Until(deadline) * 9 / 10)
	}
	return ask(ctx, socket, pathProgrammed+"?"+query)
}

// Ping returns nil when the agent listening on the socket could serve a Wait for
// an endpoint of the host now; of its own host where that is empty. Its errors are
// those of Wait.
func Ping(ctx context.Context, socket, host string) error {
	target := pathReady
	if host != "" {
		target += "?" + hostQuery(host)
	}
	return ask(ctx, socket, target)
}

// ask makes one connection for one request: a plugin asks once and exits.
func ask(ctx context.Context, socket, target string) error {
	client := http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxAnswer,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", socket)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://calico"+target, nil)
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return explain(ctx, socket, err)
	}
	defer func() { _ = response.Body.Close() }() // read only: nothing is lost
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return explain(ctx, socket, err)
	}
	var a answer
	err = json.Unmarshal(body, &a)
	switch response.StatusCode {
	case http.StatusOK:
		if err != nil {
			return fmt.Errorf("ask the agent at %s: its answer is not the gate's protocol; is another program listening there? %w", socket, err)
		}
		return nil
	case http.StatusConflict, http.StatusServiceUnavailable:
		if a.Reason == "" {
			a.Reason = "no reason given"
		}
		return &RejectedError{Reason: a.Reason, Retry: response.StatusCode == http.StatusServiceUnavailable, Name: a.Name, Undecided: a.Undecided}
	}
	if a.Reason == "" {
		a.Reason = "is another program listening there?"
	}
	return fmt.Errorf("ask the agent at %s: unexpected answer %q: %s", socket, response.Status, a.Reason)
}

// explain gives a failed exchange the error that callers act on.
func explain(ctx context.Context, socket string, err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("ask the agent at %s: %w", socket, ErrNoAgent)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("ask the agent at %s: %w", socket, context.Cause(ctx))
	}
	return fmt.Errorf("ask the agent at %s: %w", socket, err)
}
