// SPDX-License-Identifier: Apache-2.0

package dhcpd

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

var (
	tapMAC = model.MAC{0x00, 0x61, 0xfe, 0xed, 0xca, 0xfe}
	vmMAC  = model.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}
)

// host has the taps that a test creates.
type host struct {
	t        *testing.T
	keeper   *Servers
	problems *problems.Ledger
	revision int64

	mu   sync.Mutex
	taps map[string]*tap
}

// newHost runs a keeper until the test ends.
func newHost(t *testing.T) *host {
	h := &host{t: t, taps: map[string]*tap{}}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	h.problems = problems.New(log)
	h.keeper = New(Config{Host: "h", MAC: tapMAC, Open: h.open, Logger: log, Problems: h.problems, Metrics: NewMetrics()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if open := h.listened(); len(open) > 0 {
			t.Errorf("left open: %q", open)
		}
	})
	return h
}

// tap is a fake tap: requests enter through asked, replies leave through told.
type tap struct {
	asked chan []byte
	told  chan []byte
	gone  chan struct{}
	opens int
	now   int // sockets that are open
}

func (h *host) plug(name string) *tap {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &tap{asked: make(chan []byte), told: make(chan []byte, 1000), gone: make(chan struct{})}
	h.taps[name] = p
	return p
}

func (h *host) unplug(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.taps[name].gone)
	delete(h.taps, name)
}

// listened returns the taps that are listened to.
func (h *host) listened() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.taps {
		if p.now > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (h *host) open(name string) (Socket, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.taps[name]
	if p == nil {
		return nil, os.ErrNotExist
	}
	p.opens++
	p.now++
	return &socket{h, p, make(chan struct{})}, nil
}

type socket struct {
	h      *host
	tap    *tap
	closed chan struct{}
}

func (s *socket) Receive(buf []byte, until time.Time) ([]byte, error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case f := <-s.tap.asked:
		return buf[:copy(buf, f)], nil
	case <-timer.C:
		return nil, nil
	case <-s.closed:
		return nil, net.ErrClosed
	case <-s.tap.gone:
		return nil, os.ErrNotExist
	}
}

func (s *socket) Send(frame []byte) error {
	select {
	case <-s.closed:
		return net.ErrClosed
	default:
	}
	s.tap.told <- slices.Clone(frame)
	return nil
}

func (s *socket) MTU() int { return 1400 }

func (s *socket) Close() error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.tap.now--
	close(s.closed)
	return nil
}

// update reports keys with their values in etcd, "" = deleted, and returns the revision.
func (h *host) update(values map[string]string) int64 {
	h.t.Helper()
	h.revision++
	h.keeper.Update(model.Update{Revision: h.revision, Entries: h.entries(values)})
	synctest.Wait()
	return h.revision
}

func (h *host) entries(values map[string]string) (entries []model.Entry) {
	h.t.Helper()
	for _, path := range slices.Sorted(maps.Keys(values)) {
		key, err := model.ParseKey(path)
		if err != nil {
			h.t.Fatal(err)
		}
		e := model.Entry{Path: path, Key: key}
		if text := values[path]; text != "" {
			e.Revision = h.revision
			e.Value, e.Err = model.ParseValue(key, []byte(text))
		}
		entries = append(entries, e)
	}
	return entries
}

func (h *host) programmed(path string, revision int64) {
	h.keeper.Programmed(path, revision)
	synctest.Wait()
}

// problem returns the problem reported about a path.
func (h *host) problem(path string) string {
	for _, p := range h.problems.All() {
		if p.Path == path && p.Kind == problemKind {
			return p.Reason
		}
	}
	return ""
}

