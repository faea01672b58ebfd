// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"os"

	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// del undoes an ADD, or whatever is left of it. The link is deleted before our own addresses are freed: an address must
// not be assigned again while this pod can still use it. Another IPAM plugin releases its addresses before that,
// because some need the link for it. The endpoint goes last: GC finds all the rest through it.
func (c *call) del(ctx context.Context) error {
	id := c.identity()
	c.log = c.log.With("endpoint", id.Key.Workload, "link", id.HostIf)
	etcd, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	if err := c.lockInterface(etcd, id.HostIf); err != nil {
		return err
	}
	killpoint.Step("start")
	// Connect while the kernel deletes the link.
	connecting := attach.Async(c.log, func() error {
		return c.etcd.Read(etcd, []model.Range{model.KeyRange(model.ReadyKey{})}, nil)
	})
	var given error
	if c.delegates() && c.conf.IPAM.Type != "" {
		given = c.delegate().Del(ctx, id)
	}
	// Addresses of our own go too: ipam.type may have changed since the ADD.
	r := addresses.Removal{ID: id, Addresses: true, Endpoint: true}
	unnamed, unlinked := c.unlink(&r)
	_ = connecting.Wait() // any error will recur below
	if given != nil || unlinked != nil {
		return errors.Join(given, unlinked)
	}
	err := c.etcd.Remove(etcd, r, func(v *model.View, removed addresses.Removed) error {
		if removed.Any && !r.Linked {
			if err := c.checkName(ctx); err != nil {
				return err
			}
		}
		for _, name := range removed.Links {
			l, err := link.Find(name)
			if err == nil && l.Alias == id.Alias {
				err = deleteLink(l)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return protocol.Fail(protocol.CodeKernel, err, "")
			}
		}
		if e, ok := v.Get(id.Key).Value.(model.WorkloadEndpoint); unnamed == nil || ok && e.ContainerID != id.Container && !removed.Endpoint {
			return nil // the interface has another owner by now
		}
		l := *unnamed
		unnamed = nil
		return deleteLink(l)
	})
	if err == nil {
		killpoint.Step("released")
	}
	return err
}

// unlink deletes the host's end, and with it the pod's, if it is this container's. It returns a link that doesn't say
// whose it is.
func (c *call) unlink(r *addresses.Removal) (unnamed *link.Link, err error) {
	l, err := link.Find(r.ID.HostIf)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, protocol.Fail(protocol.CodeKernel, err, "")
	case l.Alias == r.ID.Alias:
		r.Linked = true
		return nil, deleteLink(l)
	case l.IsUnnamed():
		return &l, nil
	}
	r.Elsewhere = r.ID.SameInterface(l.Alias)
	c.log.Info("leaving a link that is not this container's", "alias", l.Alias)
	return nil, nil
}

func deleteLink(l link.Link) error {
	killpoint.Step("before link deleted")
	if err := link.DeleteFound(l); err != nil {
		return protocol.Fail(protocol.CodeKernel, err, "try again")
	}
	killpoint.Step("link deleted")
	return nil
}
