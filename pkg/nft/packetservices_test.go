// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/test/netns"
)

// connect begins a connection without waiting for it.
func connect(t *testing.T, to netip.AddrPort) (hangUp func()) {
	t.Helper()
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = unix.Connect(fd, at); err == unix.EINPROGRESS {
			err = nil
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Close(fd) }
}

// accepts waits for a connection.
func accepts(t *testing.T, name string, l net.Listener) {
	t.Helper()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(eventually.Limit))
	c, err := l.Accept()
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	_ = c.Close()
}

// TestBGPSessions: a peer can open a limited number of sessions in an hour, and keeps out no other peer by that.
func TestBGPSessions(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		often, other := newSpace(t, 1, "eth0"), newSpace(t, 2, "eth1")
		own := ownAddrs(t)
		l, err := net.Listen("tcp", ":179")
		if err != nil {
			t.Fatal(err)
		}
		froms := make(chan netip.Addr, 10000)
		var accepting sync.WaitGroup
		accepting.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				froms <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
				_ = c.Close()
			}
		})
		defer accepting.Wait()
		defer func() { _ = l.Close() }()
		f := open(t)
		f.Configure(settings())
		f.Tunnels(policy.Tunnels{BGP: policy.BGP{Port: 179, Peers: append(slices.Clone(often.ep.Addrs), other.ep.Addrs...)}})
		mustApply(t, f)
		const most, more = 3600, 400
		for i, a := range own {
			at := netip.AddrPortFrom(a, 179)
			dropped := count(t, "host-services", "too many BGP sessions of a peer")
			often.do(func() {
				for range most + more {
					connect(t, at)()
				}
			})
			// Meanwhile it may open one more each second.
			eventually.Nil(t, "what is more is dropped", func() error {
				if got := count(t, "host-services", "too many BGP sessions of a peer") - dropped; got < more/2 || got > more {
					return fmt.Errorf("%d packets are", got)
				}
				return nil
			})
			other.do(func() { t.Cleanup(connect(t, at)) })
			for eventually.Receive(t, "another peer's session", froms) != other.ep.Addrs[i] {
			}
		}
	})
}

// TestBGPPeers opens sessions from a peer, a stranger, the host itself and a workload.
func TestBGPPeers(t *testing.T) {
	netns.Host(t, func() {
		asHost(t)
		pod, other := newSpace(t, 1, "cali1"), newSpace(t, 2, "eth0")
		own := ownAddrs(t)
		l, err := net.Listen("tcp", ":179")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		f := open(t)
		s := settings()
		s.EndpointToHost = policy.ToHostAccept
		f.Configure(s)
		pod.ep.Inbound, pod.ep.Outbound = policy.Verdicts{}, policy.Verdicts{Profiles: []policy.RulesID{profileID("prod")}}
		f.Update(policy.Changes{Endpoints: endpoints(pod.ep), Rules: rules(policy.Rules{ID: profileID("prod"), Outbound: []policy.Rule{{Action: model.ActionAllow}}})})
		for _, step := range []struct {
			name    string
			bgp     policy.BGP
			from    space
			through bool
		}{
			{"no speaker", policy.BGP{Peers: pod.ep.Addrs}, other, true},
			{"a stranger", policy.BGP{Port: 179, Peers: pod.ep.Addrs}, other, false},
			{"a peer", policy.BGP{Port: 179, Peers: other.ep.Addrs}, other, true},
			{"a workload", policy.BGP{Port: 179, Peers: other.ep.Addrs}, pod, false},
			{"a workload that is a peer", policy.BGP{Port: 179, Peers: pod.ep.Addrs}, pod, true},
			{"a speaker at another port", policy.BGP{Port: 1179}, other, true},
			{"without peers", policy.BGP{Port: 179}, other, false},
			{"no speaker any more", policy.BGP{}, other, true},
		} {
			f.Tunnels(policy.Tunnels{BGP: step.bgp})
			mustApply(t, f)
			dropped := uint64(0)
			if !step.through {
				dropped = count(t, "host-services", "BGP from no peer")
			}
			var ends []func()
			for _, a := range own {
				step.from.do(func() { ends = append(ends, connect(t, netip.AddrPortFrom(a, 179))) })
			}
			if step.through {
				for range own {
					accepts(t, step.name, l)
				}
			} else {
				waitCount(t, "host-services", "BGP from no peer", dropped+uint64(len(own)))
			}
			for _, end := range ends {
				end()
			}
			c, err := net.Dial("tcp", netip.AddrPortFrom(own[0], 179).String())
			if err != nil {
				t.Fatalf("%s: the host itself: %v", step.name, err)
			}
			accepts(t, step.name+": the host itself", l)
			_ = c.Close()
		}
	})
}
