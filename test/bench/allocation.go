// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// allocation runs the Go benchmarks of the pure allocation core.
func allocation(ctx context.Context, _ *bench) ([]table, error) {
	const pkg = "./pkg/ipam"
	output, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchmem", pkg).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("benchmarks of %s: %w\n%s", pkg, err, output)
	}
	t := table{
		title:  "Choosing addresses, without etcd",
		note:   "Go benchmarks of `pkg/ipam`.",
		header: []string{"benchmark", "time", "memory", "allocations"},
	}
	for line := range strings.Lines(string(output)) {
		// BenchmarkX-2  1234  5678 ns/op  90 B/op  1 allocs/op
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(f[0], "Benchmark"), "-")
		t.add(name, f[2]+" ns", f[len(f)-4]+" B", f[len(f)-2])
	}
	return []table{t}, nil
}
