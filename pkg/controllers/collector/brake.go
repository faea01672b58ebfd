// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/model"
)

// stop blocks all passes, including those of the next leader, until a person resumes them.
func (c *Collector) stop(ctx context.Context, e garbage.Excess) error {
	key := model.GarbageBrakeKey{}
	brake := model.GarbageBrake{Time: c.Now().UTC().Truncate(time.Second), Reason: e.Reason, Hosts: e.Hosts, Addresses: e.Addrs}
	_, err := c.Etcd.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (model.Change, error) {
		return model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: key, Value: brake}}}, nil
	})
	if err != nil {
		return fmt.Errorf("stop garbage collection: %w", err)
	}
	c.Logger.Error("garbage collection stops: see what is gone, and resume it by calico-controllers -gc-resume", "reason", e.Reason)
	return nil
}

// release removes the brake once everything that a person allowed is done.
func (c *Collector) release(ctx context.Context) error {
	key := model.GarbageBrakeKey{}
	_, err := c.Etcd.Transact(ctx, []model.Range{model.KeyRange(key)}, func(v *model.View) (model.Change, error) {
		if b, ok := v.Get(key).Value.(model.GarbageBrake); !ok || !b.Resumed {
			return model.Change{}, nil
		}
		return model.Change{Compares: []model.Compare{v.Compare(key)}, Deletes: []model.Key{key}}, nil
	})
	if err != nil {
		return fmt.Errorf("lift the brake of garbage collection: %w", err)
	}
	return nil
}

// Resume marks the brake as resumed and returns it: the leader's next pass does what made it stop, up to the amounts named in
// the brake. etcd need not be fenced. The error is garbage.ErrNotBlocked if there is no brake.
func Resume(ctx context.Context, etcd Etcd) (model.GarbageBrake, error) {
	var brake model.GarbageBrake
	_, err := etcd.Transact(ctx, []model.Range{model.KeyRange(model.GarbageBrakeKey{})}, func(v *model.View) (change model.Change, err error) {
		brake, change, err = garbage.Resume(v)
		return change, err
	})
	return brake, err
}
