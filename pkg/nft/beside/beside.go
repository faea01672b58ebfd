// SPDX-License-Identifier: Apache-2.0

// Package beside keeps packets of workloads passing the FORWARD chains of iptables, which others made, and finds other chains
// that drop them: a packet must pass all chains of a hook, whatever ours say.
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
	Insert Mode = "Insert" // before all others, and again where others came to stand before them and drop
	Append Mode = "Append" // after all others
	Off    Mode = "Off"    // nowhere
)

// Desired is what is to pass. Its zero value is Off.
type Desired struct {
	Prefixes []string // of workload interfaces
	Mode     Mode
}

// Comment is on each rule of ours, by which it is known again.
const Comment = "calico: workloads, whose policy is in table inet calico"

// What iptables makes in nftables, in both families.
const (
	tableName = "filter"
	chainName = "FORWARD"
)

// Forward are the FORWARD chains of IPv4 and IPv6, beside the chains of all hooks.
type Forward struct {
	conns map[string]*nfnl.Conn // by family, as nft calls it
	mode  Mode                  // as it was applied
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
	Added, Removed int // rules of ours
}

// Apply has our rules where they are needed, and nowhere else. It is needed in a chain that would drop all packets from or to
// interfaces of a prefix.
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
	rules, chains, err := read(conn)
	if err != nil {
		return 0, 0, err
	}
	var own []nfnl.ForeignRule
	first := uint64(0) // the handle of the first rule of others
	for _, r := range rules {
		if r.Comment == Comment {
			own = append(own, r)
		} else if first == 0 {
			first = r.Handle
		}
	}
	base := chains[chainName]
	others := base
	others.Rules = slices.DeleteFunc(slices.Clone(base.Rules), func(r fate.Rule) bool { return r.Comment == Comment })
	chains[chainName] = others
	var want []*nfnl.Rule
	if (d.Mode == Insert || d.Mode == Append) && drops(chains, d.Prefixes) {
		if want, err = encode(d.Prefixes); err != nil {
			return 0, 0, err
		}
	}
	chains[chainName] = base
	same := slices.EqualFunc(own, want, func(o nfnl.ForeignRule, w *nfnl.Rule) bool { return o.Hash == w.Hash })
	if same && (len(want) == 0 || d.Mode == f.mode && (d.Mode == Append || !drops(chains, d.Prefixes))) {
		return 0, 0, nil
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

// read reads FORWARD and the chains that all packets of an interface may get to from it; nothing where it isn't there.
func read(conn *nfnl.Conn) (rules []nfnl.ForeignRule, chains map[string]fate.Chain, err error) {
	bases, err := conn.BaseChains()
	for _, base := range bases {
		if base.Table == tableName && base.Name == chainName && base.Hook == "forward" {
			return readFrom(conn, base)
		}
	}
	return nil, map[string]fate.Chain{}, err
}

// readFrom reads a chain of a hook and those that all packets of an interface may get to from it. The rules are the first one's.
func readFrom(conn *nfnl.Conn, base nfnl.BaseChain) (rules []nfnl.ForeignRule, chains map[string]fate.Chain, err error) {
	chains = map[string]fate.Chain{}
	for next := []string{base.Name}; len(next) > 0; next = next[1:] {
		if _, known := chains[next[0]]; known {
			continue
		}
		list, err := conn.ReadForeign(base.Table, next[0])
		if err != nil {
			return nil, nil, err
		}
		c := fate.Chain{}
		for _, r := range list {
			c.Rules = append(c.Rules, r.Rule)
			if r.Target != "" && !r.Conditional {
				next = append(next, r.Target)
			}
		}
		if next[0] == base.Name {
			c.Drops, rules = base.Drops, list
		}
		chains[next[0]] = c
	}
	return rules, chains, nil
}

// drops says whether the chain drops all packets from or to workloads.
func drops(chains map[string]fate.Chain, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return fate.Of(chains, chainName, fate.Packet{In: p}) == fate.Dropped || fate.Of(chains, chainName, fate.Packet{Out: p}) == fate.Dropped
	})
}

// encode makes our rules, which iptables lists as it does its own.
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
