// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Change is a change of what the kernel holds.
type Change struct {
	What     string     // "add route to 10.0.0.1"
	Requests []*Message // in order
	Late     bool       // takes away: after all that adds
	Err      error      // why it couldn't be made
}

// CarryOut has the kernel make the changes. What it refuses stands in each; the
// error is the socket's.
func (s *Socket) CarryOut(changes []*Change) error {
	var requests []*Message
	for _, c := range changes {
		requests = append(requests, c.Requests...)
	}
	answers, err := s.Do(requests...)
	if err != nil {
		return err
	}
	for _, c := range changes {
		for _, a := range answers[:len(c.Requests)] {
			if c.Err == nil && !(c.Late && IsGone(a.Err)) {
				c.Err = a.Err
			}
		}
		answers = answers[len(c.Requests):]
	}
	return nil
}

// IsGone says that what was to be deleted isn't there any more.
func IsGone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}
