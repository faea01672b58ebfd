// SPDX-License-Identifier: Apache-2.0

package dhcpsock

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/taps"
	"github.com/calico-go/calico/test/netns"
)

const (
	ether4 = "ffffffffffff fa163e000001 0800 "
	ether6 = "333300000001 fa163e000001 86dd "

	discover     = ether4 + "4500 0024 0000 0000 4011 0000 00000000 ffffffff  0044 0043 0010 0000 0102030405060708"
	solicit      = ether6 + "60000000 0010 11 01 fe80000000000000f8163efffe000001 ff020000000000000000000000010002  0222 0223 0010 0000 0102030405060708"
	solicitation = ether6 + "60000000 0008 3a ff fe80000000000000f8163efffe000001 ff020000000000000000000000000002  8500 0000 00000000"
)

func frame(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFilter(t *testing.T) {
	vm, err := bpf.NewVM(questions)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, frame string
		pass        bool
	}{
		{"DHCPv4", discover, true},
		{"DHCPv4, with IP options", strings.Replace(strings.Replace(discover, "4500 0024", "4600 0028", 1), "ffffffff  ", "ffffffff 01010100 ", 1), true},
		{"DHCPv4, not to be fragmented", strings.Replace(discover, "0000 0000 4011", "0000 4000 4011", 1), true},
		{"the first fragment", strings.Replace(discover, "0000 0000 4011", "0000 2000 4011", 1), false},
		{"another fragment", strings.Replace(discover, "0000 0000 4011", "0000 0010 4011", 1), false},
		{"DHCPv4's answer", strings.Replace(discover, "0044 0043", "0043 0044", 1), false},
		{"TCP", strings.Replace(discover, "4011", "4006", 1), false},
		{"DHCPv6", solicit, true},
		{"DHCPv6's answer", strings.Replace(solicit, "0222 0223", "0223 0222", 1), false},
		{"DHCPv6's port of TCP", strings.Replace(solicit, "0010 11 01", "0010 06 01", 1), false},
		{"router solicitation", solicitation, true},
		{"router advertisement", strings.Replace(solicitation, "8500", "8600", 1), false},
		{"ARP", strings.Replace(discover, "0800", "0806", 1), false},
		{"cut", discover[:strings.Index(discover, "0043")], false},
	} {
		if n, err := vm.Run(frame(t, c.frame)); (n > 0) != c.pass || err != nil {
			t.Errorf("%s: %d bytes pass, %v", c.name, n, err)
		}
	}
}

func TestSocket(t *testing.T) {
	netns.Host(t, func() {
		if _, err := Open("tap1"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without a tap: %v", err)
		}
		if _, err := Open("a-name-that-is-too-long"); err == nil {
			t.Error("a long name is taken")
		}
		machine, err := taps.Open("tap1")
		if err != nil {
			t.Fatal(err)
		}
		defer machine.Close()
		other, err := taps.Open("tap2")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		netns.IP(t, "link", "set", "tap1", "mtu", "1450")
		s, err := Open("tap1")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if mtu := s.MTU(); mtu != 1450 {
			t.Errorf("MTU %d", mtu)
		}
		buf := make([]byte, 2048)
		if got, err := s.Receive(buf, time.Now()); got != nil || err != nil {
			t.Errorf("before anything was sent: %x, %v", got, err)
		}
		for _, f := range []struct {
			by   io.Writer
			text string
		}{{machine, strings.Replace(discover, "0800", "0806", 1)}, {other, solicit}, {machine, discover}} {
			if _, err := f.by.Write(frame(t, f.text)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Receive(buf, time.Now().Add(eventually.Limit))
		if err != nil || !bytes.Equal(got, frame(t, discover)) {
			t.Errorf("received %x, %v", got, err)
		}

		answer := frame(t, strings.Replace(discover, "0044 0043", "0043 0044", 1))
		if err := s.Send(answer); err != nil {
			t.Fatal(err)
		}
		eventually.Nil(t, "the answer at the machine", func() error {
			_ = machine.SetReadDeadline(time.Now().Add(eventually.Limit))
			n, err := machine.Read(buf)
			if err == nil && !bytes.Equal(buf[:n], answer) {
				err = errors.New("another frame") // the kernel's own, of IPv6
			}
			return err
		})
		if got, err := s.Receive(buf, time.Now()); got != nil || err != nil {
			t.Errorf("it sees what it sends: %x, %v", got, err)
		}

		machine.Close()
		if _, err := s.Receive(buf, time.Now().Add(eventually.Limit)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("receive from a tap that is gone: %v", err)
		}
		if err := s.Send(answer); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("send to a tap that is gone: %v", err)
		}
	})
}
