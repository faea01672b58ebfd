// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"

	"golang.org/x/sys/unix"
)

// kchange is a change of what the kernel holds.
type kchange struct {
	what     string     // "add route to 10.0.0.1"
	requests []*message // in order
	late     bool       // takes away: after all that adds
	err      error      // why it couldn't be made
}

// carryOut has the kernel make the changes. What it refuses stands in each; the
// error is the socket's.
func (s *socket) carryOut(changes []*kchange) error {
	var requests []*message
	for _, c := range changes {
		requests = append(requests, c.requests...)
	}
	answers, err := s.do(requests...)
	if err != nil {
		return err
	}
	for _, c := range changes {
		for _, a := range answers[:len(c.requests)] {
			if c.err == nil && !(c.late && isGone(a.err)) {
				c.err = a.err
			}
		}
		answers = answers[len(c.requests):]
	}
	return nil
}

// isGone says that what was to be deleted isn't there any more.
func isGone(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}
