// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// TestMetadata: a machine whose policy denies everything asks for metadata. It is refused if there is no server, and is answered by the
// host itself or by another server, which sees the machine's own address though its pool is masqueraded.
func TestMetadata(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		vm, out := newSpace(t, 1, "tap1"), newSpace(t, 3, "eth0")
		vm.ep.Interface = "tap1"
		run(t, "ip", "route", "add", "default", "via", "192.0.2.1", "dev", "eth0", "onlink")
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/tap1/route_localnet", []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
		var servers []net.Listener
		serve := func(on string) {
			l, err := net.Listen("tcp4", on)
			if err != nil {
				t.Error(err)
				return
			}
			servers = append(servers, l)
		}
		serve("127.0.0.1:8775")
		out.do(func() { serve(out.ep.Addrs[0].String() + ":80") })
		if len(servers) < 2 {
			return
		}
		f := open(t)
		f.Update(policy.Changes{Endpoints: endpoints(vm.ep), Pools: masqueradesFirst()})
		ask := func(metadata string) (err error) {
			s := settings()
			s.Prefixes = []string{"cali", "tap"}
			if metadata != "" {
				s.Metadata = netip.MustParseAddrPort(metadata)
			}
			f.Configure(s)
			mustApply(t, f)
			vm.do(func() {
				var c net.Conn
				if c, err = net.DialTimeout("tcp4", policy.MetadataService().String(), time.Minute); err == nil {
					_ = c.Close()
				}
			})
			return err
		}
		if err := ask(""); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("there is none: %v", err)
		}
		for _, l := range servers {
			if err := ask(l.Addr().String()); err != nil {
				t.Errorf("at %s: %v", l.Addr(), err)
				continue
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if from, _, _ := net.SplitHostPort(c.RemoteAddr().String()); from != vm.ep.Addrs[0].String() {
				t.Errorf("%s is asked by %s", l.Addr(), from)
			}
			if text := listed(t); !strings.Contains(text, "dnat ip to "+l.Addr().String()) {
				t.Errorf("listed:\n%s", text)
			}
			_, _ = c.Close(), l.Close()
		}
		if err := ask(""); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("there is none any more: %v", err)
		}
		wantWrites(t, f, 0, 0)
	})
}