// ask sends a DISCOVER, and returns the address offered; "" = no answer within a second.
func (h *host) ask(p *tap) string {
	h.t.Helper()
	for len(p.told) > 0 {
		<-p.told
	}
	select {
	case p.asked <- discover(h.t):
	case <-time.After(time.Second):
		return ""
	}
	for {
		select {
		case f := <-p.told:
			if f[12] == 0x08 {
				m, err := dhcpv4.FromBytes(f[42:])
				if err != nil {
					h.t.Fatal(err)
				}
				return m.YourIPAddr.String()
			}
		case <-time.After(time.Second):
			return ""
		}
	}
}

// counted returns the metrics by the value of their label.
func (h *host) counted() map[string]float64 {
	h.t.Helper()
	registry := prometheus.NewRegistry()
	h.keeper.cfg.Metrics.Register(registry)
	families, err := registry.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func discover(t *testing.T, with ...dhcpv4.Modifier) []byte {
	m, err := dhcpv4.NewDiscovery(vmMAC[:], with...)
	if err != nil {
		t.Fatal(err)
	}
	body := m.ToBytes()
	head := append(append(slices.Repeat([]byte{0xff}, 6), vmMAC[:]...), 0x08, 0)
	length := 28 + len(body)
	head = append(head, 0x45, 0, byte(length>>8), byte(length), 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255)
	length -= 20
	head = append(head, 0, 68, 0, 67, byte(length>>8), byte(length), 0, 0)
	return append(head, body...)
}

// advertised returns the number of advertisements since the last call.
func (p *tap) advertised() (n int) {
	synctest.Wait()
	for len(p.told) > 0 {
		if f := <-p.told; f[12] == 0x86 && f[20] == 58 && f[54] == 134 {
			n++
		}
	}
	return n
}

const (
	a       = "/calico/v1/host/h/workload/openstack/a/endpoint/eth0"
	subnet4 = "/calico/dhcp/v1/subnet/s4"
	subnet6 = "/calico/dhcp/v1/subnet/s6"
	in4     = `{"cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1"}`
	in6     = `{"cidr": "fd00:65::/64", "gateway_ip": "fd00:65::1"}`
)

// vm returns an endpoint's value.
func vm(iface, addr string) string {
	return `{"state": "active", "name": "` + iface + `", "mac": "` + vmMAC.String() + `", "profile_ids": [], "ipv4_nets": ["` + addr +
		`/32"], "ipv4_subnet_ids": ["s4"], "ipv6_nets": ["fd00:65::24/128"], "ipv6_subnet_ids": ["s6"]}`
}

// announced returns the gateways announced since the last call.
func (p *tap) announced() (all []string) {
	synctest.Wait()
	for len(p.told) > 0 {
		switch f := <-p.told; {
		case f[12] == 0x08 && f[13] == 0x06:
			all = append(all, net.IP(f[28:32]).String())
		case f[12] == 0x86 && f[20] == 58 && f[54] == 136:
			all = append(all, net.IP(f[62:78]).String())
		}
	}
	slices.Sort(all)
	return all
}

// TestAnnounced: a tap that comes up, or now belongs to another machine, is told its routers once.
func TestAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p := h.plug("tap1")
		routers := []string{"10.65.0.1", "fe80::261:feff:feed:cafe"}
		expect := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, p.announced()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: `{"cidr": "fd00:65::/64"}`}))
		expect("a machine arrives", routers...)
		h.update(map[string]string{strings.Replace(subnet4, "s4", "other", 1): in4})
		expect("another subnet changes")
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.25")}))
		expect("another machine", routers...)
		h.unplug("tap1")
		time.Sleep(time.Minute)
		p = h.plug("tap1")
		time.Sleep(maxReopenPause)
		expect("the tap is made again", routers...)
		time.Sleep(time.Hour)
		expect("an hour")
	})
}

