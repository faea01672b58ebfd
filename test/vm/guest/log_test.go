// SPDX-License-Identifier: Apache-2.0

//go:build e2evm

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/routing"
)

// A rule that logs writes a line for each packet into the kernel's log. Of other
// network namespaces than the machine's first the kernel logs only if it is told to.
func TestKernelLog(t *testing.T) {
	if err := os.WriteFile("/proc/sys/net/netfilter/nf_log_all_netns", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	r := routing.New(t, lab.Config{Hosts: []string{"a"}})
	client, web := r.Host("a").Pod("client"), r.Host("a").Pod("web")
	r.Put(model.Put{Key: model.PolicyKey{Tier: "default", Policy: "seen"}, Value: model.Policy{Selector: "all()", Inbound: []model.Rule{
		{Action: model.ActionLog, LogPrefix: "seen", Match: model.Match{Protocol: model.ProtocolICMP}}, {Action: model.ActionAllow},
	}, Outbound: []model.Rule{{Action: model.ActionAllow}}}})
	want := []string{"seen: ", "SRC=" + client.Addrs()[0].String(), "DST=" + web.Addrs()[0].String(), "PROTO=ICMP"}
	r.Until("the kernel's log has a packet", func() error {
		r.Reaches(client, web)
		log, err := exec.CommandContext(t.Context(), "dmesg").Output()
		if err != nil {
			return err
		}
	lines:
		for line := range strings.Lines(string(log)) {
			for _, w := range want {
				if !strings.Contains(line, w) {
					continue lines
				}
			}
			return nil
		}
		return fmt.Errorf("no line has %q", want)
	})
}
