// SPDX-License-Identifier: Apache-2.0

package nsm

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"golang.org/x/sys/unix"
)

// vxlan is a datagram with a broadcast frame of UDP to a port of an address.
func vxlan(vni uint32, from, to netip.Addr, port uint16) []byte {
	d := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, vni<<8)
	d = append(d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 0)
	ip := []byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	d = append(d, ip...)
	d = binary.BigEndian.AppendUint16(d, 9)
	d = binary.BigEndian.AppendUint16(d, port)
	return append(d, 0, 9, 0, 0, 'x')
}

// TestStrangers sends datagrams with the VNI of a connection: what no manager's host sends itself doesn't come out in a pod.
func TestStrangers(t *testing.T) {
	const each, port = 250, 7777
	r := newRig(t, "", "a", "b", "c")
	a, b, c := r.lab.Host("a"), r.lab.Host("b"), r.lab.Host("c")
	gw, far := a.Pod("gw"), b.Pod("far")
	r.serve(gw, "vpn", "-pools", "10.60.0.0/24")
	reply := r.connect(far, "vpn")
	if reply["payload"] != "ETHERNET" { // of a service that its first endpoint has made
		t.Error(reply)
	}
	vni, err := strconv.ParseUint(reply["vni"], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	client, server := netip.MustParsePrefix(reply["address"]).Addr(), netip.MustParsePrefix(reply["peer_address"]).Addr()
	var at net.PacketConn
	if err := gw.Do(func() (err error) {
		at, err = net.ListenPacket("udp4", netip.AddrPortFrom(server, port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	arrived := func() (n int) {
		raw, err := at.(*net.UDPConn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				for {
					if _, _, err := unix.Recvfrom(int(fd), make([]byte, 9), unix.MSG_DONTWAIT); err != nil {
						return
					}
					n++
				}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	datagram := vxlan(uint32(vni), client, server, port)
	send := func(do func(func() error) error) {
		t.Helper()
		err := do(func() error {
			s, err := net.Dial("udp4", netip.AddrPortFrom(a.IPv4(), 4795).String())
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }()
			for range each {
				_, _ = s.Write(datagram) // what is refused is told to who sends next
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	near, stranger := a.Pod("near"), c.Pod("stranger")
	other := b.Pod("other")
	for name, from := range map[string]func(func() error) error{
		"a pod of the same host": near.Do, "a pod of the other host, masqueraded": other.Do, "a pod of a third host": stranger.Do, "a third host": c.Do,
	} {
		send(from)
		for _, p := range []*lab.Pod{near, other, stranger} { // what is sent later by the same links arrives later
			eventually.Nil(t, "pods reach host a", func() error { return p.Ping(t.Context(), gw) })
		}
		if n := arrived(); n > 0 {
			t.Errorf("%s: %d of %d datagrams came out in a pod", name, n, each)
		}
	}
	send(b.Do) // the manager's host itself: this test can tell
	eventually.True(t, "what a manager's host sends to come out", func() bool { return arrived() > 0 })
	r.reaches(far, reply)
}
