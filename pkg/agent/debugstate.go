// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

// debugState serves /debug/state: what this host has and wants, for people.
type debugState struct {
	loop   *loop
	router *router.Router
}

// picturePatience is what each part of the agent has to describe itself.
const picturePatience = 3 * time.Second

// ServeHTTP shows endpoints, BGP's neighbours, and what the router wants.
func (d debugState) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), picturePatience)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var b bytes.Buffer
	ask(ctx, &b, "endpoints", d.loop.asks)
	_, _ = io.WriteString(&b, d.router.State(ctx).Text(time.Now()))
	_, _ = w.Write(b.Bytes()) // a client that left needs no answer
}

// ask has another goroutine describe what is its own.
func ask(ctx context.Context, w io.Writer, what string, asks chan<- chan string) {
	answer := make(chan string, 1)
	select {
	case asks <- answer:
		_, _ = io.WriteString(w, <-answer)
	case <-ctx.Done():
		_, _ = fmt.Fprintf(w, "# %s\nbusy: there was no answer in %v\n", what, picturePatience)
	}
}

// picture is the host's endpoints, and how they stand.
func (l *loop) picture() string {
	var b strings.Builder
	_, _ = fmt.Fprintln(&b, "# endpoints")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, path := range slices.Sorted(maps.Keys(l.desired.targets)) {
		target := l.desired.targets[path]
		iface := target.want.Interface
		if iface == "" {
			iface = "-"
		}
		words := make([]string, len(target.want.Addrs))
		for i, a := range target.want.Addrs {
			words[i] = a.String()
		}
		reason := target.refused
		if reason == nil {
			reason = target.problem
		}
		if reason == nil {
			reason = l.wall.stands(path)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", iface, l.status(target), strings.Join(words, ","), problems.Printable(path), problems.Printable(problems.Reason(reason)))
	}
	_ = t.Flush() // into memory
	return b.String()
}
