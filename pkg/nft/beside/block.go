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

// Search is of what packets Blocks looks for chains that drop them.
type Search struct {
	Own      string           // table, of family inet
	Prefixes []string         // of workload interfaces
	Nets     []netip.Prefix   // workloads' addresses are in them; those of a family of which no more is known in 0.0.0.0/0 or ::/0
	Probe    [][2]netip.Addr  // from where and to where the path of workloads' packets is tried
	VXLAN    []netip.AddrPort // where the host takes other hosts' packets for workloads
}

// Block is a chain of a hook that drops packets from or to workload interfaces that begin a connection, but for those of some
// ports and the like. Of the host itself it is one that drops answers too: a host need not be open to workloads.
type Block struct {
	Family, Table, Chain string // as nft calls them
	Hook                 string
	From, To             bool
	// Pods4 and Pods6 say that no workload can send, or be sent anything: the chain isn't for packets of the host's own, and none
	// of its rules may accept those of some addresses.
	Pods4, Pods6 bool
	// Probe4 and Probe6 say that it drops packets of those that try the path.
	Probe4, Probe6 bool
	VXLANPort      uint16   // where nothing comes in from other hosts; 0 = it may
	Prefixes       []string // of workload interfaces
}

// Name is the chain's for nft, which takes no name that is quoted here.
func (b Block) Name() string { return b.Family + " " + word(b.Table) + " " + word(b.Chain) }

// word quotes a name that nft, and a shell, don't take for one word: whoever makes a chain calls it whatever he likes.
func word(name string) string {
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./") != "" {
		return strconv.QuoteToASCII(name)
	}
	return name
}

// insert is the command that has it let pass what a rule is for.
func (b Block) insert(rule string) string {
	if strings.Contains(b.Name(), `"`) {
		return "nft list ruleset, and take away what made it: no command can name the chain"
	}
	return fmt.Sprintf("nft 'insert rule %s %s'", b.Name(), rule)
}

// String says what it does, and how to have it let workloads' packets pass.
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
	if b.Table == "firewalld" { // which writes its table anew when it is reloaded
		note, mends = " (without firewalld the host's own ports are open to everybody)", []string{"systemctl disable --now firewalld"}
	}
	return fmt.Sprintf("chain %s (hook %s) drops packets %s%s: run %s", b.Name(), b.Hook, strings.Join(what, " and "), note, strings.Join(slices.Compact(mends), " && "))
}

// OnlyProbe says whether it drops packets that try the path of a family, and none of workloads.
func (b Block) OnlyProbe(v4 bool) bool {
	return !b.From && !b.To && (v4 && b.Probe4 || !v4 && b.Probe6)
}

// OfProbe says what OnlyProbe does, and how to have the path tried all the same.
func (b Block) OfProbe() string {
	name := "iifname"
	if b.Hook == "postrouting" {
		name = "oifname"
	}
	return fmt.Sprintf("chain %s (hook %s) drops it for its addresses, which no workload has: run %s", b.Name(), b.Hook, b.insert(fmt.Sprintf("%s \"%sprobe*\" accept", name, b.Prefixes[0])))
}

// Blocks finds all there are in tables but our own.
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
	cut := map[bool]bool{} // workloads of IPv4, or not
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
		p.New, p.Others = true, []fate.Bits{fate.Text("lo\x00")} // the port that it comes from is another for each connection within
		for _, prefix := range s.Prefixes {
			p.Others = append(p.Others, fate.Text(prefix))
		}
		if hook == "input" && has(t.Addr()) && drops(p, fate.Few) {
			b.VXLANPort = t.Port()
		}
	}
	return b
}

// packet is one of which no more is known than that. An interface is one with such a name.
func packet(in, out string, src, dst netip.Prefix) fate.Packet {
	family := byte(unix.NFPROTO_IPV6)
	if src.Addr().Is4() || dst.Addr().Is4() {
		family = unix.NFPROTO_IPV4
	}
	return fate.Packet{Is: fate.Fields{
		fate.InName: fate.Text(in), fate.OutName: fate.Text(out), fate.Family: fate.Text([]byte{family}), fate.Src: fate.Prefix(src), fate.Dst: fate.Prefix(dst),
	}}
}
