// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"runtime"
	"sync"
)

// keeper is the thread that long-running children are started from. The kernel
// delivers a parent-death signal when the *thread* that forked dies
// (PR_SET_PDEATHSIG(2const)), so that thread must live as long as the lab, and
// no other goroutine may ever end it.
type keeper struct {
	work chan func() bool
	quit chan struct{}
	once sync.Once
}

func newKeeper() *keeper {
	k := &keeper{work: make(chan func() bool), quit: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case fn := <-k.work:
				if !fn() {
					// The thread is stuck in a foreign namespace and useless now. Its end takes the children along.
					k.close()
					return
				}
			case <-k.quit:
				// Once unlocked the thread lives on, so no running process dies from this.
				runtime.UnlockOSThread()
				return
			}
		}
	}()
	return k
}

// do runs fn on the keeper's thread, in a namespace.
func (k *keeper) do(ns Namespace, fn func() error) error {
	result := make(chan error, 1)
	work := func() bool {
		back, err := andBack(func() error { return ns.Enter(fn) })
		result <- err
		return back
	}
	select {
	case k.work <- work:
		return <-result
	case <-k.quit:
		return errors.New("the lab is closed")
	}
}

func (k *keeper) close() { k.once.Do(func() { close(k.quit) }) }
