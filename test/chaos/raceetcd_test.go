// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"

	"github.com/calico-go/calico/test/lab"
)

// raceAdds is how many ADDs there are in all.
const raceAdds = raceHosts * addsPerHost

func (r *race) countAdd() { r.added.Add(1) }

// killLeaders kills the member of etcd that leads while the hosts are at work,
// starts it again a while later, and does all that once more.
func (r *race) killLeaders() {
	for i := range leaderKills {
		before := int64(raceAdds * (2*i + 1) / (2*leaderKills + 1))
		if err := r.killLeader(before, before+raceAdds/(4*leaderKills+2)); err != nil {
			r.wrong("kill etcd's leader: %v", err)
			return
		}
	}
}

// killLeader does it after so many ADDs, and starts it again after so many.
func (r *race) killLeader(killAt, startAt int64) error {
	if err := r.reached(killAt); err != nil {
		return err
	}
	leader, err := r.leaderOtherThan(0)
	if err != nil {
		return err
	}
	if err := r.lab.KillEtcd(leader); err != nil {
		return err
	}
	at := r.added.Load()
	next, err := r.leaderOtherThan(leader)
	if err != nil {
		return err
	}
	if err := r.reached(startAt); err != nil {
		return err
	}
	if err := r.lab.StartEtcd(r.ctx, leader); err != nil {
		return err
	}
	r.Logf("etcd member %d was killed after %d ADDs; member %d leads; the killed one is back after %d ADDs", leader, at, next, r.added.Load())
	return nil
}

// reached waits until so many ADDs are done.
func (r *race) reached(adds int64) error {
	return lab.Until(r.ctx, fmt.Sprintf("%d ADDs", adds), func() error {
		if n := r.added.Load(); n < adds {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
}

func (r *race) leaderOtherThan(old int) (leader int, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, lookPatience)
	defer cancel()
	err = lab.Until(ctx, "a leader", func() (err error) {
		if leader, err = r.lab.EtcdLeader(ctx); err == nil && leader == old {
			return fmt.Errorf("member %d still leads", old)
		}
		return err
	})
	return leader, err
}
