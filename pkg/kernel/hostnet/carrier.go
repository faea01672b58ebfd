// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
)

// CarrierLosses returns how many times links of the current namespace have lost their carrier since they were created. Missing links are
// left out. The kernel counts, so no loss is missed however rarely this is called.
func CarrierLosses(names []string) (map[string]uint32, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	losses := make(map[string]uint32, len(names))
	for _, name := range names {
		if link.CheckName(name) != nil {
			continue
		}
		l, err := link.Get(c, 0, name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		losses[name] = l.CarrierLosses
	}
	return losses, nil
}
