// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestHostile: in a world that isn't Calico's alone, pods of all hosts talk by both families, whatever mode; a service is reached from
// pods and from hosts; and the agents find nothing wrong, though they try the path.
func TestHostile(t *testing.T) {
	long.Test(t)
	for _, mode := range []model.EncapMode{model.EncapAlways, model.EncapCrossSubnet, model.EncapNever} {
		t.Run(nameOf(mode), func(t *testing.T) {
			cfg := lab.Config{Racks: [][]string{{"a", "b"}, {"c"}}, Pool: encap(mode), Hostile: true}
			if mode == model.EncapNever { // the routers don't know pods
				cfg.Racks, cfg.Hosts = nil, []string{"a", "b", "c"}
			}
			r := newTrio(t, cfg)
			r.all()
			for i := range r.hosts {
				const ask = "exec 3<>/dev/tcp/" + lab.ServiceAddr + "/443 && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
				got := r.run(i, "bash", "-c", ask)
				out, err := r.pods[i].Exec(r.ctx(), "bash", "-c", ask)
				for what, answer := range map[string]string{"host": got, "pod": string(out)} {
					if !strings.Contains(answer, `"health":"true"`) {
						t.Errorf("%s %d reaches no service: %q, %v", what, i, answer, err)
					}
				}
			}
			for i, h := range r.hosts {
				rig := Rig{t, r.lab}
				rig.Until(fmt.Sprintf("host %s tries the path", h.Name()), func() error {
					if links := r.run(i, "ip", "-o", "link"); !strings.Contains(links, "caliprobe1") {
						return fmt.Errorf("there are\n%s", links)
					}
					return nil
				})
				if page := r.fetch(i, "http://127.0.0.1:9099/debug/invalid"); strings.Contains(page, "host ") {
					t.Errorf("host %s lists\n%s", h.Name(), page)
				}
			}
		})
	}
}
