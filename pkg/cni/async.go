// SPDX-License-Identifier: Apache-2.0

package cni

import "runtime/debug"

// future is work under way in another goroutine.
type future struct {
	done chan struct{}
	err  error
}

// async starts work. A panic in it is its error: it would otherwise end the
// process without undo, and without an error object.
func (s *session) async(work func() error) *future {
	f := &future{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer func() {
			if r := recover(); r != nil {
				s.log.Error("panic", "value", r, "stack", string(debug.Stack()))
				f.err = bug(r)
			}
		}()
		f.err = work()
	}()
	return f
}

// wait returns the work's error when it has ended.
func (f *future) wait() error {
	<-f.done
	return f.err
}

func bug(r any) error {
	return failf(CodeInternal, "report it, with the log", "this is a bug in the plugin: %v", r)
}
