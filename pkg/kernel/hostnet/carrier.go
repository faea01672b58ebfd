// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// CarrierLosses is how often links of the current namespace have lost their carrier
// since they were made. One that isn't there is left out. The kernel counts them, so
// that none is missed however seldom this is asked.
func CarrierLosses(names []string) (map[string]uint32, error) {
	s, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	losses := make(map[string]uint32, len(names))
	for _, name := range names {
		if link.CheckName(name) != nil {
			continue
		}
		answers, err := s.Ask(link.GetMessage(0, name))
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		for _, m := range answers {
			if m.Kind != unix.RTM_NEWLINK || len(m.Body) < unix.SizeofIfInfomsg {
				continue
			}
			rtnl.Attributes(m.Body[unix.SizeofIfInfomsg:], func(kind uint16, data []byte) {
				if kind == unix.IFLA_CARRIER_DOWN_COUNT {
					losses[name] = rtnl.Uint32(data)
				}
			})
		}
	}
	return losses, nil
}
