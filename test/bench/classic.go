// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/taps"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/pkg/zmq"
	"github.com/calico-go/calico/test/probe"
)

const (
	classicMachines = 1000
	classicQuiet    = 30 * time.Second // for which an idle Felix is watched
)

// classic measures the system of 2014: a plugin, an ACL manager and a Felix.
func classic(ctx context.Context, b *bench) (_ result, err error) {
	c, err := b.newClassic(ctx, "bench-classic-few", 100)
	if err != nil {
		return result{}, err
	}
	felt, idle, err := c.few(ctx, b.count)
	if err := errors.Join(err, c.close()); err != nil {
		return result{}, err
	}
	if c, err = b.newClassic(ctx, "bench-classic-many", classicMachines); err != nil {
		return result{}, err
	}
	resyncs, large, updates, err := c.many(ctx, max(3, b.count/10))
	if err := errors.Join(err, c.close()); err != nil {
		return result{}, err
	}
	t := table{
		title: "The APIs of 2014: a plugin, an ACL manager and a Felix",
		note: fmt.Sprintf("The clocks run from the start of the write to etcd, from which the plugin tells; of a resynchronisation from the start of Felix until it is complete. "+
			"A group of %d members refers to itself, and a member gets another address: each ACLUPDATE has %d rules.", classicMachines, classicMachines),
		header: []string{"what", "median", "p99"},
	}
	t.add("a group's rules change, 100 machines on the host: felt by packets", ms(median(felt)), ms(percentile(felt, 0.99)))
	t.add(fmt.Sprintf("%d endpoints resynchronised, each with an ACL of two rules", classicMachines), ms(median(resyncs)), ms(percentile(resyncs, 0.99)))
	t.add(fmt.Sprintf("the same, each with an ACL of %d rules", classicMachines), ms(median(large)), ms(percentile(large, 0.99)))
	t.add(fmt.Sprintf("a group of %d changes: all ACLUPDATEs arrived", classicMachines), ms(median(updates)), ms(percentile(updates, 0.99)))
	t.add("CPU of an idle Felix with 100 machines, of one processor", fmt.Sprintf("%.2f %%", 100*idle), "")
	return result{tables: []table{t}, goals: []goal{
		{"2014: a group's change in force, 100 machines, median", "≤ 50 ms", ms(median(felt)), median(felt) <= 50*time.Millisecond},
		{fmt.Sprintf("2014: %d endpoints resynchronised", classicMachines), "≤ 3 s", ms(median(resyncs)), median(resyncs) <= 3*time.Second},
		{fmt.Sprintf("2014: a group of %d changes, all ACLUPDATEs out", classicMachines), "≤ 1 s", ms(median(updates)), median(updates) <= time.Second},
		{"2014: idle Felix, 100 machines", "≤ 0.5 %", fmt.Sprintf("%.2f %%", 100*idle), idle <= 0.005},
	}}, nil
}

// classicLab is a lab of the system of 2014 with one host.
type classicLab struct {
	lab      *lab.Lab
	host     *lab.Host
	etcd     *store.Client
	scratch  string
	taps     []*os.File
	machines int
}

func (b *bench) newClassic(ctx context.Context, name string, machines int) (c *classicLab, err error) {
	c = &classicLab{machines: machines}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.scratch, err = os.MkdirTemp("", "calico-bench-"); err != nil {
		return c, err
	}
	if c.lab, err = lab.Start(ctx, lab.Config{Name: name, Hosts: []string{"host"}, BinDir: b.bin, DataDir: c.scratch, Classic: true}); err != nil {
		return c, err
	}
	c.host = c.lab.Hosts()[0]
	if c.etcd, err = c.lab.OpenEtcd(); err != nil {
		return c, err
	}
	if err := c.rule(ctx, 80, "all"); err != nil {
		return c, err
	}
	if _, err := c.etcd.Commit(ctx, model.Change{Puts: []model.Put{{Key: model.ProfileTagsKey{Profile: "all"}, Value: model.Tags{"all"}}}}); err != nil {
		return c, err
	}
	for i := range machines {
		if err := c.endpoint(ctx, i, classicAddr(i)); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *classicLab) close() error {
	var errs []error
	for _, tap := range c.taps {
		errs = append(errs, tap.Close())
	}
	if c.lab != nil {
		errs = append(errs, c.lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(c.scratch))...)
}

func classicAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 65, byte(1 + i/250), byte(2 + i%250)})
}

func classicMAC(i int) model.MAC { return model.MAC{0xfa, 0x16, 0x3e, 1, byte(i >> 8), byte(i)} }

func (c *classicLab) endpoint(ctx context.Context, i int, addr netip.Addr) error {
	key := model.WorkloadEndpointKey{Host: "host", Orchestrator: "openstack", Workload: "vm" + strconv.Itoa(i), Endpoint: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i)}
	_, err := c.etcd.Commit(ctx, model.Change{Puts: []model.Put{{Key: key, Value: model.WorkloadEndpoint{
		State: model.StateActive, Name: "tap" + strconv.Itoa(i), MAC: classicMAC(i), ProfileIDs: []string{"all"}, IPv4Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)},
	}}}})
	return err
}

// rule has all machines let in UDP to one port, of those with a tag; "" = of everybody.
func (c *classicLab) rule(ctx context.Context, port uint16, from string) error {
	_, err := c.etcd.Commit(ctx, model.Change{Puts: []model.Put{{Key: model.ProfileRulesKey{Profile: "all"}, Value: model.Rules{
		Inbound:  []model.Rule{{Action: model.ActionAllow, Match: model.Match{Protocol: model.ProtocolUDP, SrcTag: from, DstPorts: []model.Port{{Min: port, Max: port}}}}},
		Outbound: []model.Rule{{Action: model.ActionAllow}},
	}}}})
	return err
}

