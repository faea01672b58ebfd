// SPDX-License-Identifier: Apache-2.0

// Package probe tests the path of workloads' packets: it creates two workloads of its own, wired as pods are, and sends packets between
// them through the host's forwarding, its routes and all programs' rules.
package probe

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
)

const (
	// period is how often packets are sent, and patience how long each may take.
	period   = 10 * time.Second
	patience = time.Second
	// failures is how many consecutive rounds must fail to make a finding.
	failures = 2
)

// Desired says which workloads to probe with.
type Desired struct {
	Prefix   string         // of workload interfaces
	Families board.Families // those of the host's workloads; none: nothing is probed
}

// Config configures a Prober.
type Config struct {
	// Accepted returns how many packets our own rules have let pass to the probe's workloads.
	Accepted func() (uint64, error)
	Period   time.Duration  // from round to round, 0 = 10 s
	Wake     mailbox.Signal // of the reader of Wired
	Logger   *slog.Logger
}

// Prober probes the path as Try says.
type Prober struct {
	cfg     Config
	told    Desired // as last passed; only Try uses it
	desired *mailbox.Box[Desired]
	wired   *mailbox.Box[[]board.ProbeEnd]

	mu    sync.Mutex
	found []board.PathFinding

	// Only Run uses the rest.
	now   Desired
	wire  *wire
	round uint64
	lost  [2]int // consecutive failed rounds, by family
}

// New returns a Prober that does nothing until Try.
func New(cfg Config) *Prober {
	cfg.Period = cmp.Or(cfg.Period, period)
	return &Prober{cfg: cfg, desired: mailbox.New[Desired](), wired: mailbox.NewFor[[]board.ProbeEnd](cfg.Wake)}
}

// Try says what to probe from now on. Only one goroutine may call it.
func (p *Prober) Try(d Desired) {
	if d != p.told {
		p.told = d
		p.desired.Put(d)
	}
}

// Wired holds the workloads to connect as pods are; nil when they are gone.
func (p *Prober) Wired() *mailbox.Box[[]board.ProbeEnd] { return p.wired }

// Findings returns the present problems, as far as known.
func (p *Prober) Findings() []board.PathFinding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// Run probes until the context ends, and then deletes its workloads.
func (p *Prober) Run(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.Period)
	defer ticker.Stop()
	defer p.unwire()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.desired.Ready():
			p.now, _ = p.desired.Take()
			p.unwire()
			ticker.Reset(p.cfg.Period)
		case <-ticker.C:
			switch {
			case p.now.Families == board.Families{}:
			case p.wire == nil || !p.wire.stands():
				p.rewire()
			default:
				p.try()
			}
		}
	}
}

// rewire creates the workloads again. They are to be connected by the next round.
func (p *Prober) rewire() {
	p.unwire()
	w, err := newWire(p.now.Prefix, p.now.Families)
	if err != nil {
		p.cfg.Logger.Warn("the path of workloads' packets can't be tried, trying again", "err", err)
		return
	}
	p.wire = w
	p.wired.Put(w.ends[:])
}

// unwire deletes the workloads and the findings.
func (p *Prober) unwire() {
	if p.wire == nil {
		return
	}
	if err := p.wire.close(); err != nil {
		p.cfg.Logger.Warn("what tried the path of workloads' packets was not taken away", "err", err)
	}
	p.wire, p.lost = nil, [2]int{}
	p.tell(nil)
	p.wired.Put(nil)
}

// try does one round.
func (p *Prober) try() {
	var found []board.PathFinding
	for _, n := range p.wire.namespaces { // a new workload would have to resolve its gateway, too
		if err := n.ForgetNeighbours(); err != nil {
			p.cfg.Logger.Debug("the probe's workloads go on with the neighbours that they know", "err", err)
		}
	}
	for i, from := range p.wire.ends[0].Addrs {
		family := 0
		if from.Is6() {
			family = 1
		}
		step, err := p.ask(i)
		if err == nil {
			p.lost[family] = 0
			continue
		}
		if p.lost[family]++; p.lost[family] >= failures {
			found = append(found, board.PathFinding{V4: family == 0, Text: p.explain(i, step, err)})
		}
	}
	p.tell(found)
}

func (p *Prober) tell(found []board.PathFinding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = found
}

// ask makes the first end ask the second from one of its addresses, by a new port: rules that pass established connections would hide what
// they do to new ones. step says which packet failed.
func (p *Prober) ask(i int) (step string, err error) {
	p.round++
	ask := binary.BigEndian.AppendUint64(nil, p.round)
	asking, err := p.wire.listen(0, i, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = asking.Close() }() // nothing is in flight
	answering := p.wire.answering[i]
	if err := pass(asking, answering, ask); err != nil {
		return "", err
	}
	return "the answer of ", pass(answering, asking, ask)
}

// pass sends a packet and waits for it at the other end, skipping late ones of earlier rounds.
func pass(from, to *net.UDPConn, packet []byte) error {
	if _, err := from.WriteTo(packet, to.LocalAddr()); err != nil {
		return err
	}
	if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	got := make([]byte, len(packet)+1)
	for {
		n, _, err := to.ReadFromUDPAddrPort(got)
		if err != nil {
			return err
		}
		if string(got[:n]) == string(packet) {
			return nil
		}
	}
}

// look says where others' rules are, and full what drops packets without a rule.
const (
	look = "(nft list ruleset, iptables-save -c, iptables-legacy-save -c)"
	full = "; a full table of connections drops packets too (dmesg: nf_conntrack: table full)"
)

// explain asks once more, to see whether our own rules let the packet pass.
func (p *Prober) explain(i int, step string, err error) string {
	from, to := p.wire.ends[0], p.wire.ends[1]
	what := fmt.Sprintf("%sUDP from %s on %s to %s on %s", step, from.Addrs[i], from.Interface, to.Addrs[i], to.Interface)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("%s can't be sent: %v", what, err)
	}
	if step != "" { // the question arrived, so the rules' counters say nothing about the answer
		return what + " got lost, though the question arrived: look for what drops it by its addresses or by the state of its connection in other tables " +
			look + ", at rp_filter, and for rules of routing (ip rule)" + full
	}
	before, err := p.cfg.Accepted()
	if err == nil {
		_, _ = p.ask(i) // it is known to fail
		var after uint64
		if after, err = p.cfg.Accepted(); err == nil && after > before {
			return what + " got lost after our own rules accepted it: look for what drops it in other tables " + look + " and in the host's sysctls" + full
		}
	}
	if err != nil {
		return fmt.Sprintf("%s got lost; our own rules' counters can't be read: %v", what, err)
	}
	return what + " got lost before our own rules accepted it: look for what drops it in other tables' chains of prerouting and forward " + look +
		", at rp_filter, for rules of routing that lead elsewhere (ip rule), for policies of IPsec (ip xfrm policy), and for what drops ARP " +
		"or neighbour discovery to the host" + full
}
