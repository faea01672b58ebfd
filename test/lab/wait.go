// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// until asks condition again and again, more slowly as time passes, until it
// holds. The error of a condition is not final: it says why it doesn't hold
// yet, and is told when ctx ends.
func until(ctx context.Context, what string, condition func() (bool, error)) error {
	pause := 2 * time.Millisecond
	for {
		ok, err := condition()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("wait for %s: %w; last: %w", what, ctx.Err(), err)
			}
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(pause*3/2, 100*time.Millisecond)
	}
}

// Until waits until condition returns nil; the error then is its last one.
func Until(ctx context.Context, what string, condition func() error) error {
	return until(ctx, what, func() (bool, error) {
		err := condition()
		return err == nil, err
	})
}

// writeSysctl sets a network sysctl of the namespace that the thread is in.
func writeSysctl(name, value string) error {
	// No O_CREAT and O_TRUNC: procfs has neither.
	f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
}
