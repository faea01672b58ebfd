// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"strings"
)

// Find returns the kind with this name, plural or alias, in any case.
func Find(name string) (*Kind, error) {
	lower := strings.ToLower(name)
	if why := unsupported[strings.TrimSuffix(lower, "s")]; why != "" {
		return nil, errors.New(name + ": " + why)
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
