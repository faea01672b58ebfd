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

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
)

// clusterSize shows what an ADD reads, as other hosts' blocks grow in number.
// The clusters stand next to each other and take turns.
func clusterSize(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	sizes := []int{10, 1000, 10000}
	contenders := make([]*contender, len(sizes))
	for i, blocks := range sizes {
		l, err := b.clusterOf(ctx, filepath.Join(scratch, fmt.Sprint(blocks)))
		if l != nil {
			defer func() { err = errors.Join(err, l.Close()) }()
		}
		if err == nil {
			err = fillBlocks(ctx, l, blocks)
		}
		if err != nil {
			return result{}, err
		}
		if contenders[i], err = b.newContender(l, fmt.Sprint(blocks)); err != nil {
			return result{}, err
		}
	}
	for range 1 + b.count {
		for _, i := range rand.Perm(len(contenders)) {
			if err := ctx.Err(); err != nil {
				return result{}, err
			}
			c := contenders[i]
			add, del, err := c.cycle()
			if err != nil {
				return result{}, err
			}
			c.adds, c.dels = append(c.adds, add), append(c.dels, del)
		}
	}
	return costs(contenders, b.count), nil
}

func costs(contenders []*contender, count int) result {
	t := table{
		title: "What one ADD asks of etcd, by the size of the cluster",
		note: fmt.Sprintf("As the plugin's own counters say: the host's first ADD, which claims a block, and the %d after it. "+
			"The pool has 16,384 blocks; each cluster has an etcd of its own, and they take turns in a new order each round.", count),
		header: []string{"blocks of other hosts", "first: round trips", "bytes read", "next: round trips", "at most", "bytes read", "at most", "ADD median", "DEL median"},
	}
	var r result
	for _, c := range contenders {
		trips, read := roundTrips(c.adds[1:]), bytesRead(c.adds[1:])
		t.add(c.name, number(c.adds[0].asked.roundTrips), number(c.adds[0].asked.bytesRead),
			number(median(trips)), number(percentile(trips, 1)), number(median(read)), number(percentile(read, 1)),
			ms(median(walls(c.adds[1:]))), ms(median(walls(c.dels[1:]))))
	}
	large := contenders[len(contenders)-1]
	few, many := median(bytesRead(contenders[0].adds[1:])), median(bytesRead(large.adds[1:]))
	most := percentile(roundTrips(large.adds), 1)
	r.goals = append(r.goals,
		goal{"round trips of an ADD among " + large.name + " blocks, at most", "≤ 3", number(most), most > 0 && most <= 3},
		goal{"bytes that it reads, over those among " + contenders[0].name, "≤ 1.00", ratio(float64(many) / float64(few)), many <= few})
	r.tables = []table{t}
	return r
}

// clusterOf starts a lab with a host, named after the directory that it makes.
func (b *bench) clusterOf(ctx context.Context, dir string) (*lab.Lab, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return lab.Start(ctx, lab.Config{
		Name: "bench-cluster-" + filepath.Base(dir), Hosts: []string{"host"}, BinDir: b.bin, DataDir: dir, NoAgent: true,
		Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12")},
		Conf: func(_ string, plugin map[string]any) {
			plugin["policy_setup_timeout_seconds"] = 0
			plugin["ipam"] = map[string]any{"type": "calico-ipam"}
		},
	})
}

// fillBlocks writes full blocks of other hosts, four a host, spread evenly.
func fillBlocks(ctx context.Context, l *lab.Lab, n int) error {
	client, err := l.OpenEtcd()
	if err != nil {
		return err
	}
	const total, batch = 16384, 30
	var change model.Change
	for i := range n {
		at := uint32(i * total / n)
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(at >> 10), byte(at >> 2), byte(at << 6)}), 26)
		host := fmt.Sprintf("other-%d", i/4)
		handle := fmt.Sprintf("net.other%d.eth0", i)
		block := model.Block{
			CIDR: cidr, Affinity: host, Allocations: make([]int, 64),
			Attributes: []model.Attributes{{HandleID: handle}},
		}
		change.Puts = append(change.Puts,
			model.Put{Key: model.BlockKey{CIDR: cidr}, Value: block},
			model.Put{Key: model.AffinityKey{Host: host, CIDR: cidr}, Value: model.Affinity{}},
			model.Put{Key: model.HandleKey{ID: handle}, Value: model.Handle{ID: handle, Blocks: map[netip.Prefix]int{cidr: 64}}},
		)
		if i%batch == batch-1 || i == n-1 {
			if _, err := client.Commit(ctx, change); err != nil {
				return err
			}
			change = model.Change{}
		}
	}
	return nil
}