// TestOneFamily: an invalid subnet of one family doesn't affect the other.
func TestOneFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p := h.plug("tap1")
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: `{"cidr": 6}`}))
		if got := h.ask(p); got != "10.65.0.24" || !strings.Contains(h.problem(a), "ipv6_subnet_ids[0]") {
			t.Errorf("%q is offered, and reported: %s", got, h.problem(a))
		}
		h.update(map[string]string{subnet4: `{"cidr": "10.65.0.0/24"}`, subnet6: `{"cidr": "fd00:65::/64"}`})
		if n, got := p.advertised(), h.ask(p); got != "" || n == 0 || strings.Contains(h.problem(a), "ipv6") {
			t.Errorf("%q is offered, %d advertisements, and reported: %s", got, n, h.problem(a))
		}
	})
}

// TestDecline: an address that its machine declines is listed with the tap, and offered again, at most once a second.
func TestDecline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p := h.plug("tap1")
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: in6}))
		decline := discover(t, dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IP{10, 65, 0, 24})))
		for range 10 {
			p.asked <- decline
			synctest.Wait()
			if got := h.problem("tap tap1"); !strings.Contains(got, "10.65.0.24") {
				t.Fatalf("reported: %q", got)
			}
			if got := h.ask(p); got != "" {
				t.Errorf("%q is offered at once", got)
			}
			time.Sleep(time.Second)
			if got := h.ask(p); got != "10.65.0.24" {
				t.Errorf("%q is offered after a second", got)
			}
		}
		time.Sleep(20 * time.Minute)
		if got := h.problem("tap tap1"); got != "" {
			t.Errorf("reported though it is long ago: %q", got)
		}
		p.asked <- decline
		synctest.Wait()
		h.update(map[string]string{a: ""})
		if got := h.problem("tap tap1"); got != "" {
			t.Errorf("reported of a tap that is no machine's: %q", got)
		}
	})
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p := h.plug("tap1")
		first := h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: in6})
		if got := h.listened(); got != nil {
			t.Errorf("served before it is programmed: %q", got)
		}
		h.programmed(a, first)
		if got := p.advertised(); got != 1 {
			t.Errorf("%d advertisements at first", got)
		}
		expect := func(when, want string) {
			t.Helper()
			if got := h.ask(p); got != want {
				t.Errorf("%s: %q is offered, want %q", when, got, want)
			}
		}
		expect("programmed", "10.65.0.24")

		moved := h.update(map[string]string{a: vm("tap1", "10.65.0.25")})
		expect("changed and not programmed yet", "10.65.0.24")
		h.programmed(a, moved)
		if got := p.advertised(); got != 1 {
			t.Errorf("%d advertisements with a change", got)
		}
		expect("changed", "10.65.0.25")

		h.update(map[string]string{subnet4: ""})
		expect("without a subnet", "")
		want := `ipv4_subnet_ids[0]: subnet "s4": there is none: make it with calicoctl apply, as a DHCPSubnet of this name`
		if got := h.problem(a); got != want {
			t.Errorf("reported %q, want %q", got, want)
		}
		h.update(map[string]string{subnet4: `{"cidr": 1}`})
		if got := h.problem(a); !strings.Contains(got, "cidr") {
			t.Errorf("of a subnet that can't be read %q is reported", got)
		}
		h.update(map[string]string{subnet4: in4})
		expect("with the subnet again", "10.65.0.25")
		if got := h.problem(a); got != "" {
			t.Errorf("still reported: %q", got)
		}

		h.programmed(a, 0)
		expect("not programmed", "")
		h.programmed(a, moved)
		expect("programmed again", "10.65.0.25")

		off := h.update(map[string]string{a: strings.Replace(vm("tap1", "10.65.0.25"), `"active"`, `"inactive"`, 1)})
		h.programmed(a, off)
		expect("inactive", "")
		if got := h.problem(a); got != "" {
			t.Errorf("an inactive endpoint is a problem: %q", got)
		}

		again := h.update(map[string]string{a: vm("tap1", "10.65.0.26")})
		h.programmed(a, again)
		expect("active", "10.65.0.26")
		h.update(map[string]string{a: ""})
		expect("deleted", "")
		counts := map[string]float64{"calico_node_dhcp_ports": 0, "calico_node_dhcp_requests_total answered": 6, "calico_node_dhcp_requests_total ignored": 1}
		if diff := cmp.Diff(counts, h.counted()); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}

