// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/nfnl"
)

// Search describes the packets for which Blocks looks for chains that drop them.
type Search struct {
	Own      string           // table, of family inet
	Prefixes []string         // of workload interfaces
	Nets     []netip.Prefix   // of workloads' addresses; 0.0.0.0/0 or ::/0 if no more is known of a family
	Probe    [][2]netip.Addr  // source and destination of each way of the path's probe
	VXLAN    []netip.AddrPort // where the host receives other hosts' packets for workloads
}

// Block is a base chain that drops packets from or to workload interfaces that begin a connection, except those of some ports and the like.
// For packets of the host itself it is one that drops answers too: a host need not be open to workloads.
type Block struct {
	Family, Table, Chain string // as nft calls them
	Hook                 string
	From, To             bool
	// Pods4 and Pods6: no workload can send or receive. The chain isn't for the host's own packets, and none of its rules may accept those
	// of some addresses.
	Pods4, Pods6 bool
	// Probe4 and Probe6: it drops the packets of the path's probe.
	Probe4, Probe6 bool
	VXLANPort      uint16   // no packets from other hosts reach this port; 0 = they may
	Prefixes       []string // of workload interfaces
}

// Name is the chain's name for nft; a quoted part is one that nft doesn't accept.
func (b Block) Name() string { return b.Family + " " + word(b.Table) + " " + word(b.Chain) }

// word quotes a name that nft, or a shell, doesn't take for one word: its creator may choose any.
func word(name string) string {
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./") != "" {
		return strconv.QuoteToASCII(name)
	}
	return name
}

// insert returns the command that lets pass what a rule matches.
func (b Block) insert(rule string) string {
	if strings.Contains(b.Name(), `"`) {
		return "nft list ruleset, and take away what made it: no command can name the chain"
	}
	return fmt.Sprintf("nft 'insert rule %s %s'", b.Name(), rule)
}

// String says what the chain does, and how to let workloads' packets pass.
func (b Block) String() string {
	var what, mends []string
	accept := "accept"
	if b.Hook == "input" { // the host's own ports stay closed
		accept = "ct state established,related accept"
	}
	for _, p := range b.Prefixes {
		if b.From {
			what, mends = append(what, "from "+p+"*"), append(mends, b.insert(fmt.Sprintf("iifname \"%s*\" %s", p, accept)))
		}
		if b.To {
			what, mends = append(what, "to "+p+"*"), append(mends, b.insert(fmt.Sprintf("oifname \"%s*\" accept", p)))
		}
	}
	if b.VXLANPort != 0 {
		what, mends = append(what, "of other hosts' VXLAN"), append(mends, b.insert(fmt.Sprintf("udp dport %d accept", b.VXLANPort)))
	}
	note := ""
	if b.Table == "firewalld" { // it rewrites its table when it is reloaded
		note, mends = " (without firewalld the host's own ports are open to everybody)", []string{"systemctl disable --now firewalld"}
	}
	return fmt.Sprintf("chain %s (hook %s) drops packets %s%s: run %s", b.Name(), b.Hook, strings.Join(what, " and "), note, strings.Join(slices.Compact(mends), " && "))
}

// OnlyProbe reports whether the chain drops packets of a family's probe, and none of workloads.
func (b Block) OnlyProbe(v4 bool) bool {
	return !b.From && !b.To && (v4 && b.Probe4 || !v4 && b.Probe6)
}

// OfProbe says what OnlyProbe means, and how to let the probe pass.
func (b Block) OfProbe() string {
	name := "iifname"
	if b.Hook == "postrouting" {
		name = "oifname"
	}
	return fmt.Sprintf("chain %s (hook %s) drops it for its addresses, which no workload has: run %s", b.Name(), b.Hook, b.insert(fmt.Sprintf("%s \"%sprobe*\" accept", name, b.Prefixes[0])))
}

// Blocks finds all such chains in tables other than our own.
func (f *Forward) Blocks(s Search) (blocks []Block, err error) {
	for _, family := range []string{"ip", "ip6", "inet"} {
		found, err := []Block(nil), nfnl.ErrInterrupted
		for try := 0; try < nfnl.MaxTries && errors.Is(err, nfnl.ErrInterrupted); try++ {
			found, err = f.blocks(family, s)
		}
		if err != nil {
			return nil, fmt.Errorf("look for what else drops workloads' packets: %w", err)
		}
		blocks = append(blocks, found...)
	}
	return blocks, nil
}

