// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ListenError says that BGP can't listen, and so doesn't run, or stays at its former port.
type ListenError struct {
	Port uint16
	Err  error
	// Stays: BGP stays at its former port.
	Stays bool
}

// Error says what to do about it.
func (e *ListenError) Error() string {
	if e.Stays {
		return fmt.Sprintf("BGP stays at its former port, as it can't listen at the one that is set: %v: %s", e.Err, listenAdvice(e.Port, e.Err))
	}
	return fmt.Sprintf("listen for BGP: %v: %s", e.Err, listenAdvice(e.Port, e.Err))
}

// Unwrap returns the reason.
func (e *ListenError) Unwrap() error { return e.Err }

func listenAdvice(port uint16, err error) string {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Sprintf("another program listens at port %d, which `ss -ltnp 'sport = :%d'` names: stop it, or set another BGPListenPort for all hosts", port, port)
	}
	return "set BGPListenAddresses to addresses that the host has, and BGPListenPort to a port that it may use"
}
