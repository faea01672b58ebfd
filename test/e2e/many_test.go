// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

func TestMany(t *testing.T) {
	const count = 50
	ctx := within(t, 8*time.Minute)
	c := newCluster(ctx, t, network{})
	pods := make([]*pod, count)
	var g errgroup.Group
	for i := range pods {
		g.Go(func() (err error) {
			pods[i], err = c.run(ctx, fmt.Sprintf("pod-%02d", i))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}

	owner := map[netip.Addr]string{}
	for _, p := range pods {
		for _, a := range p.addrs {
			if o, ok := owner[a]; ok {
				t.Errorf("%v is the address of %s and of %s", a, o, p.name)
			}
			owner[a] = p.name
		}
		c.reachable(ctx, p)
	}
	if len(owner) != 2*count {
		t.Errorf("%d addresses, want %d", len(owner), 2*count)
	}
	c.reachableFrom(ctx, pods[0], pods[count-1])

	for _, p := range pods {
		g.Go(func() error {
			if err := c.stopSandbox(ctx, p); err != nil {
				return err
			}
			return c.removeSandbox(ctx, p)
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		c.gone(ctx, p, 2)
	}
	c.nothingLeft(ctx)
}
