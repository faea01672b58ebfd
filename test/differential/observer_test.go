// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"strings"
)

// The groups of NFLOG that are listened to: what the observer sees, and what
// rules of policies log.
const (
	observerGroup = 9
	flowGroup     = 11
)

// What the observer says of a packet, in this order. At a hook of a filter
// "before" has the state of the connection behind it.
const (
	sawEnter  = "enter"
	sawRaw    = "raw"  // it is past what is done before connection tracking
	sawPast   = "past" // where packets come in, it is past what is done before its destination is translated
	sawBefore = "before"
	sawAfter  = "after"
	sawLeave  = "leave" // after source NAT
)

// observer is a table that looks at each packet on both sides of the firewall's
// chains, which it must know nothing of but their priorities: raw, mangle, dstnat,
// filter, srcnat.
func observer() string {
	var b strings.Builder
	b.WriteString("table inet observer {\n")
	chain := func(hook string, priority int, what string, states ...string) {
		fmt.Fprintf(&b, "\tchain %s-%s {\n\t\ttype filter hook %s priority %d;\n", what, hook, hook, priority)
		for _, s := range states {
			fmt.Fprintf(&b, "\t\tct state %s log prefix \"%s %s\" group %d snaplen 256\n", s, what, s, observerGroup)
		}
		if len(states) == 0 {
			fmt.Fprintf(&b, "\t\tlog prefix \"%s\" group %d snaplen 256\n", what, observerGroup)
		}
		b.WriteString("\t}\n")
	}
	for _, hook := range [...]string{"prerouting", "output"} {
		chain(hook, -450, sawEnter)
		chain(hook, -250, sawRaw)
	}
	chain("prerouting", -140, sawPast)
	for _, hook := range [...]string{"input", "forward", "output"} {
		chain(hook, -10, sawBefore, "new", "established", "related", "invalid", "untracked")
		chain(hook, 10, sawAfter)
	}
	chain("postrouting", 300, sawLeave)
	b.WriteString("}\n")
	return b.String()
}
