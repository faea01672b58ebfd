// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	"github.com/calico-go/calico/pkg/model"
)

func testKey(name string) model.WorkloadEndpointKey {
	return model.WorkloadEndpointKey{Host: "h", Orchestrator: "k8s", Workload: name, Endpoint: "eth0"}
}

func testSpec(iface string, addrs ...string) model.WorkloadEndpoint {
	spec := model.WorkloadEndpoint{State: model.StateActive, Name: iface, MAC: model.MAC{2, 0, 0, 0, 0, 1}}
	for _, a := range addrs {
		p := hostNet(netip.MustParseAddr(a))
		if p.Addr().Is4() {
			spec.IPv4Nets = append(spec.IPv4Nets, p)
		} else {
			spec.IPv6Nets = append(spec.IPv6Nets, p)
		}
	}
	return spec
}

func put(key model.Key, value any, revision int64) model.Entry {
	e := model.Entry{Path: key.Path(), Key: key, Revision: revision, Created: revision, Value: value}
	if err, invalid := value.(error); invalid {
		e.Value, e.Err = nil, err
	}
	return e
}

func gone(key model.Key) model.Entry { return model.Entry{Path: key.Path(), Key: key} }
