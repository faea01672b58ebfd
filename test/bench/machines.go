// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/taps"
	"github.com/calico-go/calico/pkg/model"
)

const (
	machineCount = 1000
	stormRate    = 10_000 // DISCOVERs a second
	stormFor     = 10 * time.Second
)

// machines measures an agent that serves a thousand virtual machines by DHCP.
func machines(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	l, err := lab.Start(ctx, lab.Config{
		Name: "bench-machines", Hosts: []string{"host"}, BinDir: b.bin, DataDir: scratch, NoAgent: true, AgentEnv: []string{"FELIX_INTERFACEPREFIX=cali,tap"},
	})
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s := &served{lab: l, host: l.Hosts()[0]}
	defer func() {
		for _, tap := range s.taps {
			_ = tap.Close() // nothing is lost
		}
	}()
	if err := s.plug(); err != nil {
		return result{}, err
	}

	without, err := s.peak(ctx, false)
	if err != nil {
		return result{}, err
	}
	with, err := s.peak(ctx, true)
	if err != nil {
		return result{}, err
	}
	calm, err := s.ask(b.count)
	if err != nil {
		return result{}, err
	}
	stormy, cpu, err := s.storm(ctx)
	if err != nil {
		return result{}, err
	}

	r := result{goals: []goal{
		{fmt.Sprintf("DHCP at %d taps: peak memory of the agent, more than without", machineCount), "≤ 60 MiB", mib(with - without), with-without <= 60<<20},
		{"DHCP: a DISCOVER answered: median", "≤ 5 ms", ms(median(calm)), median(calm) <= 5*time.Millisecond},
	}}
	t := table{
		title:  fmt.Sprintf("DHCP for %d virtual machines on one host", machineCount),
		note:   fmt.Sprintf("A DISCOVER at one tap after another. In the storm another tap sends %d a second, and these ask 100 times.", stormRate),
		header: []string{"what", "figure"},
	}
	t.add("peak memory of the agent without DHCP; with", mib(without)+"; "+mib(with))
	t.add("DISCOVER to OFFER: median; p99", ms(median(calm))+"; "+ms(percentile(calm, 0.99)))
	t.add("the same in a storm: median; p99", ms(median(stormy))+"; "+ms(percentile(stormy, 0.99)))
	t.add("CPU of the agent in the storm, of one processor", fmt.Sprintf("%.1f %%", 100*cpu))
	r.tables = []table{t}
	return r, nil
}

// served are taps of a host, and its agent.
type served struct {
	lab  *lab.Lab
	host *lab.Host
	taps []*os.File
	next int // tap to ask
}

// plug makes the taps. The last is the storm's.
func (s *served) plug() error {
	return s.host.Do(func() error {
		for i := range machineCount + 1 {
			tap, err := taps.Open("tap" + strconv.Itoa(i))
			if err != nil {
				return err
			}
			s.taps = append(s.taps, tap)
		}
		return nil
	})
}

func (s *served) mac(i int) model.MAC { return model.MAC{0xfa, 0x16, 0x3e, 0, byte(i >> 8), byte(i)} }

