// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// NewNamespace creates a network namespace without a name. It ends, with its links, when it and the sockets in it are closed, also if the
// process is killed.
func NewNamespace() (n *Namespace, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make a network namespace: %w", err)
			return
		}
		n, err = OpenNamespace(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	}()
	<-done
	return n, err
}
