// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store/wire"
)

// denied names the first of the operations that the user has no permission for, which etcd
// doesn't say. Each goes alone into that branch of a transaction which is not taken: etcd
// checks the permissions of both, and does nothing. Where none is found it returns reason.
func (c *Client) denied(ctx context.Context, conn grpc.ClientConnInterface, ops []wire.Op, reason string) string {
	for _, op := range ops {
		_, err := wire.Txn(ctx, conn, &wire.TxnRequest{Failure: []wire.Op{op}})
		switch {
		case err == nil:
		case errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied):
			return c.deniedText(op)
		default:
			return reason // the rest would take as long, or fail as well
		}
	}
	return reason
}

func (c *Client) deniedText(op wire.Op) string {
	who := "the user " + c.username
	if c.username == "" {
		who = "the user of this client certificate"
	}
	what := "may not "
	switch {
	case op.Put != nil:
		what += "write " + op.Put.Key
	case op.Delete != nil:
		what += "write " + op.Delete.Key
	case op.Range.RangeEnd != "":
		what += "read all that begins with " + op.Range.Key
	default:
		what += "read " + op.Range.Key
	}
	return who + " " + what + ": give a role of it the permission: etcdctl role grant-permission ROLE --prefix=true readwrite " + model.Root
}

// denied does so for the prefixes of a watch.
func (w *watch) denied(ctx context.Context, m *member, ring int, reason string) string {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	conn, err := m.connect(ctx, ring > 1)
	if err != nil {
		return reason
	}
	ctx, _, _, err = w.c.authenticate(ctx, m, conn, false)
	if err != nil {
		return reason
	}
	ops := make([]wire.Op, len(w.prefixes))
	for i, p := range w.prefixes {
		ops[i].Range = &wire.RangeRequest{Key: p, RangeEnd: prefixEnd(p)}
	}
	return w.c.denied(ctx, conn, ops, reason)
}