// peak starts the agent anew, with or without subnets of the endpoints, and returns its peak memory once it serves all.
func (s *served) peak(ctx context.Context, dhcp bool) (int64, error) {
	client, err := s.lab.OpenEtcd()
	if err != nil {
		return 0, err
	}
	subnet := model.Subnet{CIDR: netip.MustParsePrefix("192.168.0.0/16"), GatewayIP: netip.MustParseAddr("192.168.255.254"), DNSServers: []netip.Addr{netip.MustParseAddr("192.168.255.253")}}
	revision, err := client.Commit(ctx, model.Change{Puts: []model.Put{{Key: model.DHCPSubnetKey{ID: "s"}, Value: subnet}}})
	for at := 0; at < len(s.taps) && err == nil; at += 100 {
		var change model.Change
		for i := at; i < min(at+100, len(s.taps)); i++ {
			spec := model.WorkloadEndpoint{
				State: model.StateActive, Name: "tap" + strconv.Itoa(i), MAC: s.mac(i), FQDN: fmt.Sprintf("vm%d.example.com", i),
				IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 32)},
			}
			if dhcp {
				spec.IPv4SubnetIDs = []string{"s"}
			}
			change.Puts = append(change.Puts, model.Put{Key: s.key(i), Value: spec})
		}
		revision, err = client.Commit(ctx, change)
	}
	if err != nil {
		return 0, err
	}
	agent := s.host.Agent()
	if p, err := agent.Process(); err == nil && p.Alive() {
		if err := agent.Stop(); err != nil {
			return 0, err
		}
	}
	if err := agent.Start(ctx); err != nil {
		return 0, err
	}
	for i := range s.taps {
		if err := gate.Wait(ctx, s.host.AgentSocket(), gate.Request{Endpoint: s.key(i), Revision: revision - int64((len(s.taps)-1)/100-i/100)}); err != nil {
			return 0, err
		}
	}
	if dhcp {
		if _, err := s.ask(machineCount); err != nil {
			return 0, err
		}
	}
	p, err := agent.Process()
	if err == nil {
		err = settle(ctx, p.PID)
	}
	if err != nil {
		return 0, err
	}
	return peakMemory(p.PID)
}

func (s *served) key(i int) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: s.host.Name(), Orchestrator: "openstack", Workload: "vm" + strconv.Itoa(i), Endpoint: "eth0"}
}

// ask sends a DISCOVER by so many taps, one after the other, and returns how long each waits for its OFFER.
func (s *served) ask(count int) ([]time.Duration, error) {
	var took []time.Duration
	buf := make([]byte, 1<<16)
	for range count {
		i := s.next % machineCount
		s.next++
		tap := s.taps[i]
		if err := tap.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := tap.Write(discover(s.mac(i))); err != nil {
			return nil, err
		}
		for {
			n, err := tap.Read(buf)
			if err != nil {
				return nil, fmt.Errorf("wait for an OFFER at tap %d: %w", i, err)
			}
			if n > 38 && buf[23] == 17 && binary.BigEndian.Uint16(buf[34:]) == 67 {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// storm asks as ask does, a hundred times a second, while the last tap sends without a pause.
func (s *served) storm(ctx context.Context) (took []time.Duration, cpu float64, err error) {
	p, err := s.host.Agent().Process()
	if err != nil {
		return nil, 0, err
	}
	before, err := cpuOf(p.PID)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		frame, tick := discover(s.mac(machineCount)), time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for sent := 0; ctx.Err() == nil; <-tick.C {
			for due := int(time.Since(began).Seconds() * stormRate); sent < due; sent++ {
				if _, err := s.taps[machineCount].Write(frame); err != nil {
					ended <- err
					return
				}
			}
		}
		ended <- nil
	}()
	for time.Since(began) < stormFor && err == nil {
		var some []time.Duration
		some, err = s.ask(1)
		took = append(took, some...)
		err = errors.Join(err, wait(ctx, 10*time.Millisecond))
	}
	end()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, 0, err
	}
	after, err := cpuOf(p.PID)
	return took, float64(after-before) / float64(time.Since(began)), err
}

// discover is a frame in which a machine asks for an address (RFC 2131).
func discover(mac model.MAC) []byte {
	message := make([]byte, 240, 244)
	copy(message, []byte{1, 1, 6})
	copy(message[28:], mac[:])
	copy(message[236:], []byte{99, 130, 83, 99})
	message = append(message, 53, 1, 1, 255)
	f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac[:]...)
	f = append(f, 0x08, 0, 0x45, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(28+len(message)))
	f = append(f, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 68, 0, 67)
	f = binary.BigEndian.AppendUint16(f, uint16(8+len(message)))
	return append(append(f, 0, 0), message...)
}
