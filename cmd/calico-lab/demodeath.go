// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// die makes host c die.
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

// until waits until check accepts a host's routes.
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

// comeBack makes host c return.
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
		if _, err := r.until(ctx, h, func(lines []string) error { return r.routesRight(host, lines) }); err != nil {
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
