// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// engineRuns is how often each size is measured.
const engineRuns = 5

// engineReport is what policyengine prints.
type engineReport struct {
	Endpoints, Local, Policies, Profiles int
	Wall, CPU                            time.Duration
	Told, Live, Peak                     int64
	Rules, Sets, Members                 int
	Updates                              []struct {
		Name             string
		Median, P99, CPU time.Duration
	}
}

// policyEngine measures the policy engine in clusters of three sizes, in a
// process with one processor each.
func policyEngine(ctx context.Context, _ *bench) (_ result, err error) {
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	program := filepath.Join(scratch, "policyengine")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./test/bench/policyengine")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	sizes := []int{1_000, 10_000, 100_000}
	runs := make([][]engineReport, len(sizes))
	for range engineRuns {
		for i, n := range sizes {
			cmd := exec.CommandContext(ctx, program, fmt.Sprint(n))
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
			cmd.Stderr = os.Stderr
			output, err := cmd.Output()
			if err != nil {
				return result{}, fmt.Errorf("%s: %w", cmd, err)
			}
			var report engineReport
			decoder := json.NewDecoder(bytes.NewReader(output))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&report); err != nil {
				return result{}, fmt.Errorf("%s: %w", cmd, err)
			}
			runs[i] = append(runs[i], report)
		}
	}
	return engineResult(runs), nil
}

func engineResult(runs [][]engineReport) result {
	initial := table{
		title: "Policy: the engine's first calculation",
		note: fmt.Sprintf("From nothing until the rules and sets of one host are known, in a process with one processor (GOMAXPROCS=1); medians of %d processes. "+
			"Memory is what the engine is told of, with the engine; and the most that the process had.", engineRuns),
		header: []string{"endpoints", "here", "policies", "profiles", "rules and sets here", "members", "time", "CPU", "told of", "and the engine", "peak memory"},
	}
	updates := table{
		title:  "Policy: what one change costs the engine",
		note:   "Until the engine knows what it means for the host. CPU is the mean, garbage collection included.",
		header: []string{"change", "endpoints", "median", "p99", "CPU"},
	}
	var r result
	for _, of := range runs {
		a := of[0]
		wall := median(each(of, func(r engineReport) time.Duration { return r.Wall }))
		cpu := median(each(of, func(r engineReport) time.Duration { return r.CPU }))
		peak := median(each(of, func(r engineReport) int64 { return r.Peak }))
		initial.add(fmt.Sprint(a.Endpoints), fmt.Sprint(a.Local), fmt.Sprint(a.Policies), fmt.Sprint(a.Profiles),
			fmt.Sprintf("%d, %d", a.Rules, a.Sets), fmt.Sprint(a.Members), ms(wall), ms(cpu), mib(a.Told), mib(a.Live), mib(peak))
		if a.Endpoints == 100_000 {
			r.goals = append(r.goals,
				goal{"policy engine: first calculation among 100,000 endpoints", "≤ 3 s", ms(wall), wall <= 3*time.Second},
				goal{"the same: peak memory of the process", "≤ 500 MiB", mib(peak), peak <= 500<<20})
		}
	}
	most := []time.Duration{100 * time.Microsecond, 100 * time.Microsecond, 50 * time.Microsecond, 50 * time.Microsecond, 0}
	for u, limit := range most {
		var first time.Duration
		for _, of := range runs {
			mid := median(each(of, func(r engineReport) time.Duration { return r.Updates[u].Median }))
			high := median(each(of, func(r engineReport) time.Duration { return r.Updates[u].P99 }))
			cpu := median(each(of, func(r engineReport) time.Duration { return r.Updates[u].CPU }))
			name, n := of[0].Updates[u].Name, of[0].Endpoints
			updates.add(name, fmt.Sprint(n), micro(mid), micro(high), micro(cpu))
			if first == 0 {
				first = mid
			}
			if n == 100_000 && limit > 0 {
				r.goals = append(r.goals, goal{"policy engine: " + name + ", among 100,000 endpoints", "≤ " + micro(limit), micro(mid), mid <= limit})
			}
			if n == 100_000 {
				what := "the same, over that among 1,000"
				if limit == 0 {
					what = "policy engine: " + name + ", among 100,000 endpoints over 1,000"
				}
				r.goals = append(r.goals, goal{what, "≤ 2.00", ratio(over(mid, first)), over(mid, first) <= 2})
			}
		}
	}
	r.tables = []table{initial, updates}
	return r
}
