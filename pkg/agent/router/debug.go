// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/calico-go/calico/pkg/bgp"
	"github.com/calico-go/calico/pkg/daemon/problems"
)

// WritePeers describes the sessions as they stand, for people. It asks Run how many routes go by each, and goes on
// without an answer when the context ends.
func (r *Router) WritePeers(ctx context.Context, b *bytes.Buffer) {
	_, _ = fmt.Fprintln(b, "# peers")
	if err := r.talker.trouble(); err != nil {
		_, _ = fmt.Fprintln(b, "not as it should be:", problems.Indent(err.Error()))
	}
	peers, err := r.network.speaker.Status(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(b, "no answer:", err)
		return
	}
	peersTable(b, peers, r.countUsed(ctx), time.Now())
}

// countUsed has the router count the routes that go through each neighbour; nil = it didn't.
func (r *Router) countUsed(ctx context.Context) map[netip.Addr]int {
	answer := make(chan map[netip.Addr]int, 1)
	select {
	case r.counts <- answer:
		return <-answer
	case <-ctx.Done():
		return nil
	}
}

// used is that count.
func (r *Router) used() map[netip.Addr]int {
	if r.engine == nil {
		return map[netip.Addr]int{}
	}
	return r.engine.Used()
}

func peersTable(w io.Writer, peers []bgp.PeerStatus, used map[netip.Addr]int, now time.Time) {
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
func (r *Router) picture() string {
	var b strings.Builder
	if r.engine == nil {
		reason := cmp.Or(r.inbox.Waits(), r.naming.Waits())
		if reason == "" {
			reason = "the settings in etcd have not been read yet"
		}
		_, _ = fmt.Fprintf(&b, "# routes\nnothing is wanted yet: %s\n", reason)
		if r.recalled {
			_, _ = fmt.Fprintln(&b, "BGP says what it said before the agent was started anew")
		}
		return b.String()
	}
	if r.waitsFor != "" {
		_, _ = fmt.Fprintf(&b, "# frozen\n%s\n", r.waitsFor)
	}
	if !r.acts {
		_, _ = fmt.Fprintln(&b, "nothing of this is done")
	}
	state := r.state
	state.Advertisements = r.advertisements()
	_, _ = b.WriteString(state.String())
	_, _ = fmt.Fprintln(&b, "# not programmed")
	for _, subject := range slices.Sorted(maps.Keys(r.lacks)) {
		_, _ = fmt.Fprintf(&b, "%s: %s\n", subject, problems.Indent(r.lacks[subject].Error()))
	}
	return b.String()
}
