// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

const raceMembers = 3

func (r *race) countAdd() { r.added.Add(1) }

// killLeaders kills the member of etcd that leads while the hosts are at work,
// starts it again a while later, and does all that once more. The second one
// hangs before it dies: whoever has sent it a commit by then doesn't know what
// became of that.
func (r *race) killLeaders() {
	raceAdds := raceHosts * addsPerHost
	for i := range leaderKills {
		killAt := int64(raceAdds * (2*i + 1) / (2*leaderKills + 1))
		if err := r.killLeader(i%2 == 1, killAt, killAt+int64(raceAdds/(4*leaderKills+2))); err != nil {
			r.wrong("kill etcd's leader: %v", err)
			return
		}
	}
}

// killLeader does it after so many ADDs, and starts it again after so many.
func (r *race) killLeader(hangs bool, killAt, startAt int64) error {
	if err := r.reached(killAt); err != nil {
		return err
	}
	leader, err := r.leaderOtherThan(0)
	if err != nil {
		return err
	}
	at, what := r.added.Load(), "killed"
	if hangs {
		what = "stopped in its tracks, then killed,"
		if err := r.lab.Members().Pause(leader); err != nil {
			return err
		}
		if _, err := r.leaderOtherThan(leader); err != nil {
			return err
		}
	}
	if err := r.lab.Members().Kill(leader); err != nil {
		return err
	}
	next, err := r.leaderOtherThan(leader)
	if err != nil {
		return err
	}
	if err := r.reached(startAt); err != nil {
		return err
	}
	if err := r.lab.Members().Start(r.ctx, leader); err != nil {
		return err
	}
	r.Logf("etcd member %d was %s after %d ADDs; member %d leads; it is back after %d ADDs", leader, what, at, next, r.added.Load())
	return nil
}

// reached waits until so many ADDs are done.
func (r *race) reached(adds int64) error {
	return eventually.Wait(r.ctx, fmt.Sprintf("%d ADDs", adds), func() error {
		if n := r.added.Load(); n < adds {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
}

// leaderOtherThan waits until a member leads that isn't the old one, without
// asking that.
func (r *race) leaderOtherThan(old int) (leader int, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, lookPatience)
	defer cancel()
	err = eventually.Wait(ctx, "a leader", func() error {
		var errs []error
		for i := 1; i <= raceMembers; i++ {
			if i == old {
				continue
			}
			s, err := r.lab.Members().Status(ctx, i)
			if err == nil && s.Leader == s.ID {
				leader = i
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(append(errs, errors.New("no member leads"))...)
	})
	return leader, err
}
