// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/routing"
)

// secret is the password of the sessions with the racks' switches.
const secret = "pass word with blanks"

// passwordFile is where the agents read it.
func passwordFile(t *testing.T, password string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// birdRack is the configuration of the switch of rack i, AS 6500i, of two: an
// eBGP neighbour of its one host, AS 6460i, and of the other rack's switch.
func birdRack(r *lab.Router, i int, host *lab.Host, other *lab.Router, statics string) string {
	conf := fmt.Sprintf("router id %s;\n%s", r.Uplinks()[0], statics)
	for f, family := range []string{"ipv4", "ipv6"} {
		conf += fmt.Sprintf(`protocol kernel { %[1]s { export where source = RTS_BGP; }; persist; graceful restart on; }
protocol bgp host_%[1]s {
	local %[2]s as %[3]d; neighbor %[4]s as %[5]d;
	password "%[6]s";
	hold time 9; connect retry time 2; error wait time 1, 2;
	graceful restart on; graceful restart time 60;
	%[1]s { import all; export all; };
}
protocol bgp other_%[1]s {
	local %[7]s as %[3]d; neighbor %[8]s as %[9]d;
	connect retry time 1; error wait time 1, 2; connect delay time 1;
	graceful restart on; graceful restart time 60;
	%[1]s { import all; export all; };
}
`, family, r.Addrs()[f], 65000+i, host.Addrs()[f], 64600+i, secret, r.Uplinks()[f], other.Uplinks()[f], 65000+3-i)
	}
	return conf
}

// racks is a lab of two racks with one host and one pod each, whose switches are
// the hosts' BGP neighbours.
type racks struct {
	*routing.Rig
	t        *testing.T
	password string
	hosts    [2]*lab.Host
	pods     [2]*lab.Pod
	switches [2]routing.Neighbour
}

// What the first rack's switch announces besides: a prefix in a pool, one that an
// import filter accepts, and others.
const (
	inPool, filtered, foreign = "192.168.250.0/26", "10.99.1.0/24", "10.98.0.0/16"
	statics                   = "protocol static { ipv4; route " + inPool + " unreachable; route " + filtered + " unreachable; route " +
		foreign + " unreachable; route 0.0.0.0/0 unreachable; }\n"
)

func newRacks(t *testing.T, password string, start func(r *lab.Router, i int, host *lab.Host, other *lab.Router) routing.Neighbour) *racks {
	t.Helper()
	r := &racks{t: t, password: password, Rig: routing.New(t, lab.Config{Racks: [][]string{{"a"}, {"b"}}})}
	file := passwordFile(t, password)
	puts := []model.Put{{Key: model.BGPMeshKey{}, Value: model.Mesh{}}}
	for i, name := range []string{"a", "b"} {
		h := r.Host(name)
		r.hosts[i] = h
		puts = append(puts, model.Put{Key: model.BGPHostKey{Host: name, Field: model.BGPHostAS}, Value: model.Text(fmt.Sprint(64601 + i))})
		for _, a := range h.Router().Addrs() {
			p := model.BGPPeer{IP: a, AS: model.ASNumber(65001 + i), PasswordFile: file}
			if a.Is4() {
				p.Import = []model.RouteFilter{
					{CIDR: netip.MustParsePrefix("10.99.0.0/16"), Action: "accept"},
					{CIDR: lab.DefaultPools()[0], Action: "accept"},
				}
			}
			puts = append(puts, model.Put{Key: model.BGPPeerKey{Host: name, IP: a}, Value: p})
		}
	}
	r.Put(puts...)
	for i, h := range r.hosts {
		r.switches[i] = start(h.Router(), i+1, h, r.hosts[1-i].Router())
	}
	for i, h := range r.hosts {
		r.pods[i] = h.Pod("pod-" + h.Name())
	}
	return r
}

// learned are the blocks of both hosts as the switch of one has them.
func (r *racks) learned(at int) (want []string) {
	r.Helper()
	for i, h := range r.hosts {
		for _, block := range r.Blocks(h) {
			f := 0
			if block.Addr().Is6() {
				f = 1
			}
			switch {
			case i == at:
				want = append(want, fmt.Sprintf("%s via %s", block, h.Addrs()[f]))
			case f == 0:
				want = append(want, fmt.Sprintf("%s via %s", block, h.Router().Uplinks()[f]))
			default: // some say a link-local address
				want = append(want, block.String())
			}
		}
	}
	return want
}

// settled waits until all sessions are up and all routes there. What restarted had
// forgotten them.
func (r *racks) settled() {
	r.Helper()
	r.converged()
	for _, h := range r.hosts {
		r.Established(h, 2)
	}
}

// converged waits until all routes are there.
func (r *racks) converged() {
	r.Helper()
	for i, b := range r.switches {
		r.Settled(b, r.learned(i)...)
	}
	for i, h := range r.hosts {
		r.Until("routes of host "+h.Name(), func() error { return r.holds(i) })
	}
}

// holds says what the kernel of a host lacks.
func (r *racks) holds(i int) error {
	h := r.hosts[i]
	got := r.Routes(h)
	var want []string
	for _, block := range r.Blocks(r.hosts[1-i]) {
		want = append(want, block.String())
	}
	want = append(want, inPool, filtered)
	for _, w := range want {
		via := " via " + h.Router().Addrs()[0].String() + " dev eth0"
		if strings.Contains(w, "::") || strings.Count(w, ":") > 1 {
			via = " via " + h.Router().Addrs()[1].String() + " dev eth0"
		}
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, w+via) }) {
			return fmt.Errorf("no route %s%s in %q", w, via, got)
		}
	}
	for _, line := range got {
		if strings.HasPrefix(line, foreign) || strings.HasPrefix(line, "default") {
			return fmt.Errorf("a route that no filter accepts: %s", line)
		}
	}
	return nil
}

