// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// onPool is a pool from which pods get their addresses. Where its blocks have a
// single address, each pod needs a new block.
type onPool struct {
	name  string
	cidr  string
	block int
	vxlan model.EncapMode
	limit time.Duration
	waits []time.Duration
}

// firstPing has pods added on one host, and a pod of another send echo requests
// from the moment that ADD has returned.
func firstPing(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	pools := []*onPool{
		{name: "BGP, the host has a block", cidr: "10.1.0.0/16", block: 26, limit: 100 * time.Millisecond},
		{name: "BGP, a new block is needed", cidr: "10.2.0.0/16", block: 32, limit: time.Second},
		{name: "VXLAN, the host has a block", cidr: "10.3.0.0/16", block: 26, vxlan: model.EncapAlways, limit: 100 * time.Millisecond},
		{name: "VXLAN, a new block is needed", cidr: "10.4.0.0/16", block: 32, vxlan: model.EncapAlways, limit: time.Second},
	}
	var returned time.Time // of the last ADD
	cfg := lab.Config{
		Name: "bench-ping", Hosts: []string{"a", "b", "c"}, BinDir: b.bin, DataDir: scratch,
		Pool: func(p *model.Pool) {
			for _, w := range pools {
				if p.CIDR.String() == w.cidr {
					p.BlockSize, p.VXLANMode = w.block, w.vxlan
				}
			}
		},
		Trace: func(c lab.Call, _ lab.Reply) {
			if c.Verb == "ADD" {
				returned = time.Now()
			}
		},
	}
	for _, w := range pools {
		cfg.Pools = append(cfg.Pools, netip.MustParsePrefix(w.cidr))
	}
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	hosts := l.Hosts()
	a := hosts[0]
	confs := map[*onPool]string{}
	for i, w := range pools {
		if confs[w], err = poolConf(a, scratch, i, w.cidr); err != nil {
			return result{}, err
		}
	}
	conf, err := poolConf(hosts[1], scratch, len(pools), pools[0].cidr)
	if err != nil {
		return result{}, err
	}
	from, err := hosts[1].AddPod(ctx, "from", lab.PodConfig{ConfFile: conf})
	if err != nil {
		return result{}, err
	}
	// A first pod of each, so that there is a block where there is to be one,
	// and sessions and tunnels are up.
	for round := range min(b.count, 60) + 1 {
		for i, w := range pools {
			p, err := a.AddPod(ctx, fmt.Sprintf("to-%d-%d", round, i), lab.PodConfig{ConfFile: confs[w]})
			if err != nil {
				return result{}, err
			}
			since := returned
			answered, err := untilAnswered(ctx, from.Namespace(), p.Addrs()[0])
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				w.waits = append(w.waits, answered.Sub(since))
			}
			// Left there, a block of one address is not taken again.
			if w.block < 32 {
				if err := p.Delete(ctx); err != nil {
					return result{}, err
				}
			}
		}
	}
	return firstPingResult(pools), nil
}

func firstPingResult(pools []*onPool) result {
	t := table{
		title: "From ADD's return on one host to the first answer to a ping from a pod on another",
		note: fmt.Sprintf("Three hosts on one wire, BGP's full mesh between them; %d pods each, in turns. The pod on the other host sends an echo request every %v. "+
			"Where a new block is needed, each has a single address.", len(pools[0].waits), echoEvery),
		header: []string{"pool", "median", "p90", "most"},
	}
	var r result
	for _, w := range pools {
		t.add(w.name, ms(median(w.waits)), ms(percentile(w.waits, 0.9)), ms(percentile(w.waits, 1)))
		r.goals = append(r.goals, goal{"from ADD to a ping from another host: " + w.name + ", median", "≤ " + w.limit.String(), ms(median(w.waits)), median(w.waits) <= w.limit})
	}
	r.tables = []table{t}
	return r
}

// poolConf is the host's network configuration with one pool.
func poolConf(h *lab.Host, dir string, i int, cidr string) (string, error) {
	data, err := os.ReadFile(h.ConfFile())
	if err != nil {
		return "", err
	}
	var list map[string]any
	if err := json.Unmarshal(data, &list); err != nil {
		return "", err
	}
	plugin := h.PluginConf()
	plugin["ipam"] = map[string]any{"type": "calico-ipam", "ipv4_pools": []string{cidr}}
	list["plugins"] = []any{plugin}
	if data, err = json.Marshal(list); err != nil {
		return "", err
	}
	file := filepath.Join(dir, fmt.Sprintf("pool%d.conflist", i))
	return file, os.WriteFile(file, data, 0o600)
}

// echoEvery is the time between two requests.
const echoEvery = time.Millisecond

// untilAnswered sends requests until one is answered, and returns when that was.
func untilAnswered(ctx context.Context, from lab.Namespace, to netip.Addr) (time.Time, error) {
	var conn *icmp.PacketConn
	err := from.Do(func() (err error) {
		conn, err = icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = conn.Close() }() // nothing is in it
	limit := time.Now().Add(20 * time.Second)
	id := os.Getpid() & 0xffff
	buffer := make([]byte, 1500)
	for seq := 1; time.Now().Before(limit) && ctx.Err() == nil; seq++ {
		request, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: seq & 0xffff, Data: to.AsSlice()}}).Marshal(nil)
		if err != nil {
			return time.Time{}, err
		}
		// Refused while there is no route: asked again like one that is lost.
		_, _ = conn.WriteTo(request, &net.IPAddr{IP: to.AsSlice()})
		if err := conn.SetReadDeadline(time.Now().Add(echoEvery)); err != nil {
			return time.Time{}, err
		}
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				break // nothing yet
			}
			// Of the reply's header: type, id; then the address that was asked.
			if n >= 12 && buffer[0] == byte(ipv4.ICMPTypeEchoReply) && binary.BigEndian.Uint16(buffer[4:]) == uint16(id) && slices.Equal(buffer[8:12], to.AsSlice()) {
				return time.Now(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%s does not answer: %w", to, errors.Join(ctx.Err(), os.ErrDeadlineExceeded))
}
