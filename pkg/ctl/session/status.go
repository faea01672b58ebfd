// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
)

// The exit statuses of calicoctl.
const (
	StatusOK          = 0
	StatusFailed      = 1 // something was refused, or found to be wrong
	StatusUsage       = 2 // the command line, its configuration or a document is invalid
	StatusNotFound    = 3 // what was named doesn't exist, or exists already
	StatusUnavailable = 4 // etcd, or the Kubernetes API, can't be reached, or refuses access
	StatusConflict    = 5 // another writer was faster
)

// StatusHelp explains the statuses in help.
const StatusHelp = `Exit status: 0 done; 1 refused, or something is wrong; 2 a command line, configuration or document that makes no
sense; 3 not found, or there already; 4 etcd, or the Kubernetes API, can't be reached or refuses
access; 5 changed by another writer meanwhile.`

// A StatusError is an error that decides the exit status.
type StatusError struct {
	Status int
	Err    error
	Found  bool // everything asked for was printed; Err is what that shows to be wrong
}

// Error returns the text of Err.
func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *StatusError) Unwrap() error { return e.Err }

// Usagef returns an error about an invalid command line, configuration or document.
func Usagef(format string, args ...any) error {
	return &StatusError{Status: StatusUsage, Err: fmt.Errorf(format, args...)}
}

// Found returns an error about problems in what was asked for and printed.
func Found(err error) error { return &StatusError{Status: StatusFailed, Err: err, Found: true} }

// Status returns the exit status for an error; nil is StatusOK.
func Status(err error) int {
	var of *StatusError
	var field *resource.FieldError
	var missing *resource.NotFoundError
	var exists *resource.ExistsError
	var changed *resource.StaleError
	switch {
	case err == nil:
		return StatusOK
	case errors.As(err, &of):
		return of.Status
	case errors.As(err, &field):
		return StatusUsage
	case errors.As(err, &missing), errors.As(err, &exists):
		return StatusNotFound
	case errors.As(err, &changed):
		return StatusConflict
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrAuth), errors.Is(err, kube.ErrDenied):
		return StatusUnavailable
	}
	return StatusFailed
}
