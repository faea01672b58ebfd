// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/calico-go/calico/pkg/agent/problems"
	"github.com/calico-go/calico/pkg/bgp"
)

// debugState serves /debug/state: what this host has and wants, for people.
type debugState struct {
	loop   *loop
	router *router
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
	d.peers(ctx, &b)
	ask(ctx, &b, "routes", d.router.asks)
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

// peers are the sessions as they stand.
func (d debugState) peers(ctx context.Context, b *bytes.Buffer) {
	_, _ = fmt.Fprintln(b, "# peers")
	if err := d.router.talker.trouble(); err != nil {
		_, _ = fmt.Fprintln(b, "not as it should be:", problems.Indent(err.Error()))
	}
	peers, err := d.router.network.speaker.Status(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(b, "no answer:", err)
		return
	}
	writePeers(b, peers, d.used(ctx), time.Now())
}

// used has the router count the routes that go through each neighbour; nil = it didn't.
func (d debugState) used(ctx context.Context) map[netip.Addr]int {
	answer := make(chan map[netip.Addr]int, 1)
	select {
	case d.router.counts <- answer:
		return <-answer
	case <-ctx.Done():
		return nil
	}
}

// used is that count.
func (r *router) used() map[netip.Addr]int {
	if r.engine == nil {
		return map[netip.Addr]int{}
	}
	return r.engine.Used()
}

func writePeers(w io.Writer, peers []bgp.PeerStatus, used map[netip.Addr]int, now time.Time) {
	if len(peers) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "address\tas\tkind\thost\tstate\tfor\treceived\tused\trefused\tsent\tlast error")
	for _, p := range peers {
		last := ""
		if p.Error != "" {
			last = fmt.Sprintf("%s (%v ago)", problems.Printable(p.Error), now.Sub(p.ErrorAt).Round(time.Second))
		}
		host := p.Host
		if host == "" {
			host = "-"
		}
		routes := "?"
		if used != nil {
			routes = strconv.Itoa(used[p.Address])
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%v\t%d\t%s\t%d\t%d\t%s\n", p.Address, p.AS, p.Kind, host, p.State,
			now.Sub(p.Since).Round(time.Second), p.Received, routes, p.Refused, p.Sent, last)
	}
	_ = t.Flush() // into memory
}

// picture is what the router wants, and what of that the kernel lacks.
func (r *router) picture() string {
	var b strings.Builder
	if r.engine == nil {
		reason := cmp.Or(r.inbox.Waits(), r.naming.Waits())
		if reason == "" {
			reason = "the settings in etcd have not been read yet"
		}
		_, _ = fmt.Fprintf(&b, "# routes\nnothing is wanted yet: %s\n", reason)
		return b.String()
	}
	if r.waitsFor != "" {
		_, _ = fmt.Fprintf(&b, "# frozen\n%s\n", r.waitsFor)
	}
	if !r.acts {
		_, _ = fmt.Fprintln(&b, "nothing of this is done")
	}
	_, _ = b.WriteString(r.state.String())
	_, _ = fmt.Fprintln(&b, "# not programmed")
	for _, subject := range slices.Sorted(maps.Keys(r.lacks)) {
		_, _ = fmt.Fprintf(&b, "%s: %s\n", subject, problems.Indent(r.lacks[subject].Error()))
	}
	return b.String()
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
