// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// kinds are all kinds that the operator can name, each defined in a file of its own.
var kinds = []*Kind{
	bgpConfigurationKind, bgpFilterKind, bgpPeerKind, clusterInformationKind, dhcpSubnetKind, felixConfigurationKind, globalNetworkPolicyKind, globalNetworkSetKind, hostEndpointKind,
	ipamConfigurationKind, ipPoolKind, ipReservationKind, kubeControllersConfigurationKind, networkPolicyKind, networkSetKind, nodeKind, profileKind, tierKind,
	workloadEndpointKind,
}

func order(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

func joined[T fmt.Stringer](list []T) string {
	return strings.Join(converted(list, T.String), ",")
}

func prefix(p ...string) []model.Range { return converted(p, model.PrefixRange) }

func isDefault(name string) bool { return name == "default" }
