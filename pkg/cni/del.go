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

// del undoes an ADD, whatever is left of it. The link goes before our own addresses: one must not be given to another
// while this pod can still use it. Another plugin takes its addresses back before that, some over the link.
// The endpoint goes last: it tells GC of all the rest.
func (c *call) del(ctx context.Context) error {
	id := c.identity()
	c.log = c.log.With("endpoint", id.Key.Workload, "link", id.HostIf)
	etcd, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	if err := c.lockInterface(etcd, id.HostIf); err != nil {
		return err
	}
	killpoint.Step("start")
	// The connection is made while the kernel deletes the link.
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
	_ = connecting.Wait() // what fails does so again
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
			return nil // the interface has an owner by now
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

// unlink removes the host's end, and with it the pod's, if it is this
// container's. A link that says nothing of whose it is, is returned.
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
