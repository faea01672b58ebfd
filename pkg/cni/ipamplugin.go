// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/model"
)

// ipamAdd assigns addresses for another main plugin.
func (c *call) ipamAdd(ctx context.Context) (types.Result, error) {
	id := c.identity()
	if err := errors.Join(c.checkNames(), id.Check()); err != nil {
		return nil, err
	}
	if err := c.checkFamilies(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	if err := c.lockInterface(ctx, id.Handle); err != nil {
		return nil, err
	}
	killpoint.Step("start")
	subnets := addresses.Subnets{Conf: c.conf, Request: addresses.Request(c.conf, id, c.wanted(), c.started)}
	var choice ipam.Choice // the latest choice
	var entered bool
	c.undo.Push("etcd", func(ctx context.Context) error {
		if !entered || slices.ContainsFunc(choice.Addrs, func(a ipam.Assigned) bool { return a.Existing }) {
			return nil
		}
		return c.etcd.Remove(ctx, addresses.Removal{ID: id, Addresses: true, Undo: true}, nil)
	})
	_, err := c.etcd.Address(ctx, subnets.FirstRead(),
		func(v *model.View) (change model.Change, err error) {
			choice, change, err = subnets.Decide(v)
			return change, err
		},
		func(*model.View) error { entered = true; return nil })
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range choice.Addrs {
		addrs = append(addrs, a.Addr)
	}
	c.log = c.log.With("addresses", addrs)
	return subnets.Result(choice), nil
}

// ipamDel frees the addresses of one container interface, except those that an endpoint has.
func (c *call) ipamDel(ctx context.Context) error {
	id := c.identity()
	ctx, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	if err := c.lockInterface(ctx, id.Handle); err != nil {
		return err
	}
	killpoint.Step("start")
	return c.etcd.Remove(ctx, addresses.Removal{ID: id, Addresses: true}, func(_ *model.View, removed addresses.Removed) error {
		if !removed.Any {
			return nil
		}
		return c.checkName(ctx)
	})
}

// ipamCheck compares prevResult with the allocated addresses.
func (c *call) ipamCheck(ctx context.Context) error {
	id := c.identity()
	previous, err := protocol.PrevResult(c.conf, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	ranges := append(ipam.FirstReadRelease(id.Handle), model.KeyRange(model.ReadyKey{}))
	return c.etcd.Read(ctx, ranges, func(v *model.View) error {
		if err := addresses.CheckReady(v); err != nil {
			return err
		}
		held, err := heldAddrs(v, id, previous.Addrs)
		if err != nil {
			return err
		}
		// A main plugin may have added addresses of its own to the result, so prevResult may have more addresses than
		// are held, but not fewer.
		if len(held) == 0 {
			return differs("etcd has no address for handle %s", id.Handle)
		}
		for _, a := range held {
			if !slices.Contains(previous.Addrs, a) {
				return differs("handle %s holds %s, which prevResult does not have", id.Handle, a)
			}
		}
		return nil
	})
}
