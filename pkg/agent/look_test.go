// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/kernel/hostpath"
	"github.com/calico-go/calico/pkg/model"
)

// TestLookOvertaken: where links change so fast that the host's interfaces can't be read they are read again, with
// no further event, and without a word unless it lasts.
func TestLookOvertaken(t *testing.T) {
	overtaken := fmt.Errorf("list links: %w", syscall.EINTR)
	for _, test := range []struct {
		name  string
		err   error
		lasts time.Duration
		said  int
	}{
		{"for a moment", overtaken, 3 * time.Second, 0},
		{"for minutes", overtaken, 2 * time.Minute, 1},
		{"another error", errors.New("no buffer"), 3 * time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var log bytes.Buffer
				there, failing := []hostnet.Interface{{Name: "eth0"}}, error(nil)
				key := model.HostEndpointKey{Host: "h", Endpoint: "1"}
				c := startClockwork(t, func(c *clockwork) {
					c.loop.log = slog.New(slog.NewTextHandler(&log, nil))
					c.system.interfaces = func([]string) ([]hostnet.Interface, error) {
						mu.Lock()
						defer mu.Unlock()
						return there, failing
					}
					c.first = append(c.first, put(key, model.HostEndpoint{Name: "eth1"}, 1))
				})
				set := func(interfaces []hostnet.Interface, err error) {
					mu.Lock()
					defer mu.Unlock()
					there, failing = interfaces, err
				}
				set(nil, test.err)
				c.events <- hostpath.Event{Host: true}
				time.Sleep(test.lasts)
				set([]hostnet.Interface{{Name: "eth0"}, {Name: "eth1"}}, nil)
				time.Sleep(2 * readPause)
				if got := c.report.Noted(key.Path()); got != model.EndpointUp {
					t.Errorf("the interface was not found: the endpoint is %s", got)
				}
				c.cancel()
				synctest.Wait()
				if got := strings.Count(log.String(), "could not be read"); got != test.said {
					t.Errorf("said %d times, want %d:\n%s", got, test.said, &log)
				}
			})
		})
	}
}
