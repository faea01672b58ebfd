// SPDX-License-Identifier: Apache-2.0

package nsmclient

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args string
		want error
	}{
		{"", ErrUsage},
		{"fly", ErrUsage},
		{"request", ErrUsage},
		{"serve", ErrUsage},
		{"request -service s more", ErrUsage},
		{"request -no-such-flag", ErrUsage},
		{"request -h", flag.ErrHelp},
		{"serve -service s -pools 10.0.0.1/24 -directory " + dir, nsm.ErrInvalid},
		{"request -service s -timeout 1ns -directory " + dir, nsmgrpc.ErrUnreachable},
	} {
		var out, help strings.Builder
		err := Run(t.Context(), strings.Fields(tt.args), &out, &help)
		if !errors.Is(err, tt.want) || out.Len() != 0 {
			t.Errorf("%s: %v, want %v; it prints %q", tt.args, err, tt.want, out.String())
		}
		if tt.want == flag.ErrHelp && !strings.Contains(help.String(), "-addressed") {
			t.Error(help.String())
		}
	}
}
