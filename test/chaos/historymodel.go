// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is how one address behaves: it is free, or one handle holds it.
// The state is that handle, "" where it is free.
func register() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init:              func() []any { return []any{""} },
		Step:              func(state, input, _ any) []any { return after(state.(string), input.(operation)) },
		DescribeOperation: func(input, _ any) string { return input.(operation).String() },
		DescribeState: func(state any) string {
			if state == "" {
				return "free"
			}
			return state.(string)
		},
	}
	return m.ToModel()
}

// after are the states that an operation may lead to, none where it cannot
// have happened.
func after(holder string, op operation) []any {
	switch op.kind {
	case allocates: // again, too: ADD is idempotent
		if holder == "" || holder == op.handle {
			return []any{op.handle}
		}
		return nil
	case releases: // nobody else's
		if holder == op.handle {
			return []any{""}
		}
	case sees:
		if holder != op.handle {
			return nil
		}
	case mayAllocate:
		if holder == "" {
			return []any{"", op.handle}
		}
	case mayRelease:
		if holder == op.handle {
			return []any{holder, ""}
		}
	}
	return []any{holder}
}

// checkPatience bounds the check of one address, which takes well under a second:
// one that takes this long would not end at all.
const checkPatience = 5 * time.Minute

// linearizable reports whether the operations on one address can have happened
// one after the other, each at one moment of its interval.
func linearizable(ops []operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	history := make([]porcupine.Operation, len(ops))
	lanes := lanesOf(ops)
	for i, op := range ops {
		history[i] = porcupine.Operation{ClientId: lanes[i], Input: op, Call: int64(op.begin), Return: int64(op.end)}
	}
	return porcupine.CheckOperationsVerbose(register(), history, checkPatience)
}

// lanesOf puts operations that overlap into different lanes, for the picture.
func lanesOf(ops []operation) []int {
	lanes := make([]int, len(ops))
	var free []time.Duration // when each lane is
	for i, op := range ops { // by begin
		lane := slices.IndexFunc(free, func(at time.Duration) bool { return at < op.begin })
		if lane < 0 {
			lane, free = len(free), append(free, 0)
		}
		free[lane], lanes[i] = op.end, lane
	}
	return lanes
}

// shrink leaves away what isn't needed to see that the operations are not
// linearizable: all operations of a handle together, and single looks. Neither
// makes a good history bad.
func shrink(ops []operation) []operation {
	bad := func(ops []operation) bool {
		result, _ := linearizable(ops)
		return result == porcupine.Illegal
	}
	if !bad(ops) {
		return ops
	}
	var handles []string
	for _, op := range ops {
		if op.handle != "" && !slices.Contains(handles, op.handle) {
			handles = append(handles, op.handle)
		}
	}
	for _, handle := range handles {
		less := slices.DeleteFunc(slices.Clone(ops), func(op operation) bool { return op.handle == handle })
		if bad(less) {
			ops = less
		}
	}
	for i := len(ops) - 1; i >= 0; i-- {
		if ops[i].kind != sees {
			continue
		}
		if less := slices.Delete(slices.Clone(ops), i, i+1); bad(less) {
			ops = less
		}
	}
	return ops
}

// String is one line without its times.
func (op operation) String() string {
	switch op.kind {
	case allocates:
		return fmt.Sprintf("%s ADD %s: has it", op.host, op.handle)
	case releases:
		return fmt.Sprintf("%s DEL %s: done", op.host, op.handle)
	case mayAllocate:
		return fmt.Sprintf("%s ADD %s: failed, may have taken it", op.host, op.handle)
	case mayRelease:
		return fmt.Sprintf("%s %s %s: failed, may have freed it", op.host, op.verb, op.handle)
	}
	if op.handle == "" {
		return fmt.Sprintf("%s sees it free at revision %d", op.host, op.revision)
	}
	return fmt.Sprintf("%s sees it with %s at revision %d", op.host, op.handle, op.revision)
}
