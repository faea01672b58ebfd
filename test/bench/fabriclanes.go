// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// Lanes by name. Between hosts "no rules" there is no connection tracking either.
const (
	hostLane          = "hosts' own namespaces"
	podLane           = "pods"
	handLane          = "pods by hand, no rules"
	trackedLane       = "pods by hand, connection tracking alone"
	vxlanLane         = "VXLAN, pods"
	handVXLANHosts    = "VXLAN by hand, hosts' own namespaces, no rules"
	handVXLAN         = "VXLAN by hand, pods by hand, no rules"
	trackedVXLANHosts = "VXLAN by hand, hosts' own namespaces, connection tracking alone"
	trackedVXLAN      = "VXLAN by hand, pods by hand, connection tracking alone"
	handVXLANBeside   = "VXLAN by hand, pods by hand, on the same hosts"
)

// lane is a pair of namespaces on two hosts.
type lane struct {
	name     string
	from, to lab.Namespace
	at       netip.Addr // of to
	over     []versus
	runs     map[string][]traffic // by series, one for each round
}

// versus is what a lane is compared with.
type versus struct {
	lane string
	goal bool
}

// comparison says what a lane is compared with, if with anything.
type comparison struct {
	lane string
	over []versus
}

// fabric is labs of two hosts each, and lanes between them.
type fabric struct {
	scratch string
	labs    []*lab.Lab
	lanes   []*lane
}

func (f *fabric) close() error {
	var errs []error
	for _, l := range f.labs {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(f.scratch))...)
}

