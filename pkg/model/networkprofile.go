// SPDX-License-Identifier: Apache-2.0

package model

// NetworkProfile returns a network's own profile, which is created with its first endpoint: endpoints of the network
// may talk to each other and out.
func NetworkProfile(name string) []Put {
	return []Put{
		{Key: ProfileRulesKey{Profile: name}, Value: Rules{
			Inbound:  []Rule{{Action: ActionAllow, Match: Match{SrcTag: name}}},
			Outbound: []Rule{{Action: ActionAllow}},
		}},
		{Key: ProfileTagsKey{Profile: name}, Value: Tags{name}},
	}
}
