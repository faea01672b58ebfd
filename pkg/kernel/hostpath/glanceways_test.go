// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/calico-go/calico/test/netns"
	"golang.org/x/sys/unix"
)

// otherWays change each sysctl that is looked at otherwise than by a file of the /proc
// that the agent reads.
func otherWays(tb testing.TB) []breakage {
	tb.Helper()
	l, err := link.Find("cali1")
	if err != nil {
		tb.Fatal(err)
	}
	byNetlink := func(what string, m func() *rtnl.Message) breakage {
		return breakage{what + " by netlink", func(tb testing.TB) {
			s, err := rtnl.Open()
			if err != nil {
				tb.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Ask(m()); err != nil {
				tb.Fatal(err)
			}
		}}
	}
	ways := []breakage{
		byNetlink("IPv4's proxy_delay", func() *rtnl.Message { return setDelay(delayKey{l.Index, unix.AF_INET}, 700) }),
		byNetlink("IPv6's proxy_delay", func() *rtnl.Message { return setDelay(delayKey{l.Index, unix.AF_INET6}, 700) }),
	}
	for _, s := range settings4() {
		ways = append(ways, byNetlink(s.name, func() *rtnl.Message {
			return setConf4(l.Index, []setting{{number: s.number, value: 1 - s.value}})
		}))
	}
	proc := tb.TempDir()
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	byProc := func(name string, value int32) {
		ways = append(ways, breakage{name + " by another /proc", func(tb testing.TB) {
			if err := os.WriteFile(filepath.Join(proc, "sys/net", name), []byte(strconv.Itoa(int(value))), 0); err != nil {
				tb.Fatal(err)
			}
		}})
	}
	eachSetting(byProc)
	byProc("ipv6/conf/cali1/accept_ra", 2)
	return ways
}

// However a sysctl is changed, the next audit sees it.
func TestUnchangedOtherWays(t *testing.T) {
	netns.Host(t, func() {
		h, e := settledHost(t)
		for _, broken := range otherWays(t) {
			broken.breakIt(t)
			mustBeUnchanged(t, h, false, broken.name)
			if r, err := auditAndRepair(h, []Endpoint{e}); err != nil || r.Repairs == 0 || len(r.Problems) > 0 {
				t.Errorf("%s: %d repairs, problems %v: %v", broken.name, r.Repairs, r.Problems, err)
			}
			mustApply(t, h, e)
			for range 2 {
				mustBeUnchanged(t, h, true, broken.name+" and repair")
			}
			if h.told.Doubt {
				t.Errorf("after %s and repair there is doubt", broken.name)
			}
		}
	})
}
