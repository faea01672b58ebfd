// SPDX-License-Identifier: Apache-2.0

// Package beside lets packets of workloads pass the FORWARD chains of iptables, which other programs create, and finds other chains that
// drop them: a packet must pass all chains of a hook, whatever ours say.
package beside

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/nfnl"
	"github.com/calico-go/calico/pkg/nft/table"
)

// Mode says where in a chain our rules are put.
type Mode string

// The modes, as Calico's users know them.
const (
	Insert Mode = "Insert" // before all others, and again if others come to precede them and drop
	Append Mode = "Append" // after all others
	Off    Mode = "Off"    // nowhere
)

// Desired is what should pass. Its zero value is Off.
type Desired struct {
	Prefixes []string // of workload interfaces
	Mode     Mode
}

// Comment marks our rules.
const Comment = "calico: workloads, whose policy is in table inet calico"

// The chain that iptables creates in nftables, in both families.
const (
	tableName = "filter"
	chainName = "FORWARD"
)

// Forward accesses the FORWARD chains of IPv4 and IPv6, and the chains of all hooks.
type Forward struct {
	conns map[string]*nfnl.Conn // by family, as nft calls it
	mode  Mode                  // as last applied
}

// Open opens the nftables of the calling thread's network namespace.
func Open() (*Forward, error) {
	f := &Forward{conns: map[string]*nfnl.Conn{}}
	for name, family := range map[string]byte{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6, "inet": unix.NFPROTO_INET} {
		c, err := nfnl.OpenFamily(tableName, family)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.conns[name] = c
	}
	return f, nil
}

// Close closes the sockets. The rules stay.
func (f *Forward) Close() {
	for _, c := range f.conns {
		c.Close()
	}
}

// Generation grows with every change of any ruleset.
func (f *Forward) Generation() (uint32, error) { return f.conns["ip"].Generation() }

// Change is what an Apply did to a chain.
type Change struct {
	Chain          string
	Added, Removed int // our rules
}

// Apply puts our rules where they are needed, and nowhere else. A chain needs them if it would drop all packets from or to interfaces with
// a prefix.
func (f *Forward) Apply(d Desired) (changes []Change, err error) {
	for _, family := range []string{"ip", "ip6"} {
		c, applied := Change{Chain: fmt.Sprintf("%s %s %s", family, tableName, chainName)}, error(nil)
		for range nfnl.MaxTries {
			if c.Added, c.Removed, applied = f.apply(f.conns[family], d); !errors.Is(applied, nfnl.ErrStale) && !errors.Is(applied, nfnl.ErrInterrupted) {
				break
			}
		}
		if applied != nil {
			err = errors.Join(err, fmt.Errorf("let workloads' packets pass chain %s: %w", c.Chain, applied))
		} else if c.Added+c.Removed > 0 {
			changes = append(changes, c)
		}
	}
	if err == nil {
		f.mode = d.Mode
	}
	return changes, err
}

func (f *Forward) apply(conn *nfnl.Conn, d Desired) (added, removed int, err error) {
	generation, err := conn.Generation()
	if err != nil {
		return 0, 0, err
	}
	bases, err := conn.BaseChains()
	at := slices.IndexFunc(bases, func(b nfnl.BaseChain) bool {
		return b.Table == tableName && b.Name == chainName && b.Hook == "forward"
	})
	if err != nil || at < 0 {
		return 0, 0, err
	}
	rules, err := conn.ReadForeign(tableName, chainName)
	if err != nil {
		return 0, 0, err
	}
	read := newReader(conn, bases[at])
	var own []nfnl.ForeignRule
	first := uint64(0) // the handle of the first rule of others
	for _, r := range rules {
		if r.Comment == Comment {
			own = append(own, r)
		} else if first == 0 {
			first = r.Handle
		}
	}
	base := read.add(chainName, rules)
	read.add(chainName, slices.DeleteFunc(slices.Clone(rules), func(r nfnl.ForeignRule) bool { return r.Comment == Comment }))
	var want []*nfnl.Rule
	if (d.Mode == Insert || d.Mode == Append) && read.drops(d.Prefixes) {
		if want, err = encode(d.Prefixes); err != nil {
			return 0, 0, err
		}
	}
	read.chains[chainName] = base
	same := slices.EqualFunc(own, want, func(o nfnl.ForeignRule, w *nfnl.Rule) bool { return o.Hash == w.Hash })
	if same && (len(want) == 0 || d.Mode == f.mode && (d.Mode == Append || !read.drops(d.Prefixes))) || read.err != nil {
		return 0, 0, read.err
	}
	if d.Mode == Append {
		first = 0
	}
	b := conn.NewBatch()
	for _, r := range own {
		b.DeleteRule(chainName, r.Handle)
	}
	for _, r := range want {
		b.AddRule(chainName, r, first)
	}
	_, err = b.Commit(generation)
	return len(want), len(own), err
}

// reader reads the chains of a table that packets reach from one base chain, each once.
type reader struct {
	conn   *nfnl.Conn
	base   nfnl.BaseChain
	chains map[string]fate.Chain
	err    error // the first one; judgments after it mean nothing
}

func newReader(conn *nfnl.Conn, base nfnl.BaseChain) *reader {
	return &reader{conn: conn, base: base, chains: map[string]fate.Chain{}}
}

func (r *reader) chain(name string) fate.Chain {
	c, known := r.chains[name]
	if !known && r.err == nil {
		var rules []nfnl.ForeignRule
		rules, r.err = r.conn.ReadForeign(r.base.Table, name)
		c = r.add(name, rules)
	}
	return c
}

func (r *reader) add(name string, rules []nfnl.ForeignRule) fate.Chain {
	c := fate.Chain{Drops: name == r.base.Name && r.base.Drops}
	for _, rule := range rules {
		c.Rules = append(c.Rules, rule.Rule)
	}
	r.chains[name] = c
	return c
}

// drops reports whether the chain drops all packets from or to workloads.
func (r *reader) drops(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		from, to := fate.Packet{Is: fate.Fields{fate.InName: fate.Text(p)}}, fate.Packet{Is: fate.Fields{fate.OutName: fate.Text(p)}}
		return fate.Of(r.chain, r.base.Name, from) == fate.Dropped || fate.Of(r.chain, r.base.Name, to) == fate.Dropped
	})
}

// encode returns our rules, in a form that iptables lists like its own.
func encode(prefixes []string) (rules []*nfnl.Rule, err error) {
	for _, p := range prefixes {
		for _, f := range []table.Field{{Text: "iifname", Type: table.TypeInterface, From: table.FromInName}, {Text: "oifname", Type: table.TypeInterface, From: table.FromOutName}} {
			r, err := nfnl.EncodeRule(table.Rule{Comment: Comment, Do: []table.Statement{
				table.HasPrefix{Field: f, Prefix: p}, table.Count{}, table.Verdict{Kind: table.Accept},
			}})
			if err != nil {
				return nil, err
			}
			rules = append(rules, r)
		}
	}
	return rules, nil
}