// TestSnapshot: what a snapshot lacks is gone, and what is unchanged is served without a break.
func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p, q := h.plug("tap1"), h.plug("tap2")
		b := strings.Replace(a, "/a/", "/b/", 1)
		all := map[string]string{a: vm("tap1", "10.65.0.24"), b: strings.ReplaceAll(vm("tap2", "10.65.0.25"), "65::24", "65::25"), subnet4: in4, subnet6: in6}
		revision := h.update(all)
		h.programmed(a, revision)
		h.programmed(b, revision)
		delete(all, b)
		h.keeper.Update(model.Update{Revision: revision, Resync: true, Entries: h.entries(all)})
		synctest.Wait()
		if got := h.ask(p); got != "10.65.0.24" || p.opens != 1 {
			t.Errorf("%q is offered, by socket %d", got, p.opens)
		}
		if got := h.ask(q); got != "" {
			t.Errorf("%q is offered to a machine that is gone", got)
		}
		if diff := cmp.Diff([]string{"tap1"}, h.listened()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOthers: other hosts' endpoints, and those that name no subnet, cost nothing.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.plug("tap1")
		pod := `{"state": "active", "name": "cali1", "mac": null, "profile_ids": [], "ipv4_nets": ["10.65.0.24/32"]}`
		others := strings.Replace(a, "/h/", "/other/", 1)
		revision := h.update(map[string]string{a: pod, others: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: in6})
		h.programmed(a, revision)
		h.programmed(others, revision)
		if got := h.listened(); got != nil || len(h.keeper.programmed)+len(h.keeper.endpoints) > 0 {
			t.Errorf("served: %q", got)
		}
	})
}

// TestTapReplaced: a tap that is deleted and recreated is found, though its endpoint stayed programmed.
func TestTapReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.plug("tap1")
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: in6}))
		h.unplug("tap1")
		time.Sleep(time.Minute)
		p := h.plug("tap1")
		time.Sleep(maxReopenPause)
		if got := h.ask(p); got != "10.65.0.24" {
			t.Errorf("%q is offered", got)
		}
		q := h.plug("tap2")
		h.programmed(a, h.update(map[string]string{a: vm("tap2", "10.65.0.24")}))
		if diff := cmp.Diff([]string{"tap2"}, h.listened()); diff != "" {
			t.Errorf("an endpoint with another tap (-want +got):\n%s", diff)
		}
		if got := h.ask(q); got != "10.65.0.24" {
			t.Errorf("%q is offered", got)
		}
	})
}

// TestStorm: requests that come too fast are answered in part, another tap is served as ever, and so is the machine afterwards.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p := h.plug("tap1")
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: in6}))
		frame, end := discover(t), time.After(time.Minute)
		taken := 0
	storm:
		for {
			select {
			case p.asked <- frame:
				taken++
			case <-end:
				break storm
			}
		}
		if most := burst + perSecond*60; taken > most || taken < most*9/10 {
			t.Errorf("%d frames were looked at in a minute, want about %d", taken, most)
		}
		time.Sleep(time.Second)
		if got := h.ask(p); got != "10.65.0.24" {
			t.Errorf("after it %q is offered", got)
		}
	})
}

// TestUnasked: a machine hears of its router again before it forgets it.
func TestUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		p := h.plug("tap1")
		h.programmed(a, h.update(map[string]string{a: vm("tap1", "10.65.0.24"), subnet4: in4, subnet6: in6}))
		p.advertised()
		for range 10 {
			time.Sleep(10 * time.Minute)
			if got := p.advertised(); got < 1 || got > 2 {
				t.Errorf("%d advertisements in ten minutes", got)
			}
		}
	})
}
