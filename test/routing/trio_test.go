// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// trio is a lab of three hosts with a pod each.
type trio struct {
	*testing.T
	lab   *lab.Lab
	hosts []*lab.Host
	pods  []*lab.Pod
}

// encap gives every pool of a lab an encapsulation.
func encap(mode model.EncapMode) func(*model.Pool) {
	return func(p *model.Pool) { p.VXLANMode = mode }
}

func nameOf(mode model.EncapMode) string {
	if mode == model.EncapNever {
		return "never"
	}
	return string(mode)
}

// newTrio makes a lab whose pools have an encapsulation.
func newTrio(t *testing.T, cfg lab.Config, settings ...string) *trio {
	t.Helper()
	if cfg.Racks == nil {
		cfg.Hosts = []string{"a", "b", "c"}
	}
	cfg.NoFsync, cfg.Log = true, io.Discard
	cfg.AgentEnv = settings
	r := &trio{T: t, lab: lab.ForTest(t, cfg)}
	r.hosts = r.lab.Hosts()
	for i, h := range r.hosts {
		r.pods = append(r.pods, h.Pod(fmt.Sprintf("pod%d", i)))
	}
	return r
}

func (r *trio) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), eventually.Limit)
	r.Cleanup(cancel)
	return ctx
}

// all has every pod ping every other one, in both families.
func (r *trio) all() {
	r.Helper()
	ctx := r.ctx()
	for i, from := range r.pods {
		for j, to := range r.pods {
			if i == j {
				continue
			}
			if len(to.Addrs()) != 2 {
				r.Fatalf("pod %d has %v", j, to.Addrs())
			}
			if err := from.Ping(ctx, to); err != nil {
				r.show(i, j)
				r.Fatal(err)
			}
		}
	}
}

// show logs what hosts know.
func (r *trio) show(hosts ...int) {
	r.Helper()
	for _, i := range hosts {
		r.Logf("host %s:\n%s\n%s\n%s", r.hosts[i].Name(), r.run(i, "ip", "route"), r.run(i, "ip", "-6", "route"), r.state(i))
	}
}

// run runs a command on a host.
func (r *trio) run(host int, command string, args ...string) string {
	out, err := r.hosts[host].Exec(r.ctx(), command, args...)
	if err != nil {
		r.Fatal(err)
	}
	return string(out)
}

// state is the agent's picture of itself.
func (r *trio) state(host int) string {
	return r.fetch(host, "http://127.0.0.1:9099/debug/state?format=text")
}

func (r *trio) metrics(host int) string { return r.fetch(host, "http://127.0.0.1:9091/metrics") }

func (r *trio) fetch(host int, url string) string {
	text, err := fetch(r.ctx(), r.hosts[host], url)
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits for a condition; what is shown where it doesn't come.
func (r *trio) until(what string, met func() bool) {
	r.Helper()
	if err := eventually.Wait(r.ctx(), what, eventually.Holds(met)); err != nil {
		for i := range r.hosts {
			r.show(i)
		}
		r.Fatal(err)
	}
}

// routesTo are a host's routes to the blocks of another one, as it has them.
func (r *trio) routesTo(host, other int) []string {
	var found []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(r.run(host, "ip", family, "route", "show", "proto", "81")) {
			fields := strings.Fields(line)
			p, err := netip.ParsePrefix(fields[0])
			if err != nil {
				continue
			}
			for _, a := range r.pods[other].Addrs() {
				if p.Contains(a) {
					found = append(found, strings.Join(fields, " "))
				}
			}
		}
	}
	return found
}