// TestTopOfRackBIRD has BIRD as the switch of each of two racks.
func TestTopOfRackBIRD(t *testing.T) {
	r := newRacks(t, secret, func(r *lab.Router, i int, host *lab.Host, other *lab.Router) routing.Neighbour {
		more := ""
		if i == 1 {
			more = statics
		}
		return routing.StartBIRD(t, r.Namespace(), birdRack(r, i, host, other, more))
	})
	r.check()
	b := r.switches[0].(*routing.BIRD)
	t.Run("the switch restarts", func(t *testing.T) {
		r.undisturbed(t, func() {
			b.Kill()
			b.Start("-R")
		})
	})
	t.Run("pools change their encapsulation", r.changesModes)
	// The session's end without a restart takes the routes with it.
	b.Configure("router id 1.1.1.1;\n")
	r.Until("the routes leave", func() error {
		for _, line := range r.Routes(r.hosts[0]) {
			if strings.Contains(line, " via ") {
				return fmt.Errorf("there is %s", line)
			}
		}
		return nil
	})
}

// check has pods reach each other without encapsulation by what BGP told, and go on
// doing so while an agent restarts.
func (r *racks) check() {
	t := r.t
	t.Helper()
	r.settled()
	r.Reaches(r.pods[0], r.pods[1])
	r.Reaches(r.pods[1], r.pods[0])
	for name, end := range map[string]func() error{"asked": r.hosts[0].Agent().Stop, "killed": r.hosts[0].Agent().Kill} {
		t.Run("the agent is "+name, func(t *testing.T) {
			r.undisturbed(t, func() {
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if err := r.hosts[0].Agent().Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	for _, h := range r.hosts {
		if strings.Contains(r.Log(h), r.password) || strings.Contains(r.State(h), r.password) {
			t.Errorf("host %s shows the password", h.Name())
		}
	}
}

// changesModes has the pools be encapsulated and not any more while pods talk: the hosts' routes go by tunnels until
// the switches have told of others. No other route of the hosts leads to pods, as where the default gateway is another router.
func (r *racks) changesModes(t *testing.T) {
	for _, h := range r.hosts {
		for _, p := range lab.DefaultPools() {
			if _, err := h.Exec(t.Context(), "ip", "route", "add", "unreachable", p.String(), "metric", "10000"); err != nil {
				t.Fatal(err)
			}
		}
	}
	var flows []*routing.Traffic
	for _, v6 := range []bool{false, true} {
		flows = append(flows, routing.StartTraffic(t, r.pods[0], r.pods[1], v6))
	}
	for _, mode := range []model.EncapMode{model.EncapAlways, model.EncapNever, model.EncapAlways, model.EncapNever} {
		var puts []model.Put
		for _, p := range lab.DefaultPools() {
			puts = append(puts, model.Put{Key: model.PoolKey{CIDR: p}, Value: model.Pool{
				CIDR: p, VXLANMode: mode, IPIPMode: model.EncapNever, IPAM: true, BlockSize: model.DefaultBlockSize(p.Addr().Is6()),
			}})
		}
		r.Put(puts...)
		if mode == model.EncapNever {
			r.settled()
			continue
		}
		for i, h := range r.hosts {
			r.Until("host "+h.Name()+" has routes by its tunnels", func() error {
				routes := r.Routes(h)
				for _, block := range r.Blocks(r.hosts[1-i]) {
					if !slices.ContainsFunc(routes, func(line string) bool {
						return strings.HasPrefix(line, block.String()) && strings.Contains(line, "calico")
					}) {
						return fmt.Errorf("none to %s in %q", block, routes)
					}
				}
				return nil
			})
		}
	}
	for _, f := range flows {
		f.StopWhole()
	}
}

// undisturbed restarts something while pods talk: nothing is lost, no route leaves
// the switches or the hosts' kernels, and the sessions come back.
func (r *racks) undisturbed(t *testing.T, restart func()) {
	t.Helper()
	var flows []*routing.Traffic
	for _, v6 := range []bool{false, true} {
		flows = append(flows, routing.StartTraffic(t, r.pods[0], r.pods[1], v6))
	}
	stop := r.watch(r.hosts[:]...)
	restart()
	r.settled()
	for _, m := range stop() {
		t.Errorf("it left: %s", m)
	}
	for _, f := range flows {
		f.StopWhole()
	}
}

// watch looks all the time at what the hosts' kernels have, and where these are all,
// the second switch, and finds what was there and isn't: also what comes back.
func (r *racks) watch(hosts ...*lab.Host) (stop func() (left []string)) {
	r.Helper()
	before, learned := map[*lab.Host][]string{}, r.learned(1)
	for _, h := range hosts {
		before[h] = r.Routes(h)
	}
	ctx, cancel := context.WithCancel(r.Context())
	found := make(chan []string)
	go func() {
		missing := map[string]bool{}
		note := func(where string, want, got []string) {
			for _, w := range want {
				if !routing.Has(got, w) {
					missing[where+": "+w] = true
				}
			}
		}
		for ctx.Err() == nil {
			for _, h := range hosts {
				// The kernel forwards while an agent restarts.
				if got, err := routing.RoutesOf(r.Context(), h); err != nil {
					missing[err.Error()] = true
				} else {
					note("host "+h.Name(), before[h], got)
				}
			}
			if len(hosts) == len(r.hosts) {
				note("switch of b", learned, r.switches[1].Learned())
			}
		}
		found <- slices.Sorted(maps.Keys(missing))
	}()
	return func() []string {
		cancel()
		return <-found
	}
}
