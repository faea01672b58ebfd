// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"
)

// DidYouMean is a hint at what a name that isn't there may have meant: the names that it is a part of, at most three, else the one that is
// most like it; "" = none.
func DidYouMean(name string, names []string) string {
	var like []string
	for _, n := range names {
		if name != "" && strings.Contains(strings.ToLower(n), strings.ToLower(name)) {
			like = append(like, n)
		}
	}
	slices.Sort(like)
	if like = slices.Compact(like); len(like) > 3 {
		return "; did you mean one of " + strings.Join(like[:3], ", ") + ", …?"
	}
	if len(like) == 0 {
		like = []string{suggest(name, names)}
	}
	if like[0] == "" {
		return ""
	}
	return "; did you mean " + strings.Join(like, " or ") + "?"
}
