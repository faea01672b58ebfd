// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// frame is an Ethernet frame with a UDP datagram.
type frame struct {
	from, to model.MAC
	src, dst netip.AddrPort
	text     string
}

func (f frame) bytes() []byte {
	udp := binary.BigEndian.AppendUint16(nil, f.src.Port())
	udp = binary.BigEndian.AppendUint16(udp, f.dst.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(f.text)))
	udp = append(udp, 0, 0)
	udp = append(udp, f.text...)
	src, dst := f.src.Addr().AsSlice(), f.dst.Addr().AsSlice()
	pseudo := append(append([]byte(nil), src...), dst...)
	pseudo = append(pseudo, 0, unix.IPPROTO_UDP, byte(len(udp)>>8), byte(len(udp)))
	sum := checksum(append(pseudo, udp...))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	var head []byte
	kind := uint16(unix.ETH_P_IPV6)
	if f.src.Addr().Is4() {
		kind = unix.ETH_P_IP
		head = []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
		binary.BigEndian.PutUint16(head[2:], uint16(20+len(udp)))
		head = append(append(head, src...), dst...)
		binary.BigEndian.PutUint16(head[10:], checksum(head))
	} else {
		head = []byte{0x60, 0, 0, 0, 0, 0, unix.IPPROTO_UDP, 64}
		binary.BigEndian.PutUint16(head[4:], uint16(len(udp)))
		head = append(append(head, src...), dst...)
	}
	out := append(append([]byte(nil), f.to[:]...), f.from[:]...)
	out = binary.BigEndian.AppendUint16(out, kind)
	return append(append(out, head...), udp...)
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i]) << 8
		if i+1 < len(b) {
			sum += uint32(b[i+1])
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// sendFrame puts a frame on the wire of a pod.
func sendFrame(p *place, b []byte) error {
	return p.ns.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: i.Index, Halen: 6})
	})
}

// TestSpoofing sends from a pod what says it is from somebody else.
func TestSpoofing(t *testing.T) {
	long.Test(t)
	r := newHostileRig(t)
	thief, victim, sink := r.pod("thief"), r.pod("victim"), r.pod("sink")
	r.enforced()
	gateway, err := r.hostLink(thief)
	if err != nil {
		t.Fatal(err)
	}
	own, wrong := r.spec(thief).MAC, model.MAC{2, 0, 0, 0xba, 0xd, 1}
	for i, family := range []string{"IPv4", "IPv6"} {
		listener, err := listenUDP(sink, 7000)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		for n, test := range []struct {
			name   string
			mac    model.MAC
			src    netip.Addr
			passes bool
		}{
			{"its own addresses", own, thief.addrs[i], true},
			{"another pod's address", own, victim.addrs[i], false},
			{"the host's address", own, r.self.addrs[i], false},
			{"an address outside", own, r.outside.addrs[i], false},
			{"another MAC address", wrong, thief.addrs[i], false},
			{"both another's", r.spec(victim).MAC, victim.addrs[i], false},
			{"its own addresses again", own, thief.addrs[i], true},
		} {
			f := frame{from: test.mac, to: gateway, src: netip.AddrPortFrom(test.src, uint16(1000+n)), dst: netip.AddrPortFrom(sink.addrs[i], 7000), text: test.name}
			if err := sendFrame(thief, f.bytes()); err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.passes {
				want = []string{test.name}
			}
			if got, err := arrived(sink, listener); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s from %s: %q arrived, want %q, %v", family, test.name, got, want, err)
			}
		}
		listener.Close()
	}
}

// hostLink is the MAC address of the host's end of a pod's interface.
func (r *rig) hostLink(p *place) (m model.MAC, err error) {
	name := r.spec(p).Name
	err = r.self.ns.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if copy(m[:], i.HardwareAddr) != len(m) {
			return fmt.Errorf("%s has MAC address %s", name, i.HardwareAddr)
		}
		return nil
	})
	return m, err
}