func (f *Forward) blocks(family string, s Search) (blocks []Block, err error) {
	bases, err := f.conns[family].BaseChains()
	if err != nil {
		return nil, err
	}
	for _, base := range bases {
		if base.Dormant || family == "inet" && base.Table == s.Own {
			continue
		}
		r := newReader(f.conns[family], base)
		b := r.block(family, s)
		if r.err != nil {
			return nil, r.err
		}
		if b.From || b.To || b.Probe4 || b.Probe6 || b.VXLANPort != 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

func (r *reader) block(family string, s Search) Block {
	hook := r.base.Hook
	b := Block{Family: family, Table: r.base.Table, Chain: r.base.Name, Hook: hook, Prefixes: s.Prefixes}
	in, out := hook != "output" && hook != "postrouting", hook != "input" && hook != "prerouting"
	host, doubt := hook == "input" || hook == "output", fate.Named
	if hook == "input" {
		doubt = fate.Answers
	}
	has := func(a netip.Addr) bool { return family == "inet" || a.Is4() == (family == "ip") }
	drops := func(p fate.Packet, doubt fate.May) bool {
		p.Doubt = doubt
		return fate.Of(r.chain, r.base.Name, p) == fate.Dropped
	}
	var none netip.Prefix
	cut := map[bool]bool{} // IPv4 is true
	for _, n := range s.Nets {
		if !has(n.Addr()) {
			continue
		}
		surely := true
		for _, p := range s.Prefixes {
			from, to := packet(p, "", n, none), packet("", p, none, n)
			stopsFrom, stopsTo := in && drops(from, doubt), out && drops(to, doubt)
			b.From, b.To = b.From || stopsFrom, b.To || stopsTo
			surely = surely && (stopsFrom && drops(from, fate.Any) || stopsTo && drops(to, fate.Any))
		}
		before, known := cut[n.Addr().Is4()]
		cut[n.Addr().Is4()] = surely && (before || !known)
	}
	b.Pods4, b.Pods6 = !host && cut[true], !host && cut[false]
	for _, way := range s.Probe {
		p := packet(s.Prefixes[0]+"probe", s.Prefixes[0]+"probe", netip.PrefixFrom(way[0], way[0].BitLen()), netip.PrefixFrom(way[1], way[1].BitLen()))
		p.Is[fate.Protocol] = fate.Text([]byte{unix.IPPROTO_UDP})
		if !host && has(way[0]) && drops(p, doubt) {
			b.Probe4, b.Probe6 = b.Probe4 || way[0].Is4(), b.Probe6 || way[0].Is6()
		}
	}
	for _, t := range s.VXLAN {
		p := packet("", "", none, netip.PrefixFrom(t.Addr(), t.Addr().BitLen()))
		p.Is[fate.Protocol], p.Is[fate.DstPort] = fate.Text([]byte{unix.IPPROTO_UDP}), fate.Text(binary.BigEndian.AppendUint16(nil, t.Port()))
		p.New, p.Others = true, []fate.Bits{fate.Text("lo\x00")} // the source port differs for each inner connection
		for _, prefix := range s.Prefixes {
			p.Others = append(p.Others, fate.Text(prefix))
		}
		if hook == "input" && has(t.Addr()) && drops(p, fate.Few) {
			b.VXLANPort = t.Port()
		}
	}
	return b
}

// packet returns a packet of which no more is known. An interface is any with this prefix.
func packet(in, out string, src, dst netip.Prefix) fate.Packet {
	family := byte(unix.NFPROTO_IPV6)
	if src.Addr().Is4() || dst.Addr().Is4() {
		family = unix.NFPROTO_IPV4
	}
	return fate.Packet{Is: fate.Fields{
		fate.InName: fate.Text(in), fate.OutName: fate.Text(out), fate.Family: fate.Text([]byte{family}), fate.Src: fate.Prefix(src), fate.Dst: fate.Prefix(dst),
	}}
}
