// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// allocation runs the Go benchmarks of the pure allocation core.
func allocation(ctx context.Context, _ *bench) (result, error) {
	const pkg = "./pkg/ipam"
	output, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", pkg).CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("benchmarks of %s: %w\n%s", pkg, err, output)
	}
	t := table{
		title:  "Choosing addresses, without etcd",
		note:   "Go benchmarks of `pkg/ipam`: `OwnBlocks1000` has a view with 1,000 blocks of the host's own, of which the last has room, `Free` all, `Full` none.",
		header: []string{"benchmark", "time", "memory", "allocations"},
	}
	var r result
	for line := range strings.Lines(string(output)) {
		// BenchmarkX-2  1234  5678 ns/op  90 B/op  1 allocs/op
		f := strings.Fields(line)
		if len(f) != 8 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		ns, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return result{}, fmt.Errorf("benchmarks of %s: %q: %w", pkg, line, err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(f[0], "Benchmark"), "-")
		took := time.Duration(ns)
		t.add(name, micro(took), f[4]+" B", f[6])
		if strings.Contains(name, "OwnBlocks1000") {
			r.goals = append(r.goals, goal{"choose: " + name, "≤ 100 µs", micro(took), took <= 100*time.Microsecond})
		}
	}
	if len(r.goals) == 0 {
		return result{}, fmt.Errorf("benchmarks of %s: none of them has 1,000 own blocks:\n%s", pkg, output)
	}
	r.tables = []table{t}
	return r, nil
}

func micro(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/1e3) }
