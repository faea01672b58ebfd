// SPDX-License-Identifier: Apache-2.0

// Package table represents a table of nftables as values: sets, chains and rules that print as the nft tool prints them.
package table

import "time"

// Table is a table of nftables, of family inet. The zero value of each part
// below is empty.
type Table struct {
	Name   string
	Sets   []Set
	Chains []Chain
}

// Set is a named set, or a map if it has Data.
type Set struct {
	Name    string
	Key     []Type // concatenated
	Data    Type   // "" = a set
	Jump    bool   // a verdict map's verdicts are jumps, else gotos
	Count   bool   // each element counts the packets that found it
	Timeout bool   // the kernel removes each element after the element's own timeout
	Bounds  bool   // each element matches the first packet of a connection if it counts more connections than the bound in its data
	// Expires is how long elements that rules add (Add) stay, at most MaxAdded of them; 0 = rules add none.
	Expires  time.Duration
	Interval bool // each key is the start of a range, its end in End
	Comment  string
	Elements []Element
}

// MaxAdded is how many elements rules may add to one set.
const MaxAdded = 65535

// Chain is a list of rules. A base chain has a hook.
type Chain struct {
	Name    string
	Hook    Hook // zero = reached only by jumps
	Comment string
	Rules   []Rule
}

// Hook is where packets enter a base chain. Packets that no rule decides are accepted.
type Hook struct {
	Type, At string // `filter` or `nat`; `prerouting`, …
	Priority string // `raw`, `mangle`, `filter`, `dstnat` or `srcnat`, also `filter - 1` and the like; or a number
}

// Rule executes its statements in order until one doesn't match.
type Rule struct {
	Do      []Statement
	Comment string
}
