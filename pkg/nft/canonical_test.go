// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"
	"strings"
)

// canonical sorts the parts of a table, and the elements of each set, which the kernel keeps unordered.
func canonical(table string) string {
	// The nft tool takes the version for granted here.
	table = strings.NewReplacer(
		"meta nfproto ipv6 meta l4proto ipv6-icmp", "meta l4proto ipv6-icmp",
		"meta nfproto ipv4 meta l4proto icmp ", "meta l4proto icmp ",
	).Replace(table)
	var parts []string
	for part := range strings.SplitSeq(table, "\n\t}\n") {
		head, elements, ok := strings.Cut(strings.Trim(part, "\n"), "\t\telements = { ")
		if ok {
			list := strings.Split(strings.TrimSuffix(strings.Join(strings.Fields(elements), " "), " }"), ", ")
			slices.Sort(list)
			head += "\t\telements = { " + strings.Join(list, ", ") + " }"
		}
		parts = append(parts, strings.TrimSpace(strings.TrimPrefix(head, "table inet calico {")))
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n}\n")
}
