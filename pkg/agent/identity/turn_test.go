// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/store"
)

// TestEffortIsNamedOnce has efforts fail alike, each after another time.
func TestEffortIsNamedOnce(t *testing.T) {
	var log strings.Builder
	i := &Keeper{log: slog.New(slog.NewTextHandler(&log, nil))}
	i.problems = problems.New(i.log)
	var e effort
	try := func(err error) {
		e.run(func() error { return err })
		i.tell(problemKeys, e.err)
	}
	for _, ms := range []int{5453, 9981, 30} {
		try(fmt.Errorf("write the host's addresses: %w: no answer (after %d ms)", store.ErrUnavailable, ms))
	}
	for _, ms := range []int{2, 3} {
		try(fmt.Errorf("write the host's addresses: %w: bad certificate (after %d ms)", store.ErrAuth, ms))
	}
	try(errors.New("something else"))
	try(fmt.Errorf("write the host's addresses: %w: no answer (after 1 ms)", store.ErrUnavailable))
	try(nil)
	for text, want := range map[string]int{"the host is not in order": 4, "after 5453 ms": 1, "after 2 ms": 1, "after 1 ms": 1, "in order again": 1} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%q is said %d times, want %d", text, got, want)
		}
	}
	if t.Failed() {
		t.Log(log.String())
	}
}
