// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
)

// A session is a testing.TB outside of a test: its first failure becomes an error, and ends the session.
type session struct {
	testing.TB // nil; embedding it is the only way to get its unexported method
	ctx        context.Context
	log        io.Writer
	cleanups   []func()
	err        error
}

// Session starts a cluster, installs Calico on it as docs/kubernetes.md says, and runs fn. The cluster ends when fn
// returns or ctx is cancelled. Failures are described in log. Like a test of a cluster, it must run under
// bin/tools/isolate.
func Session(ctx context.Context, log io.Writer, fn func(*Cluster) error) error {
	s := &session{ctx: ctx, log: log}
	var err error
	done := make(chan struct{})
	go func() { // Fatal ends a goroutine
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(s.cleanups) {
				cleanup()
			}
		}()
		c := Up(s, Images(s)...)
		c.Install(Manifest(s))
		err = fn(c)
	}()
	<-done
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.err != nil:
		return s.err
	default:
		return err
	}
}

func (s *session) Helper()                           {}
func (s *session) Context() context.Context          { return s.ctx }
func (s *session) Cleanup(fn func())                 { s.cleanups = append(s.cleanups, fn) }
func (s *session) Failed() bool                      { return s.err != nil && s.ctx.Err() == nil }
func (s *session) Logf(format string, args ...any)   { fmt.Fprintf(s.log, format+"\n", args...) }
func (s *session) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }
func (s *session) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

func (s *session) Error(args ...any) {
	if s.err == nil {
		s.err = errors.New(fmt.Sprint(args...))
	}
}

func (s *session) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}
