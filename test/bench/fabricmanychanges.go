// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/eventually"
	"github.com/calico-go/calico/test/lab"
)

// routes waits until a host's kernel has so many routes to blocks.
func (m *many) routes(ctx context.Context, h *lab.Host, want int) error {
	ctx, cancel := context.WithTimeout(ctx, manyPatience)
	defer cancel()
	return eventually.Wait(ctx, "routes on host "+h.Name(), func() error {
		n, err := countRoutes(h)
		// A host has one or two of its own blocks: that of the tunnel's address.
		if err == nil && (n < want || n > want+4) {
			err = fmt.Errorf("%d of %d routes", n, want)
		}
		return err
	})
}

func countRoutes(h *lab.Host) (n int, err error) {
	err = h.Do(func() error {
		filter := &netlink.Route{Protocol: agentProtocol, Table: unix.RT_TABLE_MAIN}
		return netlink.RouteListFilteredIter(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
			if ones, _ := r.Dst.Mask.Size(); ones == 26 {
				n++
			}
			return true
		})
	})
	return n, err
}

// changes adds one block more and removes it, again and again.
func (m *many) changes(ctx context.Context, pid int) (c manyCost, err error) {
	ns, err := netns.GetFromPath(m.host.Namespace().Path())
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	table, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return c, err
	}
	defer table.Close()
	before, err := cpuOf(pid)
	if err != nil {
		return c, err
	}
	for i := range manyChanges {
		n := otherHosts*blocksOfHost + i
		cidr, _ := m.block(n)
		cpu := before
		for _, there := range []bool{true, false} {
			var change model.Change
			m.put(&change, n, there)
			begin := time.Now()
			if err := errors.Join(m.commit(ctx, change), m.tell(n, there)); err != nil {
				return c, err
			}
			if err := becomes(ctx, table, cidr, there); err != nil {
				return c, err
			}
			took := time.Since(begin)
			if there {
				c.add = append(c.add, took)
			} else {
				c.remove = append(c.remove, took)
			}
		}
		if before, err = cpuOf(pid); err != nil {
			return c, err
		}
		c.cpu = append(c.cpu, before-cpu)
	}
	return c, nil
}

// becomes waits until the kernel's table has a route to cidr, or none.
func becomes(ctx context.Context, table *netlink.Handle, cidr netip.Prefix, there bool) error {
	limit := time.Now().Add(manyPatience)
	for ctx.Err() == nil && time.Now().Before(limit) {
		found, err := table.RouteGetWithOptions(cidr.Addr().AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		if err != nil {
			return fmt.Errorf("look up %s: %w", cidr, err)
		}
		if there == slices.ContainsFunc(found, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.String() == cidr.String() }) {
			return nil
		}
		if err := wait(ctx, lookEvery); err != nil {
			return err
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the route to %s: no change in %v (there: %v)", cidr, manyPatience, there))
}