// newFabric makes all lanes: between our pods, with and without VXLAN, beside
// them, and by hand between hosts that have these rules of nft, by name.
func (b *bench) newFabric(ctx context.Context, byRules map[string]string) (_ *fabric, err error) {
	f := &fabric{}
	if f.scratch, err = os.MkdirTemp("", "calico-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	for _, c := range []struct {
		name string
		mode model.EncapMode
		lane string
	}{{"plain", model.EncapNever, podLane}, {"vxlan", model.EncapAlways, vxlanLane}} {
		l, err := f.start(ctx, b, lab.Config{Name: "bench-" + c.name, Pool: func(p *model.Pool) { p.VXLANMode = c.mode }})
		if err != nil {
			return nil, err
		}
		hosts := l.Hosts()
		var pods []*lab.Pod
		for _, h := range hosts {
			p, err := h.AddPod(ctx, "pod-"+h.Name(), lab.PodConfig{})
			if err != nil {
				return nil, err
			}
			pods = append(pods, p)
		}
		f.lanes = append(f.lanes, &lane{name: c.lane, from: pods[0].Namespace(), to: pods[1].Namespace(), at: pods[1].Addrs()[0]})
		if c.mode == model.EncapNever {
			f.lanes = append(f.lanes, &lane{name: hostLane, from: hosts[0].Namespace(), to: hosts[1].Namespace(), at: hosts[1].IPv4()})
			continue
		}
		if err := f.byHand(ctx, l, "on the same hosts", ""); err != nil {
			return nil, err
		}
	}
	for name, rules := range byRules {
		l, err := f.start(ctx, b, lab.Config{Name: "bench-hand-" + strings.Fields(name)[0], NoAgent: true})
		if err != nil {
			return nil, err
		}
		if err := f.byHand(ctx, l, name, rules); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// start adds a lab of two hosts.
func (f *fabric) start(ctx context.Context, b *bench, cfg lab.Config) (*lab.Lab, error) {
	cfg.Hosts, cfg.BinDir, cfg.DataDir = []string{"a", "b"}, b.bin, filepath.Join(f.scratch, cfg.Name)
	cfg.Pools = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	cfg.Conf = func(_ string, plugin map[string]any) { plugin["ipam"] = map[string]any{"type": "calico-ipam"} }
	l, err := lab.Start(ctx, cfg)
	if err == nil {
		f.labs = append(f.labs, l)
	}
	return l, err
}

// byHand wires, on two hosts, a namespace behind a veth each, of MTU 1500, with
// plain routes, one of MTU 1450 for VXLAN, and a VXLAN device. Rules, if any, are nft's.
func (f *fabric) byHand(ctx context.Context, l *lab.Lab, name, rules string) error {
	hosts := l.Hosts()
	ends := map[string]lab.Namespace{}
	for i, h := range hosts {
		n := i + 1
		script := fmt.Sprintf(`set -e
			sysctl -qw net.ipv4.ip_forward=1
			ip link add vx type vxlan id 99 dstport 4790 local %[1]s remote %[4]s dev eth0 nolearning noudpcsum
			ip link set vx address 02:00:00:00:00:0%[2]d mtu 1450 up
			ip addr add 10.9.9.%[2]d/24 dev vx
			ip neigh replace 10.9.9.%[3]d lladdr 02:00:00:00:00:0%[3]d dev vx nud permanent
			ip route add 10.8.%[3]d.2 via %[4]s
			ip route add 10.7.%[3]d.2 via 10.9.9.%[3]d dev vx onlink
			`, h.IPv4(), n, 3-n, hosts[1-i].IPv4())
		for _, w := range []struct {
			net, mtu int
		}{{8, 1500}, {7, 1450}} {
			ns, err := l.NewNamespace(fmt.Sprintf("hand-%s-%d", h.Name(), w.net))
			if err != nil {
				return err
			}
			ends[fmt.Sprintf("%d %d", w.net, n)] = ns
			link := fmt.Sprintf("hand%d", w.net)
			script += fmt.Sprintf(`
			ip link add %[1]s mtu %[2]d type veth peer name eth0 mtu %[2]d netns %[3]s
			ip link set %[1]s up
			ip addr add 10.%[4]d.%[5]d.1/32 dev %[1]s
			ip route add 10.%[4]d.%[5]d.2 dev %[1]s
			nsenter --net=%[3]s sh -ec 'ip link set eth0 up; ip addr add 10.%[4]d.%[5]d.2/32 dev eth0; ip route add 10.%[4]d.%[5]d.1 dev eth0; ip route add default via 10.%[4]d.%[5]d.1'
			`, link, w.mtu, ns.Path(), w.net, n)
		}
		if rules != "" {
			if _, err := h.Exec(ctx, "nft", rules); err != nil {
				return fmt.Errorf("host %s: %w", h.Name(), err)
			}
		}
		if _, err := h.Exec(ctx, "sh", "-c", strings.ReplaceAll(script, "\t", "")); err != nil {
			return fmt.Errorf("host %s: %w", h.Name(), err)
		}
	}
	addr := netip.MustParseAddr
	f.lanes = append(f.lanes,
		&lane{name: "pods by hand, " + name, from: ends["8 1"], to: ends["8 2"], at: addr("10.8.2.2")},
		&lane{name: "VXLAN by hand, hosts' own namespaces, " + name, from: hosts[0].Namespace(), to: hosts[1].Namespace(), at: addr("10.9.9.2")},
		&lane{name: "VXLAN by hand, pods by hand, " + name, from: ends["7 1"], to: ends["7 2"], at: addr("10.7.2.2")})
	return nil
}

// choose has only these lanes measured, and waits until each has a way.
func (f *fabric) choose(ctx context.Context, chosen []comparison) error {
	var lanes []*lane
	for _, c := range chosen {
		i := slices.IndexFunc(f.lanes, func(l *lane) bool { return l.name == c.lane })
		if i < 0 {
			return fmt.Errorf("no lane %q", c.lane)
		}
		l := f.lanes[i]
		l.over, l.runs = c.over, map[string][]traffic{}
		if _, err := untilAnswered(ctx, l.from, l.at); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		lanes = append(lanes, l)
	}
	f.lanes = lanes
	return nil
}

// round measures each lane, in a new order.
func (f *fabric) round(ctx context.Context, measure func(*lane) error) error {
	for _, i := range rand.Perm(len(f.lanes)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := measure(f.lanes[i]); err != nil {
			return fmt.Errorf("%s: %w", f.lanes[i].name, err)
		}
	}
	return nil
}
