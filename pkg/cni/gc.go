// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"

	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/gc"
	"github.com/calico-go/calico/pkg/cni/protocol"
)

// gc frees and deletes what this network holds on this node for containers that are not in the list of valid
// attachments.
func (c *call) gc(ctx context.Context) error {
	if c.conf.ValidAttachments == nil {
		return protocol.Failf(protocol.CodeConfig, "the container runtime must list the attachments that are to stay; an empty list is valid",
			"cni.dev/valid-attachments: missing")
	}
	etcd, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	if err := c.checkName(etcd); err != nil {
		return err
	}
	g := &gc.Collection{Conf: c.conf, Plugin: c.plugin, Etcd: c.etcd, Locks: addresses.NewLocks(c.env.RunDir), Log: c.log}
	plugin := c.delegate()
	if c.delegates() && c.conf.IPAM.Type != "" {
		g.Delegate = &plugin
	}
	n, err := g.Run(etcd)
	if g.Delegate != nil && plugin.Check() == nil {
		knows, asked := plugin.Knows(ctx, "1.1.0")
		if asked == nil && knows {
			asked = plugin.Verb(ctx, "GC")
		}
		err = errors.Join(err, asked)
	}
	c.log = c.log.With("collected", n)
	return err
}
