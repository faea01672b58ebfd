// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"os"
	"testing"

	"github.com/calico-go/calico/test/netns"
)

// TestEnterClosed: who enters a namespace while another closes it gets there, or is told so.
func TestEnterClosed(t *testing.T) {
	netns.Host(t, func() {
		for range 100 {
			n, err := OpenNetns(OwnNetns)
			if err != nil {
				t.Fatal(err)
			}
			entered := make(chan error, 1)
			go func() { entered <- n.Enter(func() error { return nil }) }()
			n.Close()
			if err := <-entered; err != nil && !errors.Is(err, os.ErrClosed) {
				t.Fatal(err)
			}
		}
	})
}
