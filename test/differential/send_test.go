// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/policy"
)

const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h

// fate is what became of a probe.
type fate struct {
	verdict  policy.Verdict
	state    string // of its connection at the filter, "" = it did not come there
	out      string // interface by which it left, "" = to the host itself
	src, dst netip.Addr
	port     uint16   // its source, or the identifier of an echo
	logged   []string // prefixes, in order
	lost     string   // where it vanished although no chain of ours was there; "" = it didn't
	seen     []string // all that the observer says, in order
	entered  bool
	last     logged
}

// see takes in one packet that was logged.
func (f *fate) see(p logged, src, dst netip.Addr, port uint16) {
	what, state, _ := strings.Cut(p.prefix, " ")
	f.seen = append(f.seen, fmt.Sprintf("%s at %s", p.prefix, hookName(p.hook)))
	f.last = p
	switch what {
	case sawEnter:
		f.entered = true
	case sawBefore:
		f.state = state
	case sawAfter, sawLeave:
		f.src, f.dst, f.port = src, dst, port
	}
}

func hookName(hook int) string {
	return [...]string{"prerouting", "input", "forward", "output", "postrouting"}[min(hook, 4)]
}

// settle draws the verdict from what was seen last. A packet that our chains
// drop is last seen before one of them.
func (f *fate) settle(names map[int]string) {
	f.verdict = policy.Drop
	what, _, _ := strings.Cut(f.last.prefix, " ")
	switch {
	case !f.entered:
		f.lost = "before prerouting"
	case what == sawAfter && f.last.hook == hookIn:
		f.verdict = policy.Accept
	case what == sawLeave && names[f.last.out] != "lo":
		f.verdict, f.out = policy.Accept, names[f.last.out]
	case what == sawEnter || what == sawBefore, what == sawRaw && hookName(f.last.hook) == "prerouting":
	default:
		f.lost = "after " + f.seen[len(f.seen)-1]
	}
}

func openPacket(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	for option, value := range map[[2]int]int{
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE}:         32 << 20,
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING}: 1,
	} {
		if err := unix.SetsockoptInt(fd, option[0], option[1], value); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	all := uint16(unix.ETH_P_ALL)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

// everyMark has all bits set, those that the firewall uses as well: what others
// put there must mean nothing to it.
const everyMark = 1<<32 - 1

// openRaw opens the sockets by which the host itself sends whole packets.
func (l *lab) openRaw() error {
	for version, family := range map[int]int{4: unix.AF_INET, 6: unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MARK, everyMark); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		l.raw[version] = fd
	}
	for _, p := range l.ports { // as a server of DHCPv6 does
		if err := unix.SetsockoptIPv6Mreq(l.raw[6], unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: addr("ff02::1:2").As16(), Interface: uint32(p.index)}); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

func (l *lab) transmit(p probe, id uint32) error {
	for _, part := range p.fragments(id) {
		if err := l.transmitPart(p, part); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) transmitPart(p probe, part []byte) error {
	if to := l.ports[p.In]; to != nil {
		_, err := unix.Write(to.fd, p.frame(to, part))
		return os.NewSyscallError("write", err)
	}
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: p.Dst.As16()}
	if p.Dst.Is4() {
		to = &unix.SockaddrInet4{Addr: p.Dst.As4()}
	}
	err := unix.Sendto(l.raw[versionOf(p.Src)], part, 0, to)
	if errors.Is(err, unix.EPERM) {
		return nil // it was dropped
	}
	return os.NewSyscallError("sendto", err)
}

// send sends probes one after the other and says what became of each.
func (l *lab) send(probes []probe) ([]fate, error) {
	if len(probes) == 0 {
		return nil, nil
	}
	first := l.nextID
	l.nextID += uint32(len(probes))
	for i, p := range probes {
		if err := l.transmit(p, first+uint32(i)); err != nil {
			return nil, fmt.Errorf("send %s: %w", p, err)
		}
	}
	fates := make([]fate, len(probes))
	missing := len(probes)
	see := func(p logged) bool {
		id, src, dst, port, ok := identify(p.payload)
		if i := id - first; ok && i < uint32(len(fates)) {
			f := &fates[i]
			if p.group == flowGroup {
				f.logged = append(f.logged, p.prefix)
				return missing > 0
			}
			if !f.entered {
				missing--
			}
			f.see(p, src, dst, port)
		}
		return missing > 0
	}
	if err := l.log.read(time.Now().Add(l.patience), see); err != nil {
		return nil, err
	}
	// All have entered. A CPU that still works on one finishes it first.
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		return nil, os.NewSyscallError("membarrier", errno)
	}
	if err := l.log.read(time.Time{}, see); err != nil {
		return nil, err
	}
	for i := range fates {
		fates[i].settle(l.names)
	}
	return fates, l.receive(first, probes, fates)
}

// receive compares what arrives at the other ends with what the host let go.
func (l *lab) receive(first uint32, probes []probe, fates []fate) error {
	deadline := time.Now().Add(l.patience)
	want := map[string]map[int]bool{}
	for name := range l.ports {
		want[name] = map[int]bool{}
	}
	for i := range fates {
		if name := fates[i].out; name != "" {
			want[name][i] = true
		}
	}
	buf := make([]byte, 1<<16)
	for name, p := range l.ports {
		for {
			wait := 0
			if len(want[name]) > 0 {
				wait = max(0, int(time.Until(deadline).Milliseconds()))
			}
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, wait)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n == 0 || err != nil {
				break
			}
			n, _, err = unix.Recvfrom(p.fd, buf, 0)
			if err != nil {
				return fmt.Errorf("receive at %s: %w", name, err)
			}
			if n < 14 {
				continue
			}
			id, src, dst, _, ok := identify(buf[14:n])
			if i := id - first; ok && i < uint32(len(fates)) {
				f := &fates[i]
				if f.out != name || f.src != src || f.dst != dst {
					return fmt.Errorf("packet %d arrived at %s as %s -> %s; the host let it go by %q as %s -> %s; it was seen %s", i, name, src, dst, f.out, f.src, f.dst, strings.Join(f.seen, ", "))
				}
				delete(want[name], int(i))
			} else if ok && id >= l.warmed {
				return fmt.Errorf("a packet that the host had dropped arrived at %s, later: %s -> %s", name, src, dst)
			}
		}
		for i := range want[name] {
			return fmt.Errorf("%s: the host let it go, but it did not arrive at %s; it was seen %s", probes[i], name, strings.Join(fates[i].seen, ", "))
		}
	}
	return nil
}

// warm sends packets through every port until each arrives: then the links are up.
func (l *lab) warm() error {
	var probes []probe
	for name, p := range l.ports {
		for _, version := range [...]int{4, 6} {
			for _, dst := range slices.Concat(hostAddrs(version), podAddrs(0, version), outside(0, version), outside(1, version)) {
				probes = append(probes, probe{In: name, MAC: p.far, Src: podAddrs(1, version)[0], Dst: dst, Protocol: 17, SrcPort: uint16(2000 + len(probes)), DstPort: 9})
			}
		}
	}
	deadline := time.Now().Add(eventually.Limit)
	l.patience, l.warmed = eventually.Limit/600, math.MaxUint32
	defer func() { l.patience = eventually.Limit }()
	for {
		fates, err := l.send(probes)
		if err == nil && !slices.ContainsFunc(fates, func(f fate) bool { return f.verdict != policy.Accept }) {
			l.warmed = l.nextID
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the lab does not come up: %w", err)
		}
	}
}
