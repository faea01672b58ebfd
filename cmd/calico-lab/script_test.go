// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/calico-go/calico/pkg/lab"
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

func TestFold(t *testing.T) {
	const value = `{"cidr":"10.0.0.0/26","allocations":[0,null,1,null],"unallocated":[1,3],"empty":[],"tags":["a","b"],"n":7,
		"long":[100,101,102,103,104,105,106,107,108,109,110,111,112,113,114,115,116,117,118,119,120,121]}`
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(value), "", "  "); err != nil {
		t.Fatal(err)
	}
	got := fold(pretty.String())
	const want = `{
  "cidr": "10.0.0.0/26",
  "allocations": [
    0, null, 1, null
  ],
  "unallocated": [
    1, 3
  ],
  "empty": [],
  "tags": [
    "a",
    "b"
  ],
  "n": 7,
  "long": [
    100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118,
    119, 120, 121
  ]
}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var before, after bytes.Buffer
	if json.Compact(&before, []byte(value)) != nil || json.Compact(&after, []byte(got)) != nil || before.String() != after.String() {
		t.Errorf("folded, it is another value:\n%s", got)
	}
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
