// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/kernel/crossconnect"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/test/netns"
	"golang.org/x/sys/unix"
)

// space is a pod's namespace in which nothing is sent that the test doesn't send.
func space(t *testing.T) (*os.File, *crossconnect.Namespace) {
	t.Helper()
	file := netns.New(t)
	netns.Within(t, file, func() { netns.SetSysctl(t, "ipv6/conf/default/disable_ipv6", "1") })
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	n, err := crossconnect.Namespaces{st.Ino: fmt.Sprintf("/proc/self/fd/%d", file.Fd())}.Open(st.Ino)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return file, n
}

// TestHearPackets: a peer without another sign of life lives as long as packets come by its connections.
func TestHearPackets(t *testing.T) {
	began := time.Unix(1000, 0)
	now := began
	m := &Manager{now: func() time.Time { return now }, heard: map[string]time.Time{}, received: map[nsm.Key]uint64{}}
	client, a := space(t)
	_, b := space(t)
	end := func(addr string) crossconnect.End {
		return crossconnect.End{Name: "nsm0", Alias: "x", Address: netip.MustParsePrefix(addr)}
	}
	if err := crossconnect.Veth(a, end("10.60.0.1/30"), b, end("10.60.0.2/30")); err != nil {
		t.Fatal(err)
	}
	look := func() time.Time {
		t.Helper()
		if err := m.hearPackets(nsm.Connection{Key: nsm.Key{ID: "1", Service: "s", Peer: "b"}}, b, "nsm0"); err != nil {
			t.Fatal(err)
		}
		return m.heard["b"]
	}
	if heard := look(); !heard.IsZero() {
		t.Error("heard before there was a packet, at", heard)
	}
	netns.Within(t, client, func() {
		conn, err := net.Dial("udp4", "10.60.0.2:9")
		if err == nil {
			_, err = conn.Write([]byte("x"))
			_ = conn.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	eventually.True(t, "a packet to be a sign of life", func() bool { return look().Equal(began) })
	for before := uint64(0); before != m.received[nsm.Key{ID: "1", Service: "s", Peer: "b"}]; look() { // its ARP
		before = m.received[nsm.Key{ID: "1", Service: "s", Peer: "b"}]
	}
	now = began.Add(time.Hour)
	if heard := look(); !heard.Equal(began) {
		t.Error("heard though no packet came, at", heard)
	}
}
