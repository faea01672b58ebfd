// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/test/long"
)

// TestChangesWhileSessionsComeUp: the clients of a reflector all connect at once, and each announces and withdraws. In the
// end each has what the others have, and no more.
func TestChangesWhileSessionsComeUp(t *testing.T) {
	long.Test(t)
	t.Parallel()
	r := newReflected(t, 40)
	r.speaker.apply(r.reflector.desired()) // so that what comes then is no restart
	r.come(r.desired)
	for _, c := range r.clients {
		want := []netip.Prefix{prefix("10.1.250.0/26")}
		for _, other := range r.clients {
			if other != c {
				want = append(want, other.prefix(0))
			}
		}
		slices.SortFunc(want, comparePrefixes)
		becomes(t, c.address.String()+" learns", want, c.learned)
	}
}

// TestNothingIsSaidWhileRestarting: a reflector that has restarted sends nothing before it has heard from all neighbours, not even
// what changed while sessions came up. Clients would take that for everything, and drop the rest.
func TestNothingIsSaidWhileRestarting(t *testing.T) {
	t.Parallel()
	r := newReflected(t, 20)
	d := r.desired
	d.Speaker.RestartTime = 20 * time.Minute // a quarter of it is the wait for a neighbour that never comes
	d.Speaker.KeepaliveTime = behind
	absent := netip.MustParseAddr("10.0.1.250")
	d.Neighbours[absent] = plan.Neighbour{Address: absent, AS: 64512, Local: r.reflector.v4, Kind: plan.FromReflects, Client: true, MaxPrefixes: 50000}
	r.come(d)
	for _, c := range r.clients {
		becomes(t, c.address.String(), 1, func() int { return r.speaker.peer(c.address).Received })
	}
	for _, c := range r.clients {
		c.keptAlive.Store(0)
	}
	for _, c := range r.clients {
		becomes(t, c.address.String()+" is kept alive", true, func() bool { return c.keptAlive.Load() > 3 })
		if got := c.learned(); len(got) > 0 || c.said() > 0 {
			t.Errorf("%s was told %d times, last of %v", c.address, c.said(), got)
		}
	}
}

// reflected is a host that reflects routes among clients, which are addresses of another host.
type reflected struct {
	t         *testing.T
	reflector *host
	other     *host
	speaker   *speaker
	desired   Desired
	clients   []*client
}

func newReflected(t *testing.T, clients int) *reflected {
	t.Helper()
	f := newFabric(t)
	r := &reflected{t: t, reflector: f.host(t, 1), other: f.host(t, 2)}
	ip(t, r.other.ns, "route add local 10.0.1.0/24 dev lo")
	r.speaker, r.desired = r.reflector.start(t), r.reflector.desired()
	r.desired.Speaker.ClusterID, r.desired.Speaker.HoldTime = r.reflector.v4, 18*time.Hour // which clients do not use
	r.reflector.has(r.desired, "10.1.250.0/26")
	for n := range clients {
		c := &client{number: n + 1, address: netip.AddrFrom4([4]byte{10, 0, 1, byte(n + 1)}), has: make(map[netip.Prefix]bool)}
		r.desired.Neighbours[c.address] = plan.Neighbour{Address: c.address, AS: 64512, Local: r.reflector.v4, Kind: plan.FromReflects, Client: true, MaxPrefixes: 50000}
		r.clients = append(r.clients, c)
	}
	return r
}

// come applies the desired state, and lets all clients connect at once.
func (r *reflected) come(d Desired) {
	t := r.t
	t.Helper()
	r.speaker.apply(d)
	for _, c := range r.clients {
		becomes(t, c.address.String(), Connecting, func() string { return r.speaker.peer(c.address).State })
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		for _, c := range r.clients {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		for _, c := range r.clients {
			if !errors.Is(c.err, net.ErrClosed) {
				t.Errorf("%s: %v", c.address, c.err)
			}
		}
	})
	for _, c := range r.clients {
		in(t, r.other.ns, func() (err error) {
			dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.address, 0))}
			c.Conn, err = dialer.Dial("tcp", netip.AddrPortFrom(r.reflector.v4, 179).String())
			return err
		})
		all.Go(func() { c.err = c.talk() })
	}
}

