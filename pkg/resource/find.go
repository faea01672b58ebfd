// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// Find returns the kind with this name, plural or alias, in any case.
func Find(name string) (*Kind, error) {
	lower := strings.ToLower(name)
	if why := unsupported[strings.TrimSuffix(lower, "s")]; why != "" {
		return nil, &UnsupportedError{name, why}
	}
	var names []string
	for _, k := range kinds {
		for _, n := range append([]string{k.Name, k.Plural}, k.Aliases...) {
			if strings.ToLower(n) == lower {
				return k, nil
			}
		}
		names = append(names, k.Name, strings.ToLower(k.Plural))
	}
	return nil, fmt.Errorf("unknown kind %.64q%s", name, suggest(name, names))
}

// An UnsupportedError says that a kind is Calico's, and why it is refused.
type UnsupportedError struct{ Kind, Why string }

// Error names the kind, and says what to do.
func (e *UnsupportedError) Error() string { return e.Kind + ": " + e.Why }

// KindOf returns the kind of a resource; where names are unique only on a node, the kind On the resource's. An object of the Kubernetes API
// has its name on all nodes: it makes no second resource when its node changes.
func KindOf(r Resource) (*Kind, error) {
	k, err := Find(r.Kind)
	if node := nodeOf(r); err == nil && node != "" && r.By.UID == "" {
		return k.On(node)
	}
	return k, err
}

// On returns the kind with only the resources of a node, where names are unique only on a node.
func (k *Kind) On(node string) (*Kind, error) {
	if !k.perNode {
		return nil, fmt.Errorf("%s has a name of its own on all nodes: leave --node out", A(k.Name))
	}
	here := *k
	here.ranges = prefix(model.HostPrefix(node))
	return &here, nil
}

// KindNames returns the names of all kinds, sorted.
func KindNames() []string {
	return converted(kinds, func(k *Kind) string { return k.Name })
}

// unsupported maps kinds of Calico that are refused, in lower case, to the reason.
var unsupported = map[string]string{
	"stagednetworkpolicie": "staged policies are not supported: see apply --diff", "stagednetworkpolicy": "staged policies are not supported: see apply --diff",
	"stagedglobalnetworkpolicy": "staged policies are not supported: see apply --diff", "stagedkubernetesnetworkpolicy": "staged policies are not supported: see apply --diff",
	"blockaffinity": "use calicoctl ipam", "blockaffinitie": "use calicoctl ipam", "ipamblock": "use calicoctl ipam", "ipamhandle": "use calicoctl ipam",
	"caliconodestatu": "use calicoctl node status, or kubectl", "caliconodestatuse": "use calicoctl node status, or kubectl",
}
