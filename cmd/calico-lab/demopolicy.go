// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

const (
	servicePort = 5432
	// attemptTimeout is how long one attempt to connect may take; packets between the pods take microseconds.
	attemptTimeout = 10 * time.Millisecond
	// briefTimeout is the timeout of repeated attempts until one succeeds: one whose first packet is dropped must not
	// delay the next for long.
	briefTimeout = 2 * time.Millisecond
	// silence is how long no packet must get through to conclude that none does.
	silence = 300 * time.Millisecond
	// policyPatience bounds how long a policy may take to be effective.
	policyPatience = 5 * time.Second
)

// policies shows the effect of policies on connections between the pods.
func (d *demo) policies(ctx context.Context) (err error) {
	web, db := d.pods[0], d.pods[1]
	d.heading("Policy: closed by default, and what an allow and a deny do")
	s, err := serve(db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	target := netip.AddrPortFrom(db.Addrs()[0], servicePort)
	if err := knock(ctx, web, target); err != nil {
		return fmt.Errorf("before any policy: %w", err)
	}
	d.line("Pod db listens on TCP port %d. The network's own profile lets its pods talk to each other, so web gets through.", servicePort)

	last := time.Now()
	took, err := d.put(ctx, "closed", model.Policy{Selector: "all()", Order: order(1000)}, func() (time.Time, bool) {
		if knock(ctx, web, target) == nil {
			last = time.Now()
		}
		return last, time.Since(last) > silence
	})
	if err != nil {
		return err
	}
	if took == 0 {
		d.line("A policy that picks every endpoint and allows nothing: web has not got through since it was written.")
	} else {
		d.line("A policy that picks every endpoint and allows nothing: web got through for the last time %v after it was written.", took)
	}
	if err := d.allow(ctx, web, target); err != nil {
		return err
	}
	if err := d.deny(ctx, web, s, target); err != nil {
		return err
	}
	if _, err := d.lab.Etcd().Commit(ctx, model.Change{Deletes: d.written}); err != nil {
		return fmt.Errorf("delete the policies: %w", err)
	}
	return nil
}

// allow opens the port with a policy while an attempt to connect is running.
func (d *demo) allow(ctx context.Context, web *lab.Pod, target netip.AddrPort) error {
	type result struct {
		c    net.Conn
		took time.Duration
		err  error
	}
	running := make(chan result, 1)
	start := time.Now()
	go func() {
		c, err := dial(ctx, web, target, policyPatience)
		running <- result{c, time.Since(start), err}
	}()
	policy := model.Policy{Selector: "all()", Order: order(10), Inbound: []model.Rule{{
		Action: model.ActionAllow,
		Match:  model.Match{Protocol: model.ProtocolTCP, SrcNets: hostNets(web), DstPorts: []model.Port{{Min: servicePort, Max: servicePort}}},
	}}, Outbound: []model.Rule{{Action: model.ActionAllow}}}
	select {
	case r := <-running:
		return fmt.Errorf("it connected, or failed, while nothing was allowed: %w", r.err)
	case <-time.After(200 * time.Millisecond): // its first packets were dropped
	}
	took, err := d.put(ctx, "db-from-web", policy, func() (time.Time, bool) {
		c, err := dial(ctx, web, target, briefTimeout)
		if err != nil {
			return time.Now(), false
		}
		return time.Now(), c.Close() == nil
	})
	if err != nil {
		return err
	}
	r := <-running
	if r.err != nil {
		return fmt.Errorf("the attempt that ran when the policy came: %w", r.err)
	}
	_ = r.c.Close() // it has served its purpose
	d.line("A policy of a lower order allows TCP from web: %v after it was written, a new attempt gets through. One that was", took)
	d.line("running since before got through with TCP's next try, %v after it began.", r.took.Round(time.Millisecond))
	return nil
}

// deny adds a policy while a transfer is running.
func (d *demo) deny(ctx context.Context, web *lab.Pod, s *service, target netip.AddrPort) error {
	c, err := dial(ctx, web, target, attemptTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it is cut
	go func() {
		block := make([]byte, 64<<10)
		for {
			if _, err := c.Write(block); err != nil {
				return // closed at the end
			}
		}
	}()
	start, before := time.Now(), s.received.Load()
	if err := eventually.Wait(ctx, "transfer", func() error {
		if s.received.Load() < before+100<<20 {
			return errors.New("less than 100 MiB so far")
		}
		return nil
	}); err != nil {
		return err
	}
	rate := float64(s.received.Load()-before) / time.Since(start).Seconds() / (1 << 20)
	last, seen := time.Now(), s.received.Load()
	took, err := d.put(ctx, "quarantine", model.Policy{Selector: "all()", Order: order(1), Inbound: []model.Rule{{Action: model.ActionDeny}}}, func() (time.Time, bool) {
		if n := s.received.Load(); n != seen {
			last, seen = time.Now(), n
		}
		return last, time.Since(last) > silence
	})
	if err != nil {
		return fmt.Errorf("the transfer goes on: %w", err)
	}
	d.line("Web sends to db at %.0f MiB/s. A policy that denies: the last byte arrived %v after it was written.", rate, took)
	return nil
}

// put writes a policy, waits until it is effective, and returns how long that took. felt reports whether it is
// effective, and since when.
func (d *demo) put(ctx context.Context, name string, p model.Policy, felt func() (time.Time, bool)) (time.Duration, error) {
	key := model.PolicyKey{Tier: "default", Policy: name}
	value, err := model.FormatValue(p)
	if err != nil {
		return 0, err
	}
	d.line("\n  %s\n  %s", key.Path(), value)
	start := time.Now()
	if _, err := d.lab.Etcd().Commit(ctx, model.Change{Puts: []model.Put{{Key: key, Value: p}}}); err != nil {
		return 0, fmt.Errorf("policy %s: %w", name, err)
	}
	d.written = append(d.written, key)
	for {
		since, ok := felt()
		if ok {
			return max(since.Sub(start), 0).Round(100 * time.Microsecond), nil
		}
		if time.Since(start) > policyPatience {
			return 0, fmt.Errorf("policy %s is not felt after %v", name, policyPatience)
		}
	}
}

func order(n float64) *float64 { return &n }

func hostNets(p *lab.Pod) []netip.Prefix {
	var nets []netip.Prefix
	for _, a := range p.Addrs() {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
	}
	return nets
}

// knock connects and disconnects.
func knock(ctx context.Context, from *lab.Pod, to netip.AddrPort) error {
	c, err := dial(ctx, from, to, attemptTimeout)
	if err != nil {
		return err
	}
	return c.Close()
}

// dial connects from a pod.
func dial(ctx context.Context, from *lab.Pod, to netip.AddrPort, timeout time.Duration) (c net.Conn, err error) {
	err = from.Do(func() error {
		dialer := net.Dialer{Timeout: timeout}
		c, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s to %s: %w", from.Name(), to, err)
	}
	return c, nil
}

// service receives and discards data.
type service struct {
	listener net.Listener
	received atomic.Int64 // bytes
}

func serve(on *lab.Pod) (*service, error) {
	s := &service{}
	err := on.Do(func() (err error) {
		s.listener, err = net.Listen("tcp", ":"+strconv.Itoa(servicePort))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("serve in pod %s: %w", on.Name(), err)
	}
	go func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return // closed
			}
			go s.take(c)
		}
	}()
	return s, nil
}

func (s *service) take(c net.Conn) {
	defer func() { _ = c.Close() }() // read only
	buf := make([]byte, 256<<10)
	for {
		n, err := c.Read(buf)
		s.received.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func (s *service) close() error { return s.listener.Close() }
