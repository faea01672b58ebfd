// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

const (
	otherHosts   = 500
	blocksOfHost = 10
	// agentProtocol is the routing protocol number of routes to other hosts.
	agentProtocol = 81
	manyChanges   = 200
	manyPatience  = 60 * time.Second
	lookEvery     = 500 * time.Microsecond
)

// many is a host among many others, which etcd alone knows of, or one more
// host that has all their blocks and tells of them over BGP, or whose BGP
// speakers are there, each with its own blocks.
type many struct {
	name   string
	mode   model.EncapMode
	speak  bool // the other hosts have BGP speakers
	lab    *lab.Lab
	host   *lab.Host
	peer   *lab.Host   // that has all blocks; nil: they are the other hosts'
	others *neighbours // nil: they don't speak
	cold   time.Duration
	peak   int64
	idle   float64
	woken  float64
	costs  map[int]manyCost // by routes that are there already
	blocks map[int]bool     // that are in etcd
}

// manyCost is what one more block and its end cost the agent.
type manyCost struct {
	add, remove []time.Duration
	cpu         []time.Duration // for both, of the agent
}

// manyHosts measures an agent that has routes to 5,000 blocks.
func manyHosts(ctx context.Context, b *bench) (all result, err error) {
	var runs []*many
	for _, m := range []*many{{name: "VXLAN", mode: model.EncapAlways}, {name: "BGP"}, {name: "BGP, 500 sessions", speak: true}} {
		fmt.Fprintf(b.log, "  %s: %d blocks\n", m.name, otherHosts*blocksOfHost)
		if err := m.measure(ctx, b); err != nil {
			return result{}, fmt.Errorf("%s: %w", m.name, err)
		}
		runs = append(runs, m)
	}
	return manyResult(runs), nil
}

func (m *many) measure(ctx context.Context, b *bench) (err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	m.lab, err = lab.Start(ctx, lab.Config{
		Name: "bench-many", Hosts: []string{"a", "b"}, BinDir: b.bin, DataDir: scratch, NoAgent: true,
		Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/11")}, Pool: func(p *model.Pool) { p.VXLANMode = m.mode },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.lab.Close()) }()
	m.costs, m.blocks = map[int]manyCost{}, map[int]bool{}
	m.host = m.lab.Hosts()[0]
	defer func() {
		if m.others != nil {
			err = errors.Join(err, m.others.close())
		}
	}()
	if err := m.surround(ctx, m.lab.Hosts()[1]); err != nil {
		return err
	}
	begin := time.Now()
	if err := m.host.Agent().Launch(); err != nil {
		return err
	}
	total := otherHosts * blocksOfHost
	if err := m.routes(ctx, m.host, total); err != nil {
		return err
	}
	m.cold = time.Since(begin)
	agent, err := m.host.Agent().Process()
	if err != nil {
		return err
	}
	for _, size := range []int{total, 1000, 100} {
		if err := m.set(ctx, size); err != nil {
			return err
		}
		if err := errors.Join(m.routes(ctx, m.host, size), m.quiet(ctx, m.host)); err != nil {
			return err
		}
		if m.costs[size], err = m.changes(ctx, agent.PID); err != nil {
			return err
		}
		if size == total {
			if m.peak, err = peakMemory(agent.PID); err != nil {
				return err
			}
			if err := m.quiet(ctx, m.host); err != nil {
				return err
			}
			if m.idle, m.woken, err = rest(ctx, agent.PID); err != nil {
				return err
			}
		}
	}
	if m.others == nil {
		return nil
	}
	up, err := m.others.up()
	if err == nil && up != otherHosts {
		err = fmt.Errorf("%d sessions of %d", up, otherHosts)
	}
	return err // with fewer than all sessions, the figures are of something else
}

// surround makes the other hosts, as far as they are there; b is for them.
func (m *many) surround(ctx context.Context, b *lab.Host) (err error) {
	total := otherHosts * blocksOfHost
	switch {
	case m.speak:
		var addrs []netip.Addr
		for i := range otherHosts {
			_, a := otherHost(i)
			addrs = append(addrs, a)
		}
		if m.others, err = startNeighbours(b, addrs); err != nil {
			return err
		}
	case m.mode == model.EncapNever:
		m.peer = b
	}
	if err := errors.Join(m.cluster(ctx), m.set(ctx, total)); err != nil || m.peer == nil {
		return err
	}
	if err := m.peer.Agent().Start(ctx); err != nil {
		return err
	}
	if err := m.routes(ctx, m.peer, total); err != nil { // black holes
		return err
	}
	return m.quiet(ctx, m.peer)
}

func (m *many) quiet(ctx context.Context, h *lab.Host) error {
	agent, err := h.Agent().Process()
	if err != nil {
		return err
	}
	return settle(ctx, agent.PID)
}

// cluster writes what the other hosts' agents would have written of themselves.
func (m *many) cluster(ctx context.Context) error {
	if m.peer != nil {
		return nil // it is there, and writes itself
	}
	var puts []model.Put
	for i := range otherHosts {
		name, addr := otherHost(i)
		puts = append(puts,
			model.Put{Key: model.HostMetadataKey{Host: name}, Value: model.HostMetadata{}},
			model.Put{Key: model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}, Value: model.Text(addr.String())},
			model.Put{Key: model.BGPHostKey{Host: name, Field: model.BGPHostNetworkV4}, Value: model.Text("172.20.0.0/16")},
			model.Put{Key: model.StatusKey{Host: name}, Value: model.Status{Time: time.Now(), Uptime: time.Second}})
	}
	if m.others == nil { // these have no BGP at all
		puts = append(puts, model.Put{Key: model.BGPMeshKey{}, Value: model.Mesh{Enabled: false}})
	}
	return m.commit(ctx, model.Change{Puts: puts})
}

func otherHost(i int) (string, netip.Addr) {
	return fmt.Sprintf("other-%03d", i), netip.AddrFrom4([4]byte{172, 20, byte(100 + i/250), byte(1 + i%250)})
}

// block is number i of all blocks, and whose it is.
func (m *many) block(i int) (netip.Prefix, string) {
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i << 6)}), 26)
	if m.peer != nil {
		return cidr, m.peer.Name()
	}
	host, _ := otherHost(i / blocksOfHost % otherHosts)
	return cidr, host
}

