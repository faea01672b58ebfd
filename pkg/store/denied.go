// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// denied names the first operation that the user has no permission for, which etcd's error doesn't say. It puts each
// one alone into the branch of a transaction that is not taken: etcd checks the permissions of both branches but does
// nothing. If it finds none it returns reason. Both come with advice.
func (c *Client) denied(ctx context.Context, client *clientv3.Client, ops []clientv3.Op, reason string) string {
	for _, op := range ops {
		_, err := client.Txn(ctx).Else(op).Commit()
		switch {
		case err == nil:
		case errors.Is(err, rpctypes.ErrPermissionDenied):
			return c.deniedText(op)
		default:
			return reason + c.advice() // the others would take as long, or fail as well
		}
	}
	return reason + c.advice()
}

// advice says what to do about a missing permission.
func (c *Client) advice() string {
	if c.tls != nil {
		if pair, err := c.tls.loadPair(); err == nil && strings.HasPrefix(pair.Leaf.Subject.CommonName, "node:") {
			return ": a node writes what is its own host's alone, and nothing once it is revoked or its Node is another one: see docs/security.md"
		}
	}
	return ": give a role of the user the permission: etcdctl role grant-permission ROLE --prefix=true readwrite " + model.Root
}

func (c *Client) deniedText(op clientv3.Op) string {
	who := "the user " + c.cfg.Username
	if c.cfg.Username == "" {
		who = "the user of this client certificate"
	}
	what := " may not read "
	switch {
	case !op.IsGet():
		what = " may not write "
	case len(op.RangeBytes()) > 0:
		what += "all that begins with "
	}
	return who + what + string(op.KeyBytes()) + c.advice()
}
