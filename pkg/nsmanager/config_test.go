// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	good := []string{"-node", "a", "-address", "192.0.2.1", "-ca-file", "ca", "-cert-file", "c", "-key-file", "k"}
	cfg, version, err := ParseConfig(append(good, "-etcd-endpoints", "http://x:1,http://y:2"), io.Discard)
	if err != nil || version || cfg.Port != 5005 || cfg.VXLANPort != 4795 || cfg.Directory != DefaultDirectory || len(cfg.Store.Endpoints) != 2 {
		t.Error(cfg, version, err)
	}
	for _, tt := range []struct{ args, want string }{
		{"-address= -node=a", "address"},
		{"-node=a", "-address is required"},
		{"-address=0.0.0.0", "-address is required"},
		{"-address=192.0.2.1 -port=0", "-port"},
		{"-address=192.0.2.1 -vxlan-port=70000", "-vxlan-port"},
		{"-address=192.0.2.1", "-ca-file"},
		{"-address=192.0.2.1 more", `"more"`},
		{"-no-such-flag", "no-such-flag"},
	} {
		if _, _, err := ParseConfig(strings.Fields(tt.args), io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.args, err, tt.want)
		}
	}
	if _, version, err := ParseConfig([]string{"-version"}, io.Discard); !version || err != nil {
		t.Error(version, err)
	}
	if _, _, err := ParseConfig([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
