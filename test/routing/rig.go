// SPDX-License-Identifier: Apache-2.0

// Package routing watches labs whose hosts reach each other by routes: what the
// agents hold, say and count, and the traffic between pods; and it runs the
// routing daemons that others use, as neighbours.
//
// Its own tests have pods of several hosts talk by every encapsulation, while modes, agents, hosts and
// etcd change, and are of the faults that hosts and etcd can have. Those of neighbours
// are in test/e2e, which needs the daemons.
package routing

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// A Rig is a lab that is watched by a test. Its methods end the test where
// something can't be read.
type Rig struct {
	testing.TB
	*lab.Lab
}

// New makes a lab whose agents take IPv6 addresses too, and find out soon that a
// neighbour is gone.
func New(tb testing.TB, cfg lab.Config) *Rig {
	tb.Helper()
	cfg.NoFsync = true
	cfg.AgentEnv = append([]string{"FELIX_BGPHOLDTIMESECS=9", "FELIX_BGPKEEPALIVETIMESECS=3", "IP6=autodetect"}, cfg.AgentEnv...)
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	return &Rig{tb, lab.ForTest(tb, cfg)}
}

// Put writes values to etcd, in one transaction.
func (r *Rig) Put(puts ...model.Put) {
	r.Helper()
	r.commit(model.Change{Puts: puts})
}

// Delete deletes keys from etcd.
func (r *Rig) Delete(keys ...model.Key) {
	r.Helper()
	r.commit(model.Change{Deletes: keys})
}

func (r *Rig) commit(c model.Change) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
	defer cancel()
	if _, err := r.Etcd().Commit(ctx, c); err != nil {
		r.Fatal(err)
	}
}

// Until waits for a condition.
func (r *Rig) Until(what string, condition func() error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
	defer cancel()
	if err := eventually.Wait(ctx, what, condition); err != nil {
		r.Fatal(err)
	}
}

// Reaches waits until a pod, or a host, has an answer from each of the targets.
func (r *Rig) Reaches(from interface {
	Ping(context.Context, lab.Target) error
}, targets ...lab.Target) {
	r.Helper()
	for _, to := range targets {
		ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
		err := from.Ping(ctx, to)
		cancel()
		if err != nil {
			r.Fatal(err)
		}
	}
}

// Log is what the host's agent has logged, former runs included.
func (r *Rig) Log(h *lab.Host) string {
	r.Helper()
	data, err := os.ReadFile(r.Dir() + "/log/agent-" + h.Name() + ".log")
	if err != nil {
		r.Fatal(err)
	}
	return string(data)
}

// Says waits until one line of the agent's log has all the words.
func (r *Rig) Says(h *lab.Host, words ...string) {
	r.Helper()
	r.Until(fmt.Sprintf("the log of host %s says %q in one line", h.Name(), words), func() error {
		for line := range strings.Lines(r.Log(h)) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return fmt.Errorf("it ends with\n%s", lab.Tail(r.Dir()+"/log/agent-"+h.Name()+".log", 5))
	})
}

// fetch asks the agent over HTTP, on its host.
func fetch(ctx context.Context, h *lab.Host, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = h.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Metric is one of the agent's.
func (r *Rig) Metric(h *lab.Host, name string) (float64, error) {
	body, err := fetch(r.Context(), h, "http://127.0.0.1:9091/metrics")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return strconv.ParseFloat(m[1], 64)
}

// Counts waits until a metric of the agent is as wanted.
func (r *Rig) Counts(h *lab.Host, name string, want func(float64) bool) {
	r.Helper()
	r.Until("metric "+name+" of host "+h.Name(), func() error {
		v, err := r.Metric(h, name)
		if err == nil && !want(v) {
			err = fmt.Errorf("it is %v", v)
		}
		return err
	})
}

// AtLeast is for Counts.
func AtLeast(n float64) func(float64) bool { return func(v float64) bool { return v >= n } }

// Exactly is for Counts.
func Exactly(n float64) func(float64) bool { return func(v float64) bool { return v == n } }

// State is what the agent shows at /debug/state.
func (r *Rig) State(h *lab.Host) string {
	body, err := fetch(r.Context(), h, "http://127.0.0.1:9099/debug/state?format=text")
	if err != nil {
		return "no answer: " + err.Error()
	}
	return body
}

// Routes are those that the agent's router has in the host's kernel.
func (r *Rig) Routes(h *lab.Host) []string {
	r.Helper()
	lines, err := RoutesOf(r.Context(), h)
	if err != nil {
		r.Fatal(err)
	}
	return lines
}

// RoutesOf are those of any host, of both families, as iproute2 prints them,
// without what doesn't matter here.
func RoutesOf(ctx context.Context, h *lab.Host) (lines []string, err error) {
	for _, family := range []string{"-4", "-6"} {
		out, err := h.Exec(ctx, "ip", family, "route", "show", "proto", "81")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(out)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " metric ")
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// Blocks are the prefixes of the host's own blocks, of which there must be some.
func (r *Rig) Blocks(h *lab.Host) (blocks []netip.Prefix) {
	r.Helper()
	entries, _, err := r.Dump(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range entries {
		if b, ok := e.Value.(model.Block); ok && b.Affinity == h.Name() {
			blocks = append(blocks, b.CIDR)
		}
	}
	if len(blocks) == 0 {
		r.Fatalf("host %s has no block", h.Name())
	}
	return blocks
}

// Established waits until the agent has so many sessions.
func (r *Rig) Established(h *lab.Host, sessions int) {
	r.Helper()
	r.Until(fmt.Sprintf("%d sessions of host %s", sessions, h.Name()), func() error {
		n, err := r.Metric(h, `calico_node_bgp_peers{state="established"}`)
		if err == nil && n != float64(sessions) {
			err = fmt.Errorf("it has %v:\n%s", n, r.State(h))
		}
		return err
	})
}
