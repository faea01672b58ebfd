// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
)

// port is an interface of the host whose other end is in a namespace of its own.
type port struct {
	name     string
	index    int
	mac, far model.MAC // of the host's end, of the other
	fd       int       // packet socket at the other end
}

// lab is a host with pods and two uplinks. Everything is done by the one thread
// that is in the host's namespace.
type lab struct {
	ports  map[string]*port
	names  map[int]string // of interfaces, by index
	routes map[netip.Addr]string
	raw    map[int]int // sockets of the host itself, by IP version
	log    *nflog
	nextID uint32
	warmed uint32 // the first number that counts
	// patience is how long a packet that must come may take.
	patience time.Duration
}

// inNamespace runs fn in a new network namespace.
func inNamespace(fn func() error) error {
	done := make(chan error, 1)
	go func() { // the thread is never unlocked: it dies with the goroutine
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace (tests need root, or a user namespace): %w", err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// newNamespace makes another namespace and leaves the thread where it is.
func newNamespace() (*os.File, error) {
	var other *os.File
	err := andBack(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		var err error
		other, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return other, err
}

// within runs fn in a namespace.
func within(ns *os.File, fn func() error) error {
	return andBack(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return fn()
	})
}

// andBack runs fn and comes back to the namespace where the thread is.
func andBack(fn func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	err = fn()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return os.NewSyscallError("setns", back)
	}
	return err
}

// newLab makes the lab in the current namespace, which must be new.
func newLab() (*lab, error) {
	l := &lab{ports: map[string]*port{}, names: map[int]string{1: "lo"}, routes: map[netip.Addr]string{}, raw: map[int]int{}}
	if err := setSysctls(hostSysctls()); err != nil {
		return nil, err
	}
	lo, err := netlink.LinkByIndex(1)
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, err
	}
	names := []string{"eth0", "eth1"}
	for i := range pods {
		names = append(names, podPort(i))
	}
	for _, name := range names {
		if err := l.addPort(name); err != nil {
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
	}
	if err := l.address(); err != nil {
		return nil, err
	}
	if err := l.openRaw(); err != nil {
		return nil, err
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(observer())
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("nft -f: %w: %s", err, out)
	}
	if l.log, err = openLog(observerGroup, flowGroup); err != nil {
		return nil, err
	}
	return l, l.warm()
}

// hostSysctls let the firewall alone decide, and keep the host from answering.
func hostSysctls() map[string]string {
	out := map[string]string{
		"ipv4/ip_forward": "1", "ipv4/icmp_echo_ignore_all": "1", "ipv6/icmp/echo_ignore_all": "1", "ipv6/conf/all/forwarding": "1",
		"netfilter/nf_conntrack_tcp_loose": "1",
	}
	for _, conf := range [...]string{"all", "default"} {
		for name, value := range map[string]string{"rp_filter": "0", "accept_local": "1", "send_redirects": "0", "accept_redirects": "0"} {
			out["ipv4/conf/"+conf+"/"+name] = value
		}
		for name, value := range map[string]string{"accept_ra": "0", "accept_redirects": "0", "accept_dad": "0", "addr_gen_mode": "1"} {
			out["ipv6/conf/"+conf+"/"+name] = value
		}
	}
	return out
}

func setSysctls(values map[string]string) error {
	for name, value := range values {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// addPort makes a veth and a packet socket at its other end, whose namespace
// lives as long as the socket.
func (l *lab) addPort(name string) error {
	p := &port{name: name, mac: macOf(name, false), far: macOf(name, true)}
	ns, err := newNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, hardware(p.mac)
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "far", PeerHardwareAddr: hardware(p.far), PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	err = within(ns, func() error {
		// The other end has no addresses and answers nothing.
		if err := setSysctls(map[string]string{"ipv6/conf/all/disable_ipv6": "1"}); err != nil {
			return err
		}
		far, err := netlink.LinkByName("far")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(far); err != nil {
			return err
		}
		p.fd, err = openPacket(far.Attrs().Index)
		return err
	})
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if name != "eth0" && name != "eth1" {
		// As the agent sets it on workload interfaces.
		if err := setSysctls(map[string]string{"ipv4/conf/" + name + "/route_localnet": "1"}); err != nil {
			return err
		}
	}
	p.index = link.Attrs().Index
	l.ports[name], l.names[p.index] = p, name
	return netlink.LinkSetUp(link)
}

func hardware(m model.MAC) net.HardwareAddr { return net.HardwareAddr(m[:]) }
