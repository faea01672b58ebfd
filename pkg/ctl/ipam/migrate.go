// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// mostOps is how many operations etcd accepts in one transaction by default.
const mostOps = 128

// rounds is how often a pool's blocks are checked again for one that a host claimed while the block size changed.
const rounds = 5

// migration changes the size of a pool's blocks.
type migration struct {
	env  *session.Env
	pool netip.Prefix
	bits int
}

func newMigrate(env *session.Env) *cobra.Command {
	var pool string
	var bits int
	cmd := &cobra.Command{
		Use: "migrate --pool=NAME --block-size=LENGTH", Short: "Change the size of a pool's blocks", Args: cobra.NoArgs,
		Long: `Change the size of a pool's blocks. Pods keep their addresses: blocks that are too large are divided, those that are too small joined,
each in one transaction. A joined block is of the node that has most of its addresses; the others keep theirs as borrowed ones.
Killed, it goes on when it is given again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pool == "" || bits == 0 {
				return session.Usagef("want --pool and --block-size")
			}
			snapshot, err := read(cmd, env)
			if err != nil {
				return err
			}
			pools := usage.New(snapshot.Entries()).Pools
			i := slices.IndexFunc(pools, func(p usage.Pool) bool { // by its exact name: this changes the pool
				name := model.Pool{CIDR: p.CIDR, Meta: model.Meta{Name: p.Name}}.ResourceName()
				return p.CIDR.IsValid() && (name == pool || p.CIDR.String() == pool)
			})
			if i < 0 {
				return notFound(pool)
			}
			m := migration{env, pools[i].CIDR, bits}
			units, err := m.units(snapshot)
			if err != nil {
				return err
			}
			if _, err := m.resized(snapshot.Get(model.PoolKey{CIDR: m.pool})); err != nil {
				return session.Usagef("%w", err)
			}
			if env.DryRun {
				_, err := fmt.Fprintf(env.Stdout, "pool %s: %s would be replaced\n", m.pool, resource.Count(count(units), "block"))
				return err
			}
			return m.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&pool, "pool", "", "name or CIDR of the pool")
	f.IntVar(&bits, "block-size", 0, "length of the prefix of a block, as 28")
	f.BoolVar(&env.DryRun, "dry-run", false, "say how many blocks would be replaced, and do nothing")
	return cmd
}

// run changes the pool first, so that no more blocks of another size are made, and then its blocks.
func (m migration) run(ctx context.Context) error {
	key := model.PoolKey{CIDR: m.pool}
	err := m.env.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (model.Change, error) {
		e := v.Get(key)
		p, err := m.resized(e, e.Exists())
		if was, _ := e.Value.(model.Pool); err != nil || was.BlockSize == m.bits {
			return model.Change{}, err
		}
		return model.Change{Compares: []model.Compare{{Key: key, Revision: e.Revision}}, Puts: []model.Put{{Key: key, Value: p}}}, nil
	})
	if err != nil {
		return err
	}
	replaced := 0
	for range rounds {
		snapshot, err := m.env.Read(ctx, usage.Ranges()...)
		if err != nil {
			return err
		}
		units, err := m.units(snapshot)
		if err != nil {
			return err
		}
		if len(units) == 0 {
			_, err := fmt.Fprintf(m.env.Stdout, "pool %s has blocks of /%d: %s replaced\n", m.pool, m.bits, resource.Count(replaced, "block"))
			return err
		}
		for _, unit := range slices.SortedFunc(maps.Keys(units), netip.Prefix.Compare) {
			n := 0
			err := m.env.Transact(ctx, ipam.FirstReadGiveBack(unit), func(v *model.View) (change model.Change, err error) {
				p := ipam.NewPlan(v)
				n, err = p.Resize(units[unit], m.bits)
				return p.Change(), err
			})
			if err != nil {
				return fmt.Errorf("%s: %w: give the command again to go on", unit, err)
			}
			replaced += n
			m.env.Progress("%s replaced", resource.Count(replaced, "block"))
		}
	}
	return errors.New("hosts make blocks of the former size again and again: do all of them run this version?")
}

// units returns the blocks of the wrong size, grouped by the block of the larger of both sizes that contains them.
func (m migration) units(snapshot model.Snapshot) (map[netip.Prefix][]netip.Prefix, error) {
	units, ops := map[netip.Prefix][]netip.Prefix{}, map[netip.Prefix]int{}
	for _, p := range usage.New(snapshot.Entries()).Pools {
		for _, b := range p.Blocks {
			if p.CIDR != m.pool || b.CIDR.Bits() == m.bits {
				continue
			}
			unit := netip.PrefixFrom(b.CIDR.Addr(), min(b.CIDR.Bits(), m.bits)).Masked()
			units[unit] = append(units[unit], b.CIDR)
			// Each block, its affinity, and each handle are written.
			ops[unit] += 2 + len(b.Attributes) + 2*min(b.InUse(), 1<<max(0, min(m.bits-b.CIDR.Bits(), 16)))
			if ops[unit] > mostOps {
				return nil, fmt.Errorf("block %s has more handles than etcd takes in one transaction: choose a size nearer to %d", b.CIDR, b.CIDR.Bits())
			}
		}
	}
	return units, nil
}

func count(units map[netip.Prefix][]netip.Prefix) (n int) {
	for _, blocks := range units {
		n += len(blocks)
	}
	return n
}

// resized returns the pool with the new block size, if that is valid.
func (m migration) resized(e model.Entry, exists bool) (model.Pool, error) {
	p, ok := e.Value.(model.Pool)
	switch {
	case !exists:
		return p, fmt.Errorf("pool %s is gone", m.pool)
	case e.Err != nil || !ok:
		return p, fmt.Errorf("pool %s can't be read: %w", m.pool, e.Err)
	}
	p.BlockSize = m.bits
	data, err := model.FormatValue(p)
	if err == nil {
		_, err = model.ParseValue(e.Key, data)
	}
	return p, err
}
