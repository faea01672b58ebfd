// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"
)

// DidYouMean returns a hint at what an unknown name may have meant: up to three names that contain it, else the most similar one; "" =
// none.
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
		return suggest(name, names)
	}
	return "; did you mean " + strings.Join(like, " or ") + "?"
}

// suggest returns a hint at the name most similar to an unknown one; "" = none is similar.
func suggest(name string, names []string) string {
	best, least := "", 1+len(name)/3
	if len(name) > 64 {
		return ""
	}
	for _, n := range names {
		if n == "" || n == "-" {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least || d == least && best == "" {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance returns the Levenshtein distance: how many bytes must be added, removed or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
