// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
)

func newShow(env *session.Env) *cobra.Command {
	var blocks, borrowed, configuration bool
	var ip, pool string
	cmd := &cobra.Command{
		Use: "show", Short: "Show pools and how full they are, or who has an address", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var addr netip.Addr
			var err error
			if ip != "" {
				if addr, err = parseAddr(ip); err != nil {
					return err
				}
			}
			snapshot, err := read(cmd, env)
			if err != nil {
				return err
			}
			u := usage.New(snapshot.Entries())
			switch {
			case ip != "":
				return showAddress(env, u, addr)
			case borrowed:
				return showBorrowed(env, u)
			case configuration:
				return showConfiguration(env, snapshot)
			}
			return showPools(env, u, pool, blocks)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&blocks, "show-blocks", false, "with the blocks of each pool, and whose they are")
	f.BoolVar(&borrowed, "show-borrowed", false, "the addresses that hosts took out of each other's blocks")
	f.BoolVar(&configuration, "show-configuration", false, "the settings of address management")
	f.StringVar(&ip, "ip", "", "who has this address")
	f.StringVar(&pool, "pool", "", "only the pool of this name or CIDR")
	return cmd
}

func showPools(env *session.Env, u *usage.Usage, only string, blocks bool) error {
	var rows [][]string
	for _, p := range u.Pools {
		cidr, name := p.CIDR.String(), p.Name
		if !p.CIDR.IsValid() {
			cidr = "(in no pool)"
		}
		if only != "" && !named(p, only) {
			continue
		}
		rows = append(rows, row("pool", cidr, p.Counts(), name))
		for _, b := range p.Blocks {
			if blocks {
				rows = append(rows, row("block", b.CIDR.String(), b.Counts(), b.Affinity))
			}
		}
	}
	if only != "" && len(rows) == 0 {
		return notFound(only)
	}
	return output.Table(env.Stdout, []string{"GROUPING", "CIDR", "TOTAL", "IN USE", "RESERVED", "FREE", "NAME OR NODE"}, rows)
}

// named reports whether text is a pool's name or CIDR.
func named(p usage.Pool, text string) bool {
	cidr := p.CIDR.String()
	return text == p.Name || text == cidr || text == strings.ReplaceAll(cidr, "/", "-")
}

func notFound(pool string) error {
	return &session.StatusError{Status: session.StatusNotFound, Err: fmt.Errorf("IPPool %s not found", pool)}
}

func row(grouping, cidr string, c usage.Counts, of string) []string {
	percent := new(big.Int).Div(new(big.Int).Mul(c.Free, big.NewInt(100)), c.Total)
	return []string{grouping, cidr, c.Total.String(), fmt.Sprint(c.InUse), c.Reserved.String(), fmt.Sprintf("%s (%s%%)", c.Free, percent), of}
}

func showBorrowed(env *session.Env, u *usage.Usage) error {
	var rows [][]string
	for _, a := range u.All() {
		if a.Borrowed() {
			rows = append(rows, []string{a.Addr.String(), a.Host(), a.Block.String(), a.Affinity, a.User})
		}
	}
	return output.Table(env.Stdout, []string{"IP", "TAKEN BY", "BLOCK", "NODE OF BLOCK", "USER"}, rows)
}

func showConfiguration(env *session.Env, snapshot model.Snapshot) error {
	c := model.DefaultIPAMConfig
	if e, ok := snapshot.Get(model.IPAMConfigKey{}); ok {
		if e.Err != nil {
			return fmt.Errorf("%s: %w", e.Path, e.Err)
		}
		c = e.Value.(model.IPAMConfig)
	}
	return output.Table(env.Stdout, []string{"PROPERTY", "VALUE"}, [][]string{
		{"strictAffinity", fmt.Sprint(c.StrictAffinity)}, {"autoAllocateBlocks", fmt.Sprint(c.AutoAllocateBlocks)},
	})
}

func showAddress(env *session.Env, u *usage.Usage, addr netip.Addr) error {
	for _, a := range u.All() {
		if a.Addr != addr {
			continue
		}
		rows := [][]string{
			{"block", a.Block.String()}, {"node of the block", a.Affinity}, {"handle", a.Handle}, {"used by", a.User},
		}
		if a.User == "" {
			rows[3][1] = "nothing that etcd knows of"
		}
		for _, name := range slices.Sorted(maps.Keys(a.Attributes)) {
			rows = append(rows, []string{name, a.Attributes[name]})
		}
		return output.Table(env.Stdout, []string{addr.String(), "allocated"}, rows)
	}
	text := addr.String() + " is not allocated"
	if u.Pool(addr) == nil {
		text = addr.String() + " is in no pool"
	}
	if user := u.User(addr); user != "" {
		text += ", and used by " + user
	}
	_, err := fmt.Fprintln(env.Stdout, text)
	return err
}