// set has the first n blocks, and no others, in etcd and announced.
func (m *many) set(ctx context.Context, n int) error {
	var change model.Change
	var told []error
	for i := range otherHosts * blocksOfHost {
		if m.blocks[i] != (i < n) {
			m.blocks[i] = i < n
			m.put(&change, i, i < n)
			told = append(told, m.tell(i, i < n))
		}
	}
	return errors.Join(m.commit(ctx, change), errors.Join(told...))
}

// tell has the host of block i say what its agent would say of it.
func (m *many) tell(i int, there bool) error {
	if m.others == nil {
		return nil
	}
	cidr, _ := m.block(i)
	_, addr := otherHost(i / blocksOfHost % otherHosts)
	return m.others.all[addr].set(cidr, there)
}

func (m *many) put(change *model.Change, i int, there bool) {
	cidr, host := m.block(i)
	if !there {
		change.Deletes = append(change.Deletes, model.BlockKey{CIDR: cidr}, model.AffinityKey{Host: host, CIDR: cidr})
		return
	}
	free := make([]int, 64)
	unallocated := make([]int, 64)
	for j := range free {
		free[j], unallocated[j] = model.Free, j
	}
	change.Puts = append(change.Puts,
		model.Put{Key: model.BlockKey{CIDR: cidr}, Value: model.Block{CIDR: cidr, Affinity: host, Allocations: free, Unallocated: unallocated}},
		model.Put{Key: model.AffinityKey{Host: host, CIDR: cidr}, Value: model.Affinity{}})
}

// commit writes a change in parts that etcd takes.
func (m *many) commit(ctx context.Context, change model.Change) error {
	etcd, err := m.lab.OpenEtcd()
	if err != nil {
		return err
	}
	for part := range slices.Chunk(change.Puts, 100) {
		if _, err := etcd.Commit(ctx, model.Change{Puts: part}); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(change.Deletes, 100) {
		if _, err := etcd.Commit(ctx, model.Change{Deletes: part}); err != nil {
			return err
		}
	}
	return nil
}
