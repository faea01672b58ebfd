// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// The default fail-safe ports of an agent, as text for ParseProtoPorts.
const (
	DefaultFailsafeInbound  = "tcp:22,udp:68,udp:546,tcp:179,tcp:2379,tcp:2380,tcp:6443"
	DefaultFailsafeOutbound = "tcp:179,tcp:2379,tcp:2380,tcp:6443,udp:53,udp:67,udp:547"
)

// ParseProtoPorts parses a comma-separated list like "tcp:22,udp:53", or "none". A port without a protocol is TCP's.
// The result is sorted, without duplicates.
func ParseProtoPorts(text string) ([]ProtoPort, error) {
	if strings.EqualFold(strings.TrimSpace(text), "none") {
		return nil, nil
	}
	var ports []ProtoPort
	for one := range strings.SplitSeq(text, ",") {
		p, err := parseProtoPort(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b ProtoPort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(ports), nil
}

func parseProtoPort(text string) (ProtoPort, error) {
	p := ProtoPort{Protocol: model.ProtocolTCP}
	name, port, found := strings.Cut(text, ":")
	switch {
	case !found:
		port = text
	case strings.EqualFold(name, "udp"):
		p.Protocol = model.ProtocolUDP
	case !strings.EqualFold(name, "tcp"):
		return p, fmt.Errorf("port %.64q: want tcp or udp before the colon", text)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return p, fmt.Errorf("port %.64q: want tcp:<port> or udp:<port>, 1 to 65535, in a comma list, or none", text)
	}
	p.Port = uint16(n)
	return p, nil
}
