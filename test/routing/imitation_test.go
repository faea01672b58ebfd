// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/inflight"
	"github.com/calico-go/calico/pkg/model"
)

// TestImitation has a pod send VXLAN packets of its own to another host, masqueraded to
// its host's address, with another pod's address inside.
func TestImitation(t *testing.T) {
	r := newTrio(t, lab.Config{Pool: func(p *model.Pool) { p.VXLANMode, p.Masquerade = model.EncapAlways, true }})
	r.all()
	thief, victim, other := r.pods[0], r.pods[1], r.pods[2].Addrs()[0]
	var sink net.PacketConn
	if err := victim.Namespace().Do(func() (err error) {
		sink, err = net.ListenPacket("udp4", ":7777")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	device := func(host int) []byte {
		out := strings.Fields(r.run(host, "ip", "-br", "link", "show", "dev", "vxlan.calico"))
		mac, err := net.ParseMAC(out[2])
		if err != nil {
			t.Fatal(err)
		}
		return mac
	}
	frame := slices.Concat(device(1), device(0), []byte{8, 0}, datagram(other, victim.Addrs()[0], 7777, "forged"))
	send := func(to netip.AddrPort, what []byte) {
		t.Helper()
		if err := thief.Namespace().Do(func() error {
			c, err := net.Dial("udp", to.String())
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write(what)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	const vni = 4096
	send(netip.AddrPortFrom(r.hosts[1].IPv4(), 4789), append([]byte{8, 0, 0, 0, 0, vni >> 8, 0, 0}, frame...))
	if err := inflight.Wait(); err != nil { // what comes after it must not overtake it
		t.Fatal(err)
	}
	send(netip.AddrPortFrom(victim.Addrs()[0], 7777), []byte("own"))
	buf := make([]byte, 100)
	_ = sink.SetReadDeadline(time.Now().Add(eventually.Limit)) // of an open socket
	n, from, err := sink.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "own" {
		t.Errorf("%q from %v, %v: want what the pod sent as itself", buf[:n], from, err)
	}
	if got := r.run(0, "nft", "list", "chain", "inet", "calico", "forward-calico"); !strings.Contains(got, "counter packets 1 bytes") {
		t.Errorf("nothing was dropped:\n%s", got)
	}
}

// datagram is UDP over IPv4, without a checksum of its own.
func datagram(src, dst netip.Addr, port uint16, text string) []byte {
	udp := binary.BigEndian.AppendUint16([]byte{4, 0}, port)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(text)))
	udp = append(append(udp, 0, 0), text...)
	head := []byte{0x45, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, 17, 0, 0}
	head = slices.Concat(head, src.AsSlice(), dst.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(head); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(head[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(head[10:], ^uint16(sum&0xffff+sum>>16))
	return append(head, udp...)
}
