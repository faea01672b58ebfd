// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/long"
)

// The messages and attributes of linux/netfilter/nfnetlink_log.h.
const (
	logConfig    = unix.NFNL_SUBSYS_ULOG<<8 | 1
	logPacket    = unix.NFNL_SUBSYS_ULOG << 8
	logBind      = 1 // NFULNL_CFG_CMD_BIND
	logCommand   = 1 // NFULA_CFG_CMD
	logThreshold = 5 // NFULA_CFG_QTHRESH
	logPrefix    = 10
)

// TestFlowLog reads back what rules log, as a program that collects flow logs does.
func TestFlowLog(t *testing.T) {
	long.Test(t)
	const group = 5
	r := newRig(t, "FELIX_NFLOGGROUP=5")
	web, client := r.pod("web", [2]string{"role", "web"}), r.pod("client")
	var fd int
	err := r.self.ns.Do(func() (err error) {
		fd, err = openFlowLog(group)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r.policy("web", `{"selector": "role == 'web'", "types": ["inbound"], "inbound_rules": [
		{"action": "log", "protocol": "udp", "log_prefix": "seen, udp"}, {"action": "deny", "protocol": "udp", "dst_ports": [53], "log_prefix": "no-dns"}, {"action": "allow", "log_prefix": "yes"}]}`)
	r.enforced()
	r.probe("rules that log", expect{client, web, "udp 53", false}, expect{client, web, "udp 54", true}, expect{client, web, "tcp 80", true})
	// Each is logged for IPv4 and for IPv6.
	want := []string{"seen__udp", "no-dns", "seen__udp", "no-dns", "seen__udp", "yes", "seen__udp", "yes", "yes", "yes"}
	var got []string
	buf := make([]byte, 1<<16)
	for deadline := time.Now().Add(eventually.Limit); len(got) < len(want) && time.Now().Before(deadline); {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, prefixes(buf[:n])...)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("logged\n%q, want\n%q", got, want)
	}
}

// openFlowLog listens to an NFLOG group of the thread's namespace.
func openFlowLog(group uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	tv := unix.Timeval{Usec: 50_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	for _, a := range [][]byte{{5, 0, logCommand, 0, logBind, 0, 0, 0}, {8, 0, logThreshold, 0, 0, 0, 0, 1}} {
		m := binary.NativeEndian.AppendUint32(nil, uint32(20+len(a)))
		m = binary.NativeEndian.AppendUint16(m, logConfig)
		m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
		m = append(m, make([]byte, 8)...)
		m = append(m, unix.AF_UNSPEC, 0, byte(group>>8), byte(group))
		if err := unix.Sendto(fd, append(m, a...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return 0, os.NewSyscallError("sendto", err)
		}
		buf := make([]byte, 4096)
		if _, _, err := unix.Recvfrom(fd, buf, 0); err != nil {
			return 0, os.NewSyscallError("recvfrom", err)
		}
		if code := int32(binary.NativeEndian.Uint32(buf[16:])); code != 0 {
			return 0, unix.Errno(-code)
		}
	}
	return fd, nil
}

// prefixes are those of the packets in a read.
func prefixes(b []byte) (all []string) {
	for len(b) >= 20 {
		size := int(binary.NativeEndian.Uint32(b))
		if size < 20 || size > len(b) {
			return all
		}
		if binary.NativeEndian.Uint16(b[4:]) == logPacket {
			for a := b[20:size]; len(a) >= 4; {
				n := int(binary.NativeEndian.Uint16(a))
				if n < 4 || n > len(a) {
					break
				}
				if binary.NativeEndian.Uint16(a[2:]) == logPrefix {
					all = append(all, strings.TrimRight(string(a[4:n]), "\x00"))
				}
				a = a[min(len(a), (n+3)&^3):]
			}
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return all
}
