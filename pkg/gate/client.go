// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
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

// Wait waits until the agent listening on the socket reports that the endpoint is programmed. It returns ErrNoAgent if
// nothing listens, a *RejectedError if the agent refuses, and the context's error if that ends first. A working agent
// says a little before the context's deadline what it still waits for.
func Wait(ctx context.Context, socket string, r Request) error {
	query := r.query()
	if deadline, ok := ctx.Deadline(); ok {
		query += withinQuery(time.Until(deadline) * 9 / 10)
	}
	return ask(ctx, socket, pathProgrammed+"?"+query)
}

// Ping returns nil if the agent listening on the socket could serve a Wait now for an endpoint of the host, or of its
// own host if host is empty. Its errors are those of Wait.
func Ping(ctx context.Context, socket, host string) error {
	target := pathReady
	if host != "" {
		target += "?" + hostQuery(host)
	}
	return ask(ctx, socket, target)
}

// ask returns nil if the agent answers yes.
func ask(ctx context.Context, socket, target string) error {
	status, body, err := exchange(ctx, socket, target, maxAnswer)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return parseAnswer(body).err(socket, status)
	}
	if err := json.Unmarshal(body, new(answer)); err != nil {
		return fmt.Errorf("ask the agent at %s: its answer is not the gate's protocol; is another program listening there? %w", socket, err)
	}
	return nil
}

// exchange makes one connection for one request: a plugin asks a question or two, and exits.
func exchange(ctx context.Context, socket, target string, most int64) (status int, body []byte, err error) {
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
		return 0, nil, fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, explain(ctx, socket, err)
	}
	defer func() { _ = response.Body.Close() }() // read only: nothing is lost
	body, err = io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return 0, nil, explain(ctx, socket, err)
	}
	return response.StatusCode, body, nil
}

// parseAnswer parses the body of a response with a status other than 200. Another program's body yields the zero
// answer.
func parseAnswer(body []byte) (a answer) {
	_ = json.Unmarshal(body, &a)
	return a
}

// err returns the error for a status other than 200.
func (a answer) err(socket string, status int) error {
	if status == http.StatusConflict || status == http.StatusServiceUnavailable {
		return &RejectedError{
			Reason: cmp.Or(a.Reason, "no reason given"), Retry: status == http.StatusServiceUnavailable, Name: a.Name, Undecided: a.Undecided,
		}
	}
	return fmt.Errorf("ask the agent at %s: unexpected answer \"%d %s\": %s", socket, status, http.StatusText(status),
		cmp.Or(a.Reason, "is another program listening there?"))
}

// explain converts the error of a failed exchange to one that callers act on.
func explain(ctx context.Context, socket string, err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("ask the agent at %s: %w", socket, ErrNoAgent)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("ask the agent at %s: %w", socket, context.Cause(ctx))
	}
	return fmt.Errorf("ask the agent at %s: %w", socket, err)
}
