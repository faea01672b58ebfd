// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/cni/protocol"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestUndo(t *testing.T) {
	var u Undo
	var order []string
	for _, name := range []string{"a", "b", "c"} {
		u.Push(name, func(context.Context) error {
			order = append(order, name)
			return errors.New("refused")
		})
	}
	u.Run(quiet())
	u.Run(quiet())
	if !slices.Equal(order, []string{"c", "b", "a"}) {
		t.Errorf("undone in the order %v", order)
	}
}

func TestPanicInAGoroutine(t *testing.T) {
	err := Async(quiet(), func() error { panic("boom") }).Wait()
	if e := protocol.Explain(err); e.Code != protocol.CodeInternal || !strings.Contains(e.Text, "boom") {
		t.Errorf("%+v", e)
	}
}