// A client is a neighbour that keeps what it receives.
type client struct {
	net.Conn
	number  int
	address netip.Addr
	err     error // why it ended

	keptAlive atomic.Int64

	mu      sync.Mutex
	has     map[netip.Prefix]bool
	updates int // also those that say the end of all
}

func (c *client) said() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updates
}

// prefix returns prefix n of the client: 0 is the one that it keeps, the others are withdrawn.
func (c *client) prefix(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(c.number), byte(n)}), 32)
}

func (c *client) learned() []netip.Prefix {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []netip.Prefix
	for p := range c.has {
		list = append(list, p)
	}
	slices.SortFunc(list, comparePrefixes)
	return list
}

// talk opens the session, announces, withdraws all prefixes but one, and reads until the end.
func (c *client) talk() error {
	const passing = 40
	open, err := bgp.NewBGPOpenMessage(64512, 65535, c.address, []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
		bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapFourOctetASNumber(64512),
		bgp.NewCapGracefulRestart(false, false, 120, []*bgp.CapGracefulRestartTuple{bgp.NewCapGracefulRestartTuple(bgp.RF_IPv4_UC, true)}),
	})})
	if err != nil {
		return err
	}
	hop, err := bgp.NewPathAttributeNextHop(c.address)
	if err != nil {
		return err
	}
	attrs := []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), bgp.NewPathAttributeAsPath(nil), hop, bgp.NewPathAttributeLocalPref(defaultPreference),
	}
	messages := []*bgp.BGPMessage{open, bgp.NewBGPKeepAliveMessage()}
	var withdrawals []*bgp.BGPMessage
	for n := range passing {
		p, err := bgp.NewIPAddrPrefix(c.prefix(n))
		if err != nil {
			return err
		}
		list := []bgp.PathNLRI{{NLRI: p}}
		messages = append(messages, bgp.NewBGPUpdateMessage(nil, attrs, list))
		if n > 0 {
			withdrawals = append(withdrawals, bgp.NewBGPUpdateMessage(list, nil, nil))
		}
	}
	for _, m := range slices.Concat(messages, withdrawals) {
		data, err := m.Serialize()
		if err != nil {
			return err
		}
		if _, err := c.Write(data); err != nil {
			return err
		}
	}
	for {
		if err := c.hear(); err != nil {
			return err
		}
	}
}

// hear reads and handles a message.
func (c *client) hear() error {
	head := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	var h bgp.BGPHeader
	if err := h.DecodeFromBytes(head); err != nil {
		return err
	}
	body := make([]byte, h.Len-bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	m, err := bgp.ParseBGPBody(&h, body)
	if err != nil {
		return err
	}
	switch b := m.Body.(type) {
	case *bgp.BGPKeepAlive:
		c.keptAlive.Add(1)
	case *bgp.BGPUpdate:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.updates++
		for _, n := range b.WithdrawnRoutes {
			p, _ := prefixOf(n.NLRI)
			delete(c.has, p)
		}
		for _, n := range b.NLRI {
			p, _ := prefixOf(n.NLRI)
			c.has[p] = true
		}
	case *bgp.BGPNotification:
		return fmt.Errorf("the session was ended: code %d, subcode %d", b.ErrorCode, b.ErrorSubcode)
	}
	return nil
}

// TestChanges: changes are kept for as long as they may be needed.
func TestChanges(t *testing.T) {
	t.Parallel()
	var c changes
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	one, two, three := prefix("10.1.1.0/26"), prefix("10.1.2.0/26"), prefix("10.1.3.0/26")
	c.note(at(1))
	c.note(at(5), one)
	c.note(at(6), two)
	c.note(at(30), three)
	for when, want := range map[int][]netip.Prefix{0: {one, two, three}, 6: {two, three}, 7: {three}, 31: nil} {
		list, some := c.after(at(when))
		slices.SortFunc(list, comparePrefixes)
		if diff := cmp.Diff(want, list, comparers()); diff != "" || some != (want != nil) {
			t.Errorf("after %d s: %t (-want +got):\n%s", when, some, diff)
		}
	}
	c.note(at(60))
	if list, _ := c.after(at(0)); len(list) != 1 {
		t.Errorf("kept for longer than sessions take to come up: %v", list)
	}
}
