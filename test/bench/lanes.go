// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// lane is a pair of namespaces on two hosts.
type lane struct {
	name     string
	from, to lab.Namespace
	at       netip.Addr // of to
	over     *lane      // what it is compared with, if with anything
	runs     []traffic  // one for each round
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

// newFabric makes the lanes: between hosts and between pods without encapsulation, and between pods through VXLAN,
// by Calico and by hand.
func (b *bench) newFabric(ctx context.Context) (_ *fabric, err error) {
	f := &fabric{}
	if f.scratch, err = os.MkdirTemp("", "calico-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	plain, err := f.start(ctx, b, lab.Config{Name: "bench-plain"})
	if err != nil {
		return nil, err
	}
	hosts := plain.Hosts()
	between := &lane{name: "hosts", from: hosts[0].Namespace(), to: hosts[1].Namespace(), at: hosts[1].IPv4()}
	pods, err := podLane(ctx, "pods", plain, between)
	if err != nil {
		return nil, err
	}
	byHand, err := f.start(ctx, b, lab.Config{Name: "bench-hand", NoAgent: true})
	if err != nil {
		return nil, err
	}
	hand, err := handLane(ctx, byHand)
	if err != nil {
		return nil, err
	}
	vxlan, err := f.start(ctx, b, lab.Config{Name: "bench-vxlan", Pool: func(p *model.Pool) { p.VXLANMode = model.EncapAlways }})
	if err != nil {
		return nil, err
	}
	through, err := podLane(ctx, "VXLAN, pods", vxlan, hand)
	if err != nil {
		return nil, err
	}
	f.lanes = []*lane{between, pods, hand, through}
	for _, l := range f.lanes {
		if _, err := untilAnswered(ctx, l.from, l.at); err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return f, nil
}

// start adds a lab of two hosts, whose uplinks have the wire's rate.
func (f *fabric) start(ctx context.Context, b *bench, cfg lab.Config) (*lab.Lab, error) {
	cfg.Hosts, cfg.BinDir, cfg.DataDir = []string{"a", "b"}, b.bin, filepath.Join(f.scratch, cfg.Name)
	cfg.Pools = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	cfg.Conf = func(_ string, plugin map[string]any) { plugin["ipam"] = map[string]any{"type": "calico-ipam"} }
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	f.labs = append(f.labs, l)
	limit := fmt.Sprintf("qdisc replace dev eth0 root tbf rate %s burst %s limit %s", wireRate, wireBurst, wireQueue)
	for _, h := range l.Hosts() {
		if _, err := h.Exec(ctx, "tc", strings.Fields(limit)...); err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name(), err)
		}
	}
	return l, nil
}

// podLane adds a pod on each host.
func podLane(ctx context.Context, name string, l *lab.Lab, over *lane) (*lane, error) {
	var pods []*lab.Pod
	for _, h := range l.Hosts() {
		p, err := h.AddPod(ctx, "pod-"+h.Name(), lab.PodConfig{})
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	return &lane{name: name, from: pods[0].Namespace(), to: pods[1].Namespace(), at: pods[1].Addrs()[0], over: over}, nil
}

// handLane wires, on each host, a namespace behind a veth, and a VXLAN device, without any rules.
func handLane(ctx context.Context, l *lab.Lab) (*lane, error) {
	hosts := l.Hosts()
	var ends []lab.Namespace
	for i, h := range hosts {
		ns, err := l.NewNamespace("hand-" + h.Name())
		if err != nil {
			return nil, err
		}
		ends = append(ends, ns)
		script := fmt.Sprintf(`set -e
			sysctl -qw net.ipv4.ip_forward=1
			ip link add vx type vxlan id 99 dstport 4790 local %[1]s remote %[4]s dev eth0 nolearning noudpcsum
			ip link set vx address 02:00:00:00:00:0%[2]d mtu 1450 up
			ip addr add 10.9.9.%[2]d/24 dev vx
			ip neigh replace 10.9.9.%[3]d lladdr 02:00:00:00:00:0%[3]d dev vx nud permanent
			ip route add 10.7.%[3]d.2 via 10.9.9.%[3]d dev vx onlink
			ip link add hand mtu 1450 type veth peer name eth0 mtu 1450 netns %[5]s
			ip link set hand up
			ip addr add 10.7.%[2]d.1/32 dev hand
			ip route add 10.7.%[2]d.2 dev hand
			nsenter --net=%[5]s sh -ec 'ip link set eth0 up; ip addr add 10.7.%[2]d.2/32 dev eth0; ip route add 10.7.%[2]d.1 dev eth0; ip route add default via 10.7.%[2]d.1'
			`, h.IPv4(), i+1, 2-i, hosts[1-i].IPv4(), ns.Path())
		if _, err := h.Exec(ctx, "sh", "-c", strings.ReplaceAll(script, "\t", "")); err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name(), err)
		}
	}
	return &lane{name: "VXLAN by hand, pods by hand", from: ends[0], to: ends[1], at: netip.MustParseAddr("10.7.2.2")}, nil
}
