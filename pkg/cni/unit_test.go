// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/cni/protocol"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// TestRunNeverSilent runs calls that end early: each writes an error object and nothing else to stdout.
func TestRunNeverSilent(t *testing.T) {
	for _, env := range []map[string]string{
		{}, {"CNI_COMMAND": "X"}, {"CNI_COMMAND": "ADD"}, {"CNI_COMMAND": "STATUS"},
	} {
		var out strings.Builder
		code := Call{
			Plugin: protocol.Calico, Getenv: func(k string) string { return env[k] },
			Stdin: strings.NewReader("{}"), Stdout: &out, Stderr: io.Discard,
		}.Run(t.Context())
		if code != 1 || !strings.HasPrefix(out.String(), "{\n    \"cniVersion\": ") {
			t.Errorf("%v: exit code %d, %s", env, code, out.String())
		}
	}
}
