// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestForwardingByHand switches off what pods' packets need. The agent repairs it when the kernel
// tells of it: it reads all back once an hour here.
func TestForwardingByHand(t *testing.T) {
	l := ForTest(t, Config{Hosts: []string{"a"}})
	interval := model.Put{Key: model.GlobalConfigKey{Name: "RouteRefreshInterval"}, Value: model.Text("3600")}
	if _, err := l.Etcd().Commit(soon(t), model.Change{Puts: []model.Put{interval}}); err != nil {
		t.Fatal(err)
	}
	a := l.Host("a")
	web, db := a.Pod("web"), a.Pod("db")
	reach := func() {
		t.Helper()
		if err := web.Ping(soon(t), db); err != nil {
			t.Fatal(err)
		}
	}
	reach()
	for _, sysctl := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if _, err := a.Exec(soon(t), "sysctl", "-qw", sysctl+"=0"); err != nil {
			t.Fatal(err)
		}
		reach()
		err := eventually.Wait(soon(t), sysctl+" is back", func() error {
			if got, err := a.Exec(soon(t), "sysctl", "-n", sysctl); err != nil || strings.TrimSpace(string(got)) != "1" {
				return fmt.Errorf("it is %q, %v", got, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
