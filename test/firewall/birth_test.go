// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/inflight"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// company is a pod of the network, and one whose profile is another.
func (r *rig) company() (friend, stranger *place) {
	r.Helper()
	friend, stranger = r.pod("friend"), r.pod("stranger")
	r.endpoint(stranger, func(e *model.WorkloadEndpoint) { e.ProfileIDs = []string{"other"} })
	r.profile("other", `{"inbound_rules": [], "outbound_rules": [{"action": "allow"}]}`)
	r.enforced()
	return friend, stranger
}

// toBeBorn is what a plugin reads on its standard input, and the addresses to ask it for.
func (r *rig) toBeBorn() (stdin []byte, addrs [2]netip.Addr) {
	r.Helper()
	conf := r.host.PluginConf()
	conf["cniVersion"], conf["name"] = "1.0.0", lab.Network
	stdin, err := json.Marshal(conf)
	if err != nil {
		r.Fatal(err)
	}
	return stdin, [2]netip.Addr{netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("fd80:24e2:f998:72d6::7701")}
}

// TestBirth has pods come into a flood of packets that they must not get.
func TestBirth(t *testing.T) {
	long.Test(t)
	const pods = 8
	r := newHostileRig(t)
	_, stranger := r.company()
	stdin, a := r.toBeBorn()
	var sent int64
	for n := range pods {
		name := fmt.Sprintf("born%d", n)
		ns, err := r.lab.NewNamespace(name)
		if err != nil {
			t.Fatal(err)
		}
		born := &place{name: name, ns: ns, addrs: a}
		ear := r.hear(born)
		var floods []*stream
		for _, to := range a {
			floods = append(floods, r.flood(stranger, to), r.flood(r.outside, to))
		}
		r.pause(floods[0], 20)
		reply, err := r.host.CNI(r.ctx(), lab.Call{Verb: "ADD", ContainerID: name, Netns: ns.Path(), IfName: "eth0", Args: fmt.Sprintf("IP=%s,%s", a[0], a[1]), Stdin: stdin})
		if err != nil {
			t.Fatalf("%v\n%s", err, reply.Stderr)
		}
		r.pause(floods[0], 50)
		for _, f := range floods {
			f.end()
			sent += f.sent.Load()
		}
		if err := inflight.Wait(); err != nil {
			t.Fatal(err)
		}
		// The host may always talk to its pods: the ear hears.
		r.flows("from the host", r.flood(r.self, a[0]), ear)
		ear.end()
		if got := ear.sent.Load(); got != 0 {
			t.Errorf("pod %d got %d packets that it must not get", n, got)
		}
		a[0], a[1] = a[0].Next(), a[1].Next()
	}
	t.Logf("%d pods came into %d packets that they must not get", pods, sent)
}

const (
	unwanted = "this must not arrive"
	wanted   = "this may arrive"
)

// flood sends datagrams to an address that need not be there yet. What comes
// from the host says that it may arrive.
func (r *rig) flood(from *place, to netip.Addr) *stream {
	r.Helper()
	s := r.stream(fmt.Sprintf("flood from %s to %s", from.name, to))
	conn, err := dialUDP(from, netip.AddrPortFrom(to, 9))
	if err == nil && to.Is4() {
		err = ipv4.NewConn(conn).SetTTL(4) // while there is no route it goes round between host and outside
	} else if err == nil {
		err = ipv6.NewConn(conn).SetHopLimit(4)
	}
	if err != nil {
		r.Fatal(err)
	}
	s.closers = []io.Closer{conn}
	text := []byte(unwanted)
	if from == r.self {
		text = []byte(wanted)
	}
	s.send(func(int64) error {
		_, err := conn.Write(text)
		s.arrived.Add(1) // on its way: who hears it counts
		return err
	})
	return s
}

// hear counts what arrives in a namespace, on every interface that there is and
// will be: as arrived what may, as sent what must not.
func (r *rig) hear(at *place) *stream {
	r.Helper()
	s := r.stream("what arrives at " + at.name)
	var file *os.File
	err := at.ns.Do(func() error {
		all := uint16(unix.ETH_P_ALL)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all<<8|all>>8))
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		file = os.NewFile(uintptr(fd), "packets of "+at.name)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	s.closers = []io.Closer{file}
	buf := make([]byte, 2048)
	s.working.Go(func() {
		for {
			n, err := file.Read(buf)
			if err != nil {
				return
			}
			switch {
			case bytes.Contains(buf[:n], []byte(unwanted)):
				s.sent.Add(1)
			case bytes.Contains(buf[:n], []byte(wanted)):
				s.arrived.Add(1)
			}
		}
	})
	return s
}

// TestGate adds pods at once; each is protected, and reachable, the moment that
// its ADD returns.
func TestGate(t *testing.T) {
	const pods = 50
	r := newRig(t)
	friend, stranger := r.company()
	var all sync.WaitGroup
	for n := range pods {
		all.Go(func() {
			pod, err := r.host.AddPod(t.Context(), fmt.Sprintf("pod%d", n), lab.PodConfig{})
			if err != nil {
				t.Errorf("add pod %d: %v", n, err)
				return
			}
			p := &place{name: pod.Name(), ns: pod.Namespace(), addrs: [2]netip.Addr(pod.Addrs())}
			for _, a := range p.addrs {
				if _, err := sendUDP(friend, p, netip.AddrPortFrom(a, 5000)); err != nil {
					t.Errorf("the first packet to %s (%s) did not arrive: %v", p.name, a, err)
				}
				if passes, err := udpPasses(stranger, p, netip.AddrPortFrom(a, 5001)); passes || err != nil {
					t.Errorf("a packet that %s (%s) must not get: arrived %t, %v", p.name, a, passes, err)
				}
			}
		})
	}
	all.Wait()
}