// few measures what a host with some machines feels of a change, and what it costs to be idle.
func (c *classicLab) few(ctx context.Context, count int) (felt []time.Duration, idle float64, err error) {
	var machines [2]lab.Namespace
	for i := range machines {
		if machines[i], err = c.host.AddMachine(ctx, "tap"+strconv.Itoa(i), classicMAC(i).String(), classicAddr(i).String()+"/32"); err != nil {
			return nil, 0, err
		}
	}
	if err := c.plug(len(machines)); err != nil {
		return nil, 0, err
	}
	path, err := probe.Open(machines[0], machines[1], netip.AddrPortFrom(classicAddr(1), 81))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, path.Close()) }()
	for i := range count {
		allows := i%2 == 0
		var began time.Time
		effect, err := path.Change(ctx, allows, func() error {
			began = time.Now()
			return c.rule(ctx, map[bool]uint16{true: 81, false: 82}[allows], "all")
		})
		if err != nil {
			return nil, 0, err
		}
		felt = append(felt, effect.Since.Sub(began))
	}
	p, err := c.host.Agent().Process()
	if err == nil {
		err = settle(ctx, p.PID)
	}
	if err != nil {
		return nil, 0, err
	}
	before, err := cpuOf(p.PID)
	if err == nil {
		err = wait(ctx, classicQuiet)
	}
	if err != nil {
		return nil, 0, err
	}
	after, err := cpuOf(p.PID)
	return felt, float64(after-before) / float64(classicQuiet), err
}

// plug makes the taps from a number on.
func (c *classicLab) plug(from int) error {
	return c.host.Do(func() error {
		for i := from; i < c.machines; i++ {
			tap, err := taps.Open("tap" + strconv.Itoa(i))
			if err != nil {
				return err
			}
			c.taps = append(c.taps, tap)
		}
		return nil
	})
}

// many measures how long it takes to tell all of many endpoints, and of a group with all of them.
func (c *classicLab) many(ctx context.Context, count int) (resyncs, large, updates []time.Duration, err error) {
	if err := c.plug(0); err != nil {
		return nil, nil, nil, err
	}
	for _, of := range []struct {
		from string
		to   *[]time.Duration
	}{{"", &resyncs}, {"all", &large}} {
		if err := c.rule(ctx, 80, of.from); err != nil {
			return nil, nil, nil, err
		}
		for range count {
			took, err := c.resync(ctx)
			if err != nil {
				return nil, nil, nil, err
			}
			*of.to = append(*of.to, took)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	acls := make(chan string, 4*classicMachines)
	sub := &zmq.Subscriber{
		Peer: zmq.Peer{Config: zmq.Config{Name: "bench", Logger: slog.New(slog.DiscardHandler)}, Address: lab.ClassicAddr().String() + ":9906", Stands: func(error) {}},
		Take: func(topic string, body []byte) { acls <- topic },
	}
	sub.Subscribe("")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.host.Do(func() error { return sub.Run(ctx) }) // as long as it is needed
	}()
	defer func() { stop(); <-ended }()
	for i := range count + 1 { // the first one waits for the connection
		for len(acls) > 0 {
			<-acls
		}
		began, seen := time.Now(), map[string]bool{}
		if err := c.endpoint(ctx, 0, netip.AddrFrom4([4]byte{10, 66, 0, byte(1 + i)})); err != nil {
			return nil, nil, nil, err
		}
		again := time.NewTicker(time.Second)
		for len(seen) < c.machines {
			select {
			case topic := <-acls:
				if topic != "aclheartbeat" {
					seen[topic] = true
				}
			case <-again.C:
				if i > 0 {
					continue
				}
				if err := c.endpoint(ctx, 0, netip.AddrFrom4([4]byte{10, 67, 0, byte(1 + len(seen)%2)})); err != nil {
					return nil, nil, nil, err
				}
			case <-ctx.Done():
				return nil, nil, nil, ctx.Err()
			}
		}
		again.Stop()
		if i > 0 {
			updates = append(updates, time.Since(began))
		}
		if err := wait(ctx, time.Second); err != nil { // Felix is through with them
			return nil, nil, nil, err
		}
	}
	return resyncs, large, updates, nil
}

// resync starts Felix anew without what it knew, and returns how long its resynchronisation takes.
func (c *classicLab) resync(ctx context.Context) (time.Duration, error) {
	agent := c.host.Agent()
	if err := agent.Stop(); err != nil {
		return 0, err
	}
	if err := os.RemoveAll(c.host.VarDir() + "/classic"); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := agent.Launch(); err != nil {
		return 0, err
	}
	p, err := agent.Process()
	if err != nil {
		return 0, err
	}
	logged, err := os.ReadFile(p.Log)
	if err != nil {
		return 0, err
	}
	err = eventually.Wait(ctx, "a resynchronisation", func() error {
		now, err := os.ReadFile(p.Log)
		if err == nil && !bytes.Contains(now[len(logged):], fmt.Appendf(nil, "is complete: %d endpoints", c.machines)) {
			err = errors.New("it is not complete")
		}
		return err
	})
	took := time.Since(began)
	return took, errors.Join(err, agent.Wait(ctx))
}
