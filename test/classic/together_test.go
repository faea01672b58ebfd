// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/inflight"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// machine is one of many, and the sockets by which it sends to the others and hears of them.
type machine struct {
	addr     netip.Addr
	profiles []int
	send     int
	receive  []*net.UDPConn // by place in ports
}

// ports are what machines send to.
var ports = []uint16{5000, 5001}

// profile is a security group as etcd has it: what it allows, from whom and to whom; each has a tag of its own.
type profile struct{ in, out []allow }

type allow struct {
	profile int          // whose members, -1 = all of net
	net     netip.Prefix // invalid = all
	port    int          // place in ports, -1 = all
}

func (a allow) matches(other *machine, port int) bool {
	return (a.port < 0 || a.port == port) && (a.profile < 0 || slices.Contains(other.profiles, a.profile)) && (!a.net.IsValid() || a.net.Contains(other.addr))
}

// passes is the slow evaluator: one of the sender's profiles must let it out, and one of the receiver's in.
func passes(profiles []profile, from, to *machine, port int) bool {
	lets := func(of *machine, other *machine, rules func(profile) []allow) bool {
		for _, p := range of.profiles {
			for _, a := range rules(profiles[p]) {
				if a.matches(other, port) {
					return true
				}
			}
		}
		return false
	}
	return lets(from, to, func(p profile) []allow { return p.out }) && lets(to, from, func(p profile) []allow { return p.in })
}

func randomProfiles(r *rand.Rand, n int, nets []netip.Prefix) []profile {
	list := func() (out []allow) {
		for range r.IntN(4) {
			a := allow{profile: r.IntN(n+2) - 2, port: r.IntN(len(ports)+1) - 1}
			if a.profile == -2 {
				a.profile, a.net = -1, nets[r.IntN(len(nets))]
			}
			out = append(out, a)
		}
		return out
	}
	all := make([]profile, n)
	for i := range all {
		all[i] = profile{list(), list()}
	}
	return all
}

// json is the profile's rules in etcd.
func (p profile) json() string {
	side := func(rules []allow, end string) string {
		var out []string
		for _, a := range rules {
			text := `{"action":"allow","protocol":"udp"`
			if a.profile >= 0 {
				text += fmt.Sprintf(`,"%s_tag":"t%d"`, end, a.profile)
			}
			if a.net.IsValid() {
				text += fmt.Sprintf(`,"%s_net":"%s"`, end, a.net)
			}
			if a.port >= 0 {
				text += fmt.Sprintf(`,"dst_ports":[%d]`, ports[a.port])
			}
			out = append(out, text+"}")
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	return `{"inbound_rules":` + side(p.in, "src") + `,"outbound_rules":` + side(p.out, "dst") + "}"
}

// crowd is many machines on the hosts of a lab.
type crowd struct {
	*testing.T
	lab      *lab.Lab
	etcd     *clientv3.Client
	machines []*machine
	profiles []profile
}

// add makes a machine on a host, and its endpoint.
func (c *crowd) add(h *lab.Host, i int) {
	c.Helper()
	n := len(c.machines)
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n)
	mac := fmt.Sprintf("02:00:00:00:%02x:%02x", n>>8, n&0xff)
	addr := netip.AddrFrom4([4]byte{10, 65, h.MachineNet().Addr().As4()[2], byte(10 + i)})
	m := &machine{addr: addr}
	ns, err := h.AddMachine(c.Context(), iface(id), mac, addr.String()+"/32")
	if err != nil {
		c.Fatal(err)
	}
	err = ns.Do(func() (err error) {
		if m.send, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		for _, port := range ports {
			conn, err := net.ListenUDP("udp4", &net.UDPAddr{Port: int(port)})
			if err != nil {
				return err
			}
			m.receive = append(m.receive, conn)
		}
		return nil
	})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = unix.Close(m.send)
		for _, conn := range m.receive {
			_ = conn.Close()
		}
	})
	c.machines = append(c.machines, m)
	for range 1 + rand.N(2) {
		if p := rand.IntN(len(c.profiles)); !slices.Contains(m.profiles, p) {
			m.profiles = append(m.profiles, p)
		}
	}
	var names []string
	for _, p := range m.profiles {
		names = append(names, fmt.Sprintf(`"p%d"`, p))
	}
	c.put(model.WorkloadEndpointKey{Host: h.Name(), Orchestrator: "openstack", Workload: id, Endpoint: id}.Path(), fmt.Sprintf(
		`{"state":"active","name":"%s","mac":"%s","profile_ids":[%s],"ipv4_nets":["%s/32"]}`, iface(id), mac, strings.Join(names, ","), addr))
}

