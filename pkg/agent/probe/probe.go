// SPDX-License-Identifier: Apache-2.0

// Package probe tries the path that packets of workloads take: it makes two workloads of its own, wired as pods are, and has one ask the
// other through the host's forwarding, its routes and all rules of everybody.
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
	// failures is how many rounds in a row must fail until that is a finding.
	failures = 2
)

// Desired says between which workloads packets are tried.
type Desired struct {
	Prefix   string         // of workload interfaces
	Families board.Families // that the host's workloads have; none: nothing is tried
}

// Config is what a Prober works with.
type Config struct {
	// Accepted is how many packets our own rules have let pass to the probe's workloads.
	Accepted func() (uint64, error)
	Period   time.Duration  // from round to round, 0 = 10 s
	Wake     mailbox.Signal // of who takes Wired
	Logger   *slog.Logger
}

// Prober tries the path once it is told to.
type Prober struct {
	cfg     Config
	told    Desired // by the goroutine that tells
	desired *mailbox.Box[Desired]
	wired   *mailbox.Box[[]board.ProbeEnd]

	mu    sync.Mutex
	found []board.PathFinding

	// What follows is Run's.
	now   Desired
	wire  *wire
	round uint64
	lost  [2]int // rounds in a row that failed, by family
}

// New makes one that tries nothing yet.
func New(cfg Config) *Prober {
	cfg.Period = cmp.Or(cfg.Period, period)
	return &Prober{cfg: cfg, desired: mailbox.New[Desired](), wired: mailbox.NewFor[[]board.ProbeEnd](cfg.Wake)}
}

// Try says what is to be tried from now on. One goroutine calls it.
func (p *Prober) Try(d Desired) {
	if d != p.told {
		p.told = d
		p.desired.Put(d)
	}
}

// Wired holds the workloads that are to be connected as pods are; none where there are none any more.
func (p *Prober) Wired() *mailbox.Box[[]board.ProbeEnd] { return p.wired }

// Findings are what is wrong now, as far as it is known.
func (p *Prober) Findings() []board.PathFinding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// Run tries until the context ends, and then takes its workloads away.
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

// rewire makes the workloads anew. They are connected until the next round.
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

// unwire takes the workloads away, and what was found with them.
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

// try is one round.
func (p *Prober) try() {
	var found []board.PathFinding
	for _, n := range p.wire.namespaces { // a new workload has to ask for its gateway, too
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

// ask has the first end ask the second from one of its addresses, by a port of its own: rules that let pass what belongs to a
// connection would hide what they do to others. The step is what failed.
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

// pass sends a packet and waits for it at the other end, past what came late from a round before.
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

// look is where the rules of others are, and full what drops without any.
const (
	look = "(nft list ruleset, iptables-save -c, iptables-legacy-save -c)"
	full = "; a full table of connections drops packets too (dmesg: nf_conntrack: table full)"
)

// explain asks once more, to see whether our own rules let it pass.
func (p *Prober) explain(i int, step string, err error) string {
	from, to := p.wire.ends[0], p.wire.ends[1]
	what := fmt.Sprintf("%sUDP from %s on %s to %s on %s", step, from.Addrs[i], from.Interface, to.Addrs[i], to.Interface)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("%s can't be sent: %v", what, err)
	}
	if step != "" { // the question arrived, so that the rules' counters say nothing of the answer
		return what + " got lost, though the question arrived: look for what drops it by its addresses or by the state of its connection in other tables " +
			look + ", at rp_filter, and for rules of routing (ip rule)" + full
	}
	before, err := p.cfg.Accepted()
	if err == nil {
		_, _ = p.ask(i) // that it fails is known
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
