// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/calico-go/calico/test/lab"
)

// TestScript runs the sessions in testdata/script, each with the built
// binaries and $NAME, a lab of its own.
func TestScript(t *testing.T) {
	bin := lab.Build(t, lab.BuildOptions{})
	var n atomic.Int32
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			name := fmt.Sprintf("script-%d-%d", os.Getpid(), n.Add(1))
			env.Setenv("NAME", name)
			env.Setenv("BIN", bin)
			env.Setenv("PATH", bin+":"+env.Getenv("PATH"))
			env.Defer(func() {
				if err := lab.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
			})
			return nil
		},
	})
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  []string
	}{
		{"short", 10, []string{"short"}},
		{"one two three", 10, []string{"one two", "    three"}},
		{"  v1/host/a/workload", 12, []string{"  v1/host/a/", "      worklo", "      ad"}},
		{"äöüäöüäöüäöü", 10, []string{"äöüäöüäöüä", "    öü"}},
	} {
		got := wrap([]string{c.in}, c.width)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("wrap %q at %d: got %q, want %q", c.in, c.width, got, c.want)
		}
	}
}
