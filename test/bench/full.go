// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// fullPool shows what an ADD asks of etcd where every block is taken and one of them has a single free address, each time
// as the host's first.
func fullPool(ctx context.Context, b *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	t := table{
		title: "An ADD that takes the last address of a pool, of another host's block",
		note: fmt.Sprintf("%d of each. All other addresses of the pool are a workload's, with the attributes that the plugin writes; the host remembers no block that it has "+
			"used before. etcd goes through all blocks for it, and sends their names, those that the host looks at first, and the one.", b.count),
		header: []string{"blocks in the pool", "round trips, at most", "bytes read, at most", "median", "p99"},
	}
	var r result
	for _, blocks := range []int{16, 1024, 16384} {
		adds, err := b.lastAddress(ctx, blocks, filepath.Join(scratch, fmt.Sprint(blocks)))
		if err != nil {
			return result{}, err
		}
		most := percentile(roundTrips(adds), 1)
		t.add(fmt.Sprint(blocks), number(most), number(percentile(bytesRead(adds), 1)), ms(median(walls(adds))), ms(percentile(walls(adds), 0.99)))
		r.goals = append(r.goals, goal{fmt.Sprintf("round trips of an ADD that takes the last address in %d blocks, at most", blocks), "≤ 3", number(most), most > 0 && most <= 3})
	}
	r.tables = []table{t}
	return r, nil
}

// lastAddress makes such a pool, and ADDs and DELs in turn.
func (b *bench) lastAddress(ctx context.Context, blocks int, dir string) (adds []sample, err error) {
	pool := netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 26-bits.TrailingZeros(uint(blocks)))
	l, err := b.clusterOf(ctx, pool, dir)
	if l != nil {
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	if err != nil {
		return nil, err
	}
	if err := fillPool(ctx, l, blocks); err != nil {
		return nil, err
	}
	host, err := l.FindHost("host")
	if err != nil {
		return nil, err
	}
	c, err := b.newContender(l, fmt.Sprint(blocks))
	if err != nil {
		return nil, err
	}
	for range b.count {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		add, _, err := c.cycle()
		if err != nil {
			return nil, err
		}
		adds = append(adds, add)
		// What the host remembers is in its lock file.
		if err := os.Remove(filepath.Join(host.RunDir(), "cni.lock")); err != nil {
			return nil, err
		}
	}
	return adds, nil
}

// fillPool takes every address but one in the pool's middle.
func fillPool(ctx context.Context, l *lab.Lab, blocks int) error {
	client, err := l.OpenEtcd()
	if err != nil {
		return err
	}
	const batch = 40 // a megabyte at most
	for from := 0; from < blocks; from += batch {
		var change model.Change
		for i := from; i < min(blocks, from+batch); i++ {
			k := model.BlockKey{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i << 6)}), 26)}
			block := model.Block{CIDR: k.CIDR, Affinity: fmt.Sprintf("other-%d", i/4)}
			for o := range 64 {
				block.Allocations = append(block.Allocations, o)
				block.Attributes = append(block.Attributes, model.Attributes{
					HandleID:  fmt.Sprintf("net.%064x.eth0", i*64+o),
					Secondary: map[string]string{"namespace": "default", "pod": fmt.Sprintf("web-%d", o), "node": block.Affinity},
				})
			}
			if i == blocks/2 {
				block.Allocations[63], block.Unallocated, block.Attributes = model.Free, []int{63}, block.Attributes[:63]
			}
			change.Puts = append(change.Puts, model.Put{Key: k, Value: block})
		}
		if _, err := client.Commit(ctx, change); err != nil {
			return err
		}
	}
	return nil
}
