// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/model"
)

// TestConflist: the runtime's network configuration is written when the agent serves the host, and not before; here kube-proxy is in the
// way at first.
func TestConflist(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	conf, staged := t.TempDir(), filepath.Join(h.dir, "var", netconf.StagedName)
	const text = `{"name": "net", "plugins": [{"type": "calico"}]}`
	if err := os.Mkdir(filepath.Dir(staged), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(staged, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.ip("link", "add", ipvsLink, "type", "veth", "peer", "name", "ipvs-peer")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", ipvsLink).Run() }) // gone already, where all is well
	stop := h.startWith(func(c *Config) { c.CNI.Dir = conf })
	h.unready("kube-proxy runs in mode ipvs, as the link kube-ipvs0 shows")
	list := filepath.Join(conf, netconf.ListName)
	if _, err := os.Stat(list); err == nil {
		t.Error("the network configuration is there before the agent serves")
	}
	h.ip("link", "del", ipvsLink)
	h.ready()
	h.until("the network configuration is there", func() bool {
		got, err := os.ReadFile(list)
		return err == nil && string(got) == text
	})
	stop()
	if _, err := os.Stat(list); err != nil {
		t.Errorf("after the agent's end: %v", err)
	}
}
