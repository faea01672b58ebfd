// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

const (
	// leaseSeconds is how long a silent host counts as alive. The default of 90 is too long to watch.
	leaseSeconds = 5
	// routePatience bounds how long a change may take to reach the kernel.
	routePatience = 30 * time.Second
)

// racks is the tour of several hosts.
type racks struct {
	*printer
	lab  *lab.Lab
	pods map[string]*lab.Pod // by host
}

func twoRacks(ctx context.Context, p *printer, name string) (err error) {
	r := &racks{printer: p, pods: map[string]*lab.Pod{}}
	r.heading("Three hosts in two racks, which have subnets of their own and a router each")
	r.line("The pools have VXLAN between subnets, and nothing within one. A host that says nothing for %d s is taken for dead.", leaseSeconds)
	r.lab, err = lab.Start(ctx, lab.Config{
		Name: name, Racks: [][]string{{"a", "b"}, {"c"}}, Log: p.w,
		Pool:     func(p *model.Pool) { p.VXLANMode = model.EncapCrossSubnet },
		AgentEnv: []string{fmt.Sprintf("FELIX_REPORTINGTTLSECS=%d", leaseSeconds), "FELIX_REPORTINGINTERVALSECS=1"},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.showLogs(r.lab)
		}
		err = errors.Join(err, r.lab.Close())
	}()
	for _, step := range []func(context.Context) error{r.addPods, r.showRoutes, r.state, r.die, r.comeBack} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *racks) addPods(ctx context.Context) error {
	r.heading("A pod on each host; from each to each, over IPv4 and IPv6")
	for _, h := range r.lab.Hosts() {
		start := time.Now()
		p, err := h.AddPod(ctx, "pod-"+h.Name(), lab.PodConfig{ContainerID: "pod-" + h.Name()})
		if err != nil {
			return err
		}
		r.line("  %s on host %s: %-55s added in %v", p.Name(), h.Name(), join(p.Addrs()), time.Since(start).Round(100*time.Microsecond))
		r.pods[h.Name()] = p
	}
	for _, from := range r.lab.Hosts() {
		var words []string
		for _, to := range r.lab.Hosts() {
			if from == to {
				continue
			}
			for _, addr := range r.pods[to.Name()].Addrs() {
				// The first packets resolve neighbours.
				if _, err := r.pods[from.Name()].Namespace().Ping(ctx, addr); err != nil {
					return fmt.Errorf("pod-%s to pod-%s: %w", from.Name(), to.Name(), err)
				}
				took, err := r.pods[from.Name()].Namespace().Ping(ctx, addr)
				if err != nil {
					return fmt.Errorf("pod-%s to pod-%s: %w", from.Name(), to.Name(), err)
				}
				words = append(words, fmt.Sprintf("%s %v", to.Name(), took.Round(time.Microsecond)))
			}
		}
		r.line("  pod-%s → %s", from.Name(), strings.Join(words, ", "))
	}
	return nil
}

// podRoutes returns the lines of a host's routing table that the agent wrote.
func podRoutes(h *lab.Host) ([]string, error) {
	k, err := h.Namespace().Kernel()
	if err != nil {
		return nil, err
	}
	ours, _ := split(k.Routes, func(line string) bool { return strings.Contains(line, " proto 8") })
	for i, line := range ours {
		ours[i] = strings.TrimPrefix(line, "route ")
	}
	return ours, nil
}

func (r *racks) showRoutes(ctx context.Context) error {
	r.heading("The routes of each host")
	r.line("Within a rack a block is reached by its host, across racks through the tunnel. What is in a host's own block, and")
	r.line("is no pod's, goes nowhere. Protocol 80 is routes to pods, 81 those to other hosts.")
	for _, h := range r.lab.Hosts() {
		lines, err := r.until(ctx, h.Name(), func(lines []string) error { return r.routesRight(h, lines) })
		if err != nil {
			return err
		}
		r.line("  host %s (%s, %s)", h.Name(), h.Router().Name(), h.IPv4())
		for _, line := range lines {
			r.line("    %s", line)
		}
	}
	return nil
}

// routesRight checks that every pod's address has a route through the right device.
func (r *racks) routesRight(h *lab.Host, lines []string) error {
	for _, other := range r.lab.Hosts() {
		device := "vxlan"
		switch {
		case other == h:
			device = "cali"
		case other.Router().Name() == h.Router().Name():
			device = "eth0"
		}
		for _, addr := range r.pods[other.Name()].Addrs() {
			if line := bestRoute(lines, addr); !strings.Contains(line, " dev "+device) {
				return fmt.Errorf("host %s: the route to pod-%s, %s, is %q: want one by %s", h.Name(), other.Name(), addr, line, device)
			}
		}
	}
	return nil
}

// bestRoute returns the line with the longest prefix that contains an address; "" if there is none.
func bestRoute(lines []string, addr netip.Addr) string {
	var best string
	bits := -1
	for _, line := range lines {
		for _, field := range strings.Fields(line)[:2] {
			if dst, err := netip.ParsePrefix(field); err == nil && dst.Contains(addr) && dst.Bits() > bits {
				best, bits = line, dst.Bits()
			}
		}
	}
	return best
}

// state shows a part of the agent's own state.
func (r *racks) state(ctx context.Context) error {
	r.heading("What the agent of host a says: part of /debug/state?format=text")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = r.lab.Host("a").Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9099/debug/state?format=text", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read only
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	shown := []string{"peers", "tunnels", "fdb and neighbours", "hosts", "mtu"}
	show := false
	for line := range strings.Lines(string(page)) {
		line = strings.TrimRight(line, " \n")
		if title, ok := strings.CutPrefix(line, "# "); ok {
			show = slices.Contains(shown, title)
		}
		if show {
			for _, part := range wrap([]string{line}, r.width-2) {
				r.line("  %s", part)
			}
		}
	}
	return nil
}
