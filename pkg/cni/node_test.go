// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/protocol"
)

func TestNodename(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "nodename")
	empty := filepath.Join(dir, "empty")
	for name, content := range map[string]string{file: " node-1\n", empty: "\n"} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os_, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	for _, tt := range []struct {
		in   netconf.Nodename
		want string
		code uint
	}{
		{in: netconf.Nodename{Name: "n", File: file, Hostname: "h"}, want: "n"},
		{in: netconf.Nodename{File: file, Hostname: "h"}, want: "node-1"},
		{in: netconf.Nodename{File: missing, Hostname: "h"}, want: "h"},
		{in: netconf.Nodename{File: empty, Hostname: "h"}, want: "h"},
		{in: netconf.Nodename{File: missing}, want: strings.ToLower(os_)},
		{in: netconf.Nodename{File: missing, FileSet: true, FileOptional: true}, want: strings.ToLower(os_)},
		{in: netconf.Nodename{File: missing, FileSet: true}, code: protocol.CodeTryAgain},
		{in: netconf.Nodename{File: empty, FileSet: true}, code: protocol.CodeTryAgain},
		{in: netconf.Nodename{File: missing, FileRequired: true}, code: protocol.CodeTryAgain},
	} {
		node, err := findNodeName(tt.in, false, quiet())
		got := node.name
		if tt.code != 0 {
			if err == nil || protocol.Explain(err).Code != tt.code {
				t.Errorf("%+v: %v", tt.in, err)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%+v: %q, %v, want %q", tt.in, got, err, tt.want)
		}
	}
}

func TestMTU(t *testing.T) {
	dir := t.TempDir()
	s := &call{env: protocol.Environ{VarDir: dir}, conf: &netconf.Config{}, log: quiet()}
	if got := s.mtu(); got != 1500 {
		t.Errorf("no file: %d", got)
	}
	for content, want := range map[string]int{"1440\n": 1440, "x": 1500, "": 1500, "9": 1500, "99999999": 1500} {
		if err := os.WriteFile(filepath.Join(dir, "mtu"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := s.mtu(); got != want {
			t.Errorf("%q: %d", content, got)
		}
	}
	s.conf.MTU = 9000
	if got := s.mtu(); got != 9000 {
		t.Errorf("configured: %d", got)
	}
}
