// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"errors"
	"fmt"
	"strings"

	"github.com/calico-go/calico/pkg/nft/fate"
	"github.com/calico-go/calico/pkg/nft/nfnl"
)

// Block is a chain of a hook that drops packets from or to workload interfaces that begin a connection, but for those of some
// addresses, ports and the like. Of the host itself it is one that drops answers too: a host need not be open to workloads.
type Block struct {
	Family, Table, Chain string // as nft calls them
	Hook                 string
	From, To             bool
	// Pods says that no workload can send, or be sent anything: the chain isn't for packets of the host's own, and none of its
	// rules may accept those of some addresses.
	Pods     bool
	prefixes []string
}

// Name is the chain's for nft.
func (b Block) Name() string { return b.Family + " " + b.Table + " " + b.Chain }

// String says what it does, and how to have it let workloads' packets pass.
func (b Block) String() string {
	var what, mends []string
	for _, p := range b.prefixes {
		if b.From {
			what, mends = append(what, "from "+p+"*"), append(mends, fmt.Sprintf("nft 'insert rule %s iifname \"%s*\" accept'", b.Name(), p))
		}
		if b.To {
			what, mends = append(what, "to "+p+"*"), append(mends, fmt.Sprintf("nft 'insert rule %s oifname \"%s*\" accept'", b.Name(), p))
		}
	}
	if b.Table == "firewalld" { // which writes its table anew when it is reloaded
		mends = []string{"systemctl disable --now firewalld"}
	}
	return fmt.Sprintf("chain %s (hook %s) drops packets %s: run %s", b.Name(), b.Hook, strings.Join(what, " and "), strings.Join(mends, " && "))
}

// Blocks finds all there are in tables but our own, of family inet.
func (f *Forward) Blocks(own string, prefixes []string) (blocks []Block, err error) {
	for _, family := range []string{"ip", "ip6", "inet"} {
		found, err := []Block(nil), nfnl.ErrInterrupted
		for try := 0; try < nfnl.MaxTries && errors.Is(err, nfnl.ErrInterrupted); try++ {
			found, err = f.blocks(family, own, prefixes)
		}
		if err != nil {
			return nil, fmt.Errorf("look for what else drops workloads' packets: %w", err)
		}
		blocks = append(blocks, found...)
	}
	return blocks, nil
}

func (f *Forward) blocks(family, own string, prefixes []string) (blocks []Block, err error) {
	bases, err := f.conns[family].BaseChains()
	if err != nil {
		return nil, err
	}
	for _, base := range bases {
		if family == "inet" && base.Table == own {
			continue
		}
		_, chains, err := readFrom(f.conns[family], base)
		if err != nil {
			return nil, err
		}
		b := Block{Family: family, Table: base.Table, Chain: base.Name, Hook: base.Hook, prefixes: prefixes}
		host, doubt, surely := base.Hook == "input" || base.Hook == "output", fate.Named, 0
		if base.Hook == "input" {
			doubt = fate.Answers
		}
		drops := func(p fate.Packet) bool { return fate.Of(chains, base.Name, p) == fate.Dropped }
		for _, p := range prefixes {
			in, out := base.Hook != "output" && base.Hook != "postrouting", base.Hook != "input" && base.Hook != "prerouting"
			b.From = b.From || in && drops(fate.Packet{In: p, Doubt: doubt})
			b.To = b.To || out && drops(fate.Packet{Out: p, Doubt: doubt})
			if in && drops(fate.Packet{In: p, Doubt: fate.Any}) || out && drops(fate.Packet{Out: p, Doubt: fate.Any}) {
				surely++
			}
		}
		b.Pods = !host && surely == len(prefixes)
		if b.From || b.To {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}
