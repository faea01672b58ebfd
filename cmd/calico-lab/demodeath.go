// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/eventually"
)

// labels has a policy follow a label that a pod on another host gets and loses.
func (r *racks) labels(ctx context.Context) (err error) {
	r.heading("A policy by label, across racks")
	a, c := r.pods["a"], r.pods["c"]
	s, err := serve(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	key := model.PolicyKey{Tier: "default", Policy: "clients"}
	policy := model.Policy{Selector: "role == 'db'", Order: order(10), Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{{
		Action: model.ActionAllow, Match: model.Match{SrcSelector: "role == 'client'"},
	}}}
	value, err := model.FormatValue(policy)
	if err != nil {
		return err
	}
	r.line("  %s\n  %s", key.Path(), compact(value))
	if _, err := r.lab.Etcd().Commit(ctx, model.Change{Puts: []model.Put{{Key: key, Value: policy}}}); err != nil {
		return err
	}
	target := netip.AddrPortFrom(c.Addrs()[0], servicePort)
	for _, step := range []struct {
		pod, role string
		open      bool
	}{{"c", "db", false}, {"a", "client", true}, {"a", "visitor", false}} {
		took, err := r.label(ctx, step.pod, step.role, func() bool { return (knock(ctx, a, target) == nil) == step.open })
		if err != nil {
			return err
		}
		word := "does not reach"
		if step.open {
			word = "reaches"
		}
		r.line("  pod-%s gets the label role=%s: %v later pod-a %s pod-c", step.pod, step.role, took, word)
	}
	_, err = r.lab.Etcd().Commit(ctx, model.Change{Deletes: []model.Key{key}})
	return err
}

// label writes a pod's label and returns how long it took to be felt.
func (r *racks) label(ctx context.Context, host, role string, felt func() bool) (time.Duration, error) {
	entries, _, err := r.lab.Dump(ctx)
	if err != nil {
		return 0, err
	}
	key := model.WorkloadEndpointKey{Host: host, Orchestrator: "cni", Workload: "pod-" + host, Endpoint: "eth0"}
	at := slices.IndexFunc(entries, func(e model.Entry) bool { return e.Key == model.Key(key) })
	if at < 0 {
		return 0, fmt.Errorf("etcd has no endpoint %s", key.Path())
	}
	endpoint, ok := entries[at].Value.(model.WorkloadEndpoint)
	if !ok {
		return 0, fmt.Errorf("endpoint %s: %w", key.Path(), entries[at].Err)
	}
	endpoint.Labels = map[string]string{"role": role}
	start := time.Now()
	if _, err := r.lab.Etcd().Commit(ctx, model.Change{Puts: []model.Put{{Key: key, Value: endpoint}}}); err != nil {
		return 0, err
	}
	for !felt() {
		if time.Since(start) > policyPatience {
			return 0, fmt.Errorf("the label role=%s of pod-%s is not felt after %v", role, host, policyPatience)
		}
	}
	return time.Since(start).Round(100 * time.Microsecond), nil
}

// die has host c die.
func (r *racks) die(ctx context.Context) error {
	r.heading("Host c dies: its link is cut and its agent killed, without a farewell")
	dead := r.pods["c"]
	start := time.Now()
	if err := r.lab.Host("c").Kill(); err != nil {
		return err
	}
	for _, h := range []string{"a", "b"} {
		lines, err := r.until(ctx, h, func(lines []string) error {
			for _, addr := range dead.Addrs() {
				if line := bestRoute(lines, addr); line != "" {
					return fmt.Errorf("host %s still has %s", h, line)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.line("  host %s has no route to c's blocks any more %v later, and still", h, time.Since(start).Round(10*time.Millisecond))
		for _, line := range lines {
			r.line("    %s", line)
		}
	}
	if err := r.pods["a"].Ping(ctx, r.pods["b"]); err != nil {
		return err
	}
	r.line("  pod-a and pod-b talk on.")
	return nil
}

// until waits for a host's routes to be as they should.
func (r *racks) until(ctx context.Context, host string, check func([]string) error) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, routePatience)
	defer cancel()
	return lines, eventually.Wait(ctx, "routes of host "+host, func() error {
		if lines, err = podRoutes(r.lab.Host(host)); err != nil {
			return err
		}
		return check(lines)
	})
}

// comeBack has host c return.
func (r *racks) comeBack(ctx context.Context) error {
	r.heading("Host c comes back, with the same name and disk")
	c := r.lab.Host("c")
	start := time.Now()
	if err := c.Return(ctx); err != nil {
		return err
	}
	r.line("  its agent is ready %v later", time.Since(start).Round(time.Millisecond))
	for _, h := range []string{"a", "b", "c"} {
		host := r.lab.Host(h)
		if _, err := r.until(ctx, h, func(lines []string) error { return r.wayRight(host, lines) }); err != nil {
			return err
		}
	}
	r.line("  %v later the routes of all hosts are as they were before", time.Since(start).Round(time.Millisecond))
	for _, from := range []string{"a", "b"} {
		if err := r.pods[from].Ping(ctx, r.pods["c"]); err != nil {
			return err
		}
	}
	r.line("  pod-a → pod-c, pod-b → pod-c: answered, %v after its return", time.Since(start).Round(time.Millisecond))
	lines, err := podRoutes(c)
	if err != nil {
		return err
	}
	r.line("  routes of host c\n    %s", strings.Join(lines, "\n    "))
	return nil
}
