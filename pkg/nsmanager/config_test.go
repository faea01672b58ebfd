// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/nsmgrpc"
)

func TestParseConfig(t *testing.T) {
	good := []string{"-node", "a", "-address", "192.0.2.1", "-ca-file", "ca", "-cert-file", "c", "-key-file", "k"}
	cfg, err := ParseConfig(good, []string{"ETCD_ENDPOINTS=http://x:1,http://y:2", "ETCD_USERNAME=nsm", "LOG_LEVEL=error"}, "", io.Discard)
	if err != nil || cfg.Port != 5005 || cfg.VXLANPort != 4795 || cfg.Directory != nsmgrpc.DefaultDirectory || len(cfg.Store.Endpoints) != 2 || cfg.Store.Username != "nsm" ||
		cfg.Logger.Enabled(t.Context(), slog.LevelWarn) {
		t.Error(cfg, err)
	}
	for _, tt := range []struct{ args, want string }{
		{"-address= -node=a", "address"},
		{"-node=a", "-address is required"},
		{"-address=0.0.0.0", "-address is required"},
		{"-address=192.0.2.1 -port=0", "-port"},
		{"-address=192.0.2.1 -vxlan-port=70000", "-vxlan-port"},
		{"-address=192.0.2.1", "-ca-file"},
		{"-address=192.0.2.1 -node= -ca-file=a -cert-file=b -key-file=c", "-node"},
	} {
		if _, err := ParseConfig(strings.Fields(tt.args), nil, "a", io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.args, err, tt.want)
		}
	}
}