func (c *crowd) put(path, value string) {
	c.Helper()
	if _, err := c.etcd.Put(c.Context(), path, value); err != nil {
		c.Fatal(err)
	}
}

// rule has other rules in etcd.
func (c *crowd) rule(profiles []profile) {
	c.Helper()
	for i, p := range profiles {
		c.put(model.ProfileRulesKey{Profile: fmt.Sprint("p", i)}.Path(), p.json())
	}
	c.profiles = profiles
}

// wrong sends from each machine to all others and counts where the kernel's verdict is not the evaluator's.
func (c *crowd) wrong() (n int, err error) {
	for _, m := range c.machines {
		for _, conn := range m.receive {
			if _, err := drain(conn); err != nil {
				return 0, err
			}
		}
	}
	for i, m := range c.machines {
		for _, to := range c.machines {
			for _, port := range ports {
				if m == to {
					continue
				}
				err := unix.Sendto(m.send, binary.BigEndian.AppendUint16(nil, uint16(i)), 0, &unix.SockaddrInet4{Addr: to.addr.As4(), Port: int(port)})
				if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.ECONNREFUSED) {
					return 0, err
				}
			}
		}
		if err := inflight.Wait(); err != nil {
			return 0, err
		}
	}
	for _, to := range c.machines {
		for port, conn := range to.receive {
			got, err := drain(conn)
			if err != nil {
				return 0, err
			}
			for i, from := range c.machines {
				if from != to && got[uint16(i)] != passes(c.profiles, from, to, port) {
					n++
				}
			}
		}
	}
	return n, nil
}

// drain reads what has come, by the sender's number.
func drain(conn *net.UDPConn) (map[uint16]bool, error) {
	got := map[uint16]bool{}
	packets, err := drained(conn)
	for _, p := range packets {
		if len(p) == 2 {
			got[binary.BigEndian.Uint16(p)] = true
		}
	}
	return got, err
}

// drained are the packets that have come.
func drained(conn *net.UDPConn) (packets [][]byte, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = raw.Control(func(fd uintptr) {
		for {
			var buf [16]byte
			n, _, err := unix.Recvfrom(int(fd), buf[:], unix.MSG_DONTWAIT)
			if err != nil {
				return // there is no more
			}
			packets = append(packets, buf[:n])
		}
	})
	return packets, err
}

func (c *crowd) right(when string) {
	c.Helper()
	eventually.Nil(c, "each verdict is the evaluator's, "+when, func() error {
		n, err := c.wrong()
		if err == nil && n > 0 {
			err = fmt.Errorf("%d of %d are not", n, len(c.machines)*(len(c.machines)-1)*len(ports))
		}
		return err
	})
}

// TestTogether: a plugin, an ACL manager and three Felixes with 50 machines each, whose groups refer to each other. Whatever
// changes or is killed, the kernels come to judge as a slow evaluator does.
func TestTogether(t *testing.T) {
	long.Test(t)
	l := lab.ForTest(t, lab.Config{Hosts: []string{"a", "b", "c"}, Classic: true, NoFsync: true, Log: quiet{}})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: l.Members().Sockets(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	c := &crowd{T: t, lab: l, etcd: etcd}
	const groups = 12
	var nets []netip.Prefix
	for _, h := range l.Hosts() {
		nets = append(nets, h.MachineNet(), netip.PrefixFrom(h.MachineNet().Addr(), 27))
	}
	r := rand.New(rand.NewPCG(2014, 9))
	for i := range groups {
		c.put(model.ProfileTagsKey{Profile: fmt.Sprint("p", i)}.Path(), fmt.Sprintf(`["t%d"]`, i))
	}
	c.rule(randomProfiles(r, groups, nets))
	for _, h := range l.Hosts() {
		for i := range 50 {
			c.add(h, i)
		}
	}
	passing := 0
	for _, from := range c.machines {
		for _, to := range c.machines {
			if from != to && passes(c.profiles, from, to, 0) {
				passing++
			}
		}
	}
	if n := len(c.machines) * len(c.machines); passing < n/20 || passing > n*19/20 {
		t.Fatalf("%d of %d pairs pass: the groups say too little", passing, n)
	}
	c.right("at first")
	c.rule(randomProfiles(r, groups, nets))
	c.right("after the rules have changed")
	for _, role := range append(lab.ClassicRoles(), "agent-b") {
		p, err := l.Process(role)
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.right("while " + role + " is dead")
	}
	if err := l.StartClassic(); err != nil {
		t.Fatal(err)
	}
	if err := l.Host("b").Agent().Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.right("after all are started again")
	c.rule(randomProfiles(r, groups, nets))
	c.right("after the rules have changed again")
}

// quiet drops a lab's progress.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }
