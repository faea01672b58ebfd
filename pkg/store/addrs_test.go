// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestAddrs: an address in an endpoint is known at once, that of a name after the first connection.
func TestAddrs(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	named := strings.Replace(c.endpoints()[0], "127.0.0.1", "localhost", 1)
	if named == c.endpoints()[0] {
		t.Fatalf("%s is not at 127.0.0.1", named)
	}
	known := func(s *Client) string {
		return fmt.Sprint(slices.SortedFunc(slices.Values(s.Addrs()), netip.Addr.Compare))
	}
	s := c.open(func(cfg *Config) { cfg.Endpoints = []string{named} })
	if got := known(s); got != "[]" {
		t.Errorf("before it is asked: %s", got)
	}
	if err := ready(within(t, eventually.Limit), s); err != nil {
		t.Fatal(err)
	}
	if got := known(s); got != "[127.0.0.1]" {
		t.Errorf("once it is connected: %s", got)
	}
	s = c.open(func(cfg *Config) {
		cfg.Endpoints = []string{"http://192.0.2.1:2379", "http://[::ffff:192.0.2.2]:2379", "http://[2001:db8::1]", "http://etcd", "unix:///tmp/etcd"}
	})
	if got := known(s); got != "[192.0.2.1 192.0.2.2 2001:db8::1]" {
		t.Errorf("by the endpoints alone: %s", got)
	}
	if got := fmt.Sprint(s.Names()); got != "[etcd]" {
		t.Errorf("names: %s", got)
	}
}
