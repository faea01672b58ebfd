// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// clusterSize shows what an ADD reads, as other hosts' blocks grow in number.
func clusterSize(ctx context.Context, b *bench) ([]table, error) {
	t := table{
		title: "What one ADD asks of etcd, by the size of the cluster",
		note: "As the plugin's own counters say: the host's first ADD, which claims a block, and the median of those after it. " +
			"The pool has 16,384 blocks.",
		header: []string{"blocks of other hosts", "first: round trips", "bytes read", "next: round trips", "bytes read", "median"},
	}
	for _, blocks := range []int{10, 1000, 10000} {
		row, err := b.clusterOf(ctx, blocks)
		if err != nil {
			return nil, err
		}
		t.add(row...)
	}
	return []table{t}, nil
}

func (b *bench) clusterOf(ctx context.Context, blocks int) ([]string, error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	l, err := lab.Start(ctx, lab.Config{
		Name: "bench-cluster", Hosts: []string{"host"}, BinDir: b.bin, DataDir: scratch, NoAgent: true,
		Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12")},
		Conf: func(_ string, plugin map[string]any) {
			plugin["policy_setup_timeout_seconds"] = 0
			plugin["log_level"] = "debug"
			plugin["ipam"] = map[string]any{"type": "calico-ipam"}
		},
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := fillBlocks(ctx, l, blocks); err != nil {
		return nil, err
	}
	host, err := l.FindHost("host")
	if err != nil {
		return nil, err
	}
	c, err := b.newContender(l, "calico")
	if err != nil {
		return nil, err
	}
	for range b.count {
		if err := c.cycle(true); err != nil {
			return nil, err
		}
	}
	costs, err := addCosts(filepath.Join(host.LogDir(), "cni.log"))
	if err != nil {
		return nil, err
	}
	if len(costs) != b.count {
		return nil, fmt.Errorf("the plugin's log tells of %d ADDs, not %d", len(costs), b.count)
	}
	trips := func(c addCost) int64 { return c.RoundTrips }
	bytes := func(c addCost) int64 { return c.BytesRead }
	number := func(n int64) string { return fmt.Sprint(n) }
	return []string{
		number(int64(blocks)), number(costs[0].RoundTrips), number(costs[0].BytesRead),
		number(median(each(costs[1:], trips))), number(median(each(costs[1:], bytes))), ms(median(walls(c.adds))),
	}, nil
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
		at := uint32(i * (total / n))
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

// addCost is what the plugin logged of one ADD.
type addCost struct {
	Command    string `json:"command"`
	RoundTrips int64  `json:"round_trips"`
	BytesRead  int64  `json:"bytes_read"`
}

// addCosts reads the plugin's log, in order.
func addCosts(path string) ([]addCost, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var costs []addCost
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var c addCost
		if json.Unmarshal(lines.Bytes(), &c) == nil && c.Command == "ADD" && c.RoundTrips > 0 {
			costs = append(costs, c)
		}
	}
	return costs, lines.Err()
}
