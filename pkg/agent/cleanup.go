// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/kernel/legacy"
	"github.com/calico-go/calico/pkg/nft"
)

// cleanUp lists what an older version left on the host, and removes it if remove is set.
func cleanUp(ctx context.Context, remove bool) error {
	found, err := legacy.Find(ctx)
	if err == nil {
		err = found.Print(os.Stdout)
	}
	if err == nil && remove && len(found.Tables) > 0 {
		err = succeeded()
	}
	if err == nil && !found.Empty() && remove {
		err = found.Remove(ctx)
	}
	switch {
	case err != nil:
		return err
	case found.Empty():
		fmt.Println("nothing of an older version is left to remove")
	case remove:
		fmt.Println("removed")
	default:
		fmt.Println("nothing is removed yet: add -yes for that, once calico-node runs and is ready on this host")
	}
	return nil
}

// succeeded returns an error while the chains of an older version are still needed: nothing else enforces policy, and pods would be open.
func succeeded() error {
	there, err := nft.Stands()
	if err == nil && !there {
		err = fmt.Errorf("nothing is removed: without table inet %s pods would be open; start calico-node, wait until it is ready, and run this again", nft.TableName)
	}
	return err
}
