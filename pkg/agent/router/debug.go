// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/calico-go/calico/pkg/agent/debugstate"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/plan"
)

// State is what the router wants, and its status.
type State struct {
	debugstate.Router
	// Planned: there is a plan; Acting: it is being carried out.
	Planned bool `json:"planned"`
	Acting  bool `json:"acting"`
	// Recalled: BGP announces what it announced before the agent restarted.
	Recalled bool       `json:"recalled,omitempty"`
	Plan     plan.State `json:"plan"`
}

// State describes the router; what isn't known when the context ends is left out.
func (r *Router) State(ctx context.Context) State {
	s := State{Router: debugstate.Router{Busy: true, BGPError: problems.Reason(r.bgp.failure())}}
	peers, err := r.network.speaker.Status(ctx)
	s.PeersError = problems.Reason(err)
	for _, p := range peers {
		s.Peers = append(s.Peers, debugstate.Peer{
			Address: p.Address, AS: uint32(p.AS), Kind: string(p.Kind), Host: p.Host, State: p.State, Since: p.Since, Received: p.Received,
			Refused: p.Refused, Used: p.Used, Sent: p.Sent, Trouble: string(p.Trouble), Error: problems.Printable(p.Error), ErrorAt: p.ErrorAt,
		})
	}
	answered := make(chan struct{})
	select {
	case r.asks <- func() { defer close(answered); r.describe(&s) }:
		<-answered
	case <-ctx.Done():
	}
	return s
}

// describe is called by Run's goroutine.
func (r *Router) describe(s *State) {
	s.Busy, s.Acting, s.Planned = false, r.acts, !r.begun.IsZero()
	s.Waiting = cmp.Or(r.etcd.waits(), r.naming.Get())
	if s.Waiting == "" && !s.Planned {
		s.Waiting = "the settings in etcd have not been read yet"
	}
	s.Recalled = r.memory.recalled && r.memory.err == nil && !r.acts
	s.Plan, s.Lacks = r.plan.State().Clone(), map[string]string{}
	for subject, err := range r.kernel.lacks {
		s.Lacks[subject] = err.Error()
	}
	used := r.plan.Used()
	for i, p := range s.Peers {
		s.Peers[i].Used = used[p.Address]
	}
}

// Text formats the state for people; ages are relative to now.
func (s State) Text(now time.Time) string {
	var b strings.Builder
	s.writePeers(&b, now)
	switch {
	case s.Busy:
		b.WriteString("# routes\nbusy: there was no answer in time\n")
	case !s.Planned:
		fmt.Fprintf(&b, "# routes\nnothing is wanted yet: %s\n", s.Waiting)
		if s.Recalled {
			b.WriteString("BGP says what it said before the agent was started anew\n")
		}
	default:
		if s.Waiting != "" {
			fmt.Fprintf(&b, "# frozen\n%s\n", s.Waiting)
		}
		if !s.Acting {
			b.WriteString("nothing of this is done\n")
		}
		fmt.Fprintf(&b, "%s# not programmed\n", s.Plan)
		for _, subject := range slices.Sorted(maps.Keys(s.Lacks)) {
			fmt.Fprintf(&b, "%s: %s\n", subject, problems.Indent(s.Lacks[subject]))
		}
	}
	return b.String()
}

func (s State) writePeers(b *strings.Builder, now time.Time) {
	b.WriteString("# peers\n")
	if s.BGPError != "" {
		fmt.Fprintln(b, "not as it should be:", problems.Indent(s.BGPError))
	}
	if s.PeersError != "" {
		fmt.Fprintln(b, "no answer:", s.PeersError)
	}
	if len(s.Peers) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "address\tas\tkind\thost\tstate\tfor\treceived\tused\trefused\tsent\tlast error")
	for _, p := range s.Peers {
		last, used := "", fmt.Sprint(p.Used)
		if p.Error != "" {
			last = fmt.Sprintf("%s (%v ago)", p.Error, now.Sub(p.ErrorAt).Round(time.Second))
		}
		if s.Busy {
			used = "?"
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%v\t%d\t%s\t%d\t%d\t%s\n", p.Address, p.AS, p.Kind, cmp.Or(p.Host, "-"), p.State,
			now.Sub(p.Since).Round(time.Second), p.Received, used, p.Refused, p.Sent, last)
	}
	_ = t.Flush() // into memory
}
