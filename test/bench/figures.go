// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// percentile returns the least value that at least the part p (0..1) of the
// values don't exceed.
func percentile[T cmp.Ordered](values []T, p float64) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

func median[T cmp.Ordered](values []T) T { return percentile(values, 0.5) }

func each[R, T any](runs []R, of func(R) T) []T {
	values := make([]T, 0, len(runs))
	for _, r := range runs {
		values = append(values, of(r))
	}
	return values
}

func walls(runs []sample) []time.Duration {
	return each(runs, func(r sample) time.Duration { return r.wall })
}
func cpus(runs []sample) []time.Duration {
	return each(runs, func(r sample) time.Duration { return r.cpu })
}
func roundTrips(runs []sample) []int64 {
	return each(runs, func(r sample) int64 { return r.asked.roundTrips })
}
func bytesRead(runs []sample) []int64 {
	return each(runs, func(r sample) int64 { return r.asked.bytesRead })
}

// over is a ratio of times.
func over(a, b time.Duration) float64 { return float64(a) / float64(b) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func ratio(r float64) string { return fmt.Sprintf("%.2f", r) }

func number(n int64) string { return fmt.Sprint(n) }
