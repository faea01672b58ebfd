// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// fence makes sure that an ADD's commit of unknown outcome has taken effect by
// now or never will. Without it etcd may allocate the addresses after the undo
// and DEL have looked and found nothing: a member that hung passes on what it
// had in its queue when it goes on.
func (s *session) fence(ctx context.Context, change model.Change) error {
	key, ok := ipam.FenceKey(change)
	if !ok {
		return nil
	}
	for attempt := 0; ; attempt++ {
		v := newView()
		if err := s.read(ctx, v, []ipam.Want{{Key: key}}); err != nil {
			return err
		}
		fence := ipam.Fence(change, v.get(key), s.started)
		if fence.Empty() {
			return nil
		}
		_, err := s.client.Commit(ctx, fence)
		if _, conflict := errors.AsType[*store.ConflictError](err); conflict {
			return nil
		}
		if !errors.Is(err, store.ErrUnknownOutcome) {
			return err
		}
		// Its answer was lost as well: what is there now tells.
		if store.Pause(ctx, attempt) != nil {
			return err
		}
	}
}
