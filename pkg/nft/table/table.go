// SPDX-License-Identifier: Apache-2.0

// Package table is a table of nftables as values: sets, chains and rules that print
// as the nft tool prints them.
package table

import "time"

// Table is a table of nftables, of family inet. The zero value of each part
// below is empty.
type Table struct {
	Name   string
	Sets   []Set
	Chains []Chain
}

// Set is a named set; where Data is given, a map.
type Set struct {
	Name    string
	Key     []Type // concatenated
	Data    Type   // "" = a set
	Jump    bool   // a verdict map's elements come back; else they go for good
	Count   bool   // each element counts the packets that found it
	Timeout bool   // the kernel removes each element after a time of its own
	Bounds  bool   // each element finds a packet that begins a connection where it found more before than the bound in its data
	// Expires is how long elements stay that rules add (Add), of which there are at most MaxAdded; 0 = rules add none.
	Expires  time.Duration
	Interval bool // each key is the start of a range, its end in End
	Comment  string
	Elements []Element
}

// MaxAdded is how many elements of one set rules may add.
const MaxAdded = 65535

// Chain is a list of rules. One with a hook is a base chain.
type Chain struct {
	Name    string
	Hook    Hook // zero = reached by jumps alone
	Comment string
	Rules   []Rule
}

// Hook is where packets enter a base chain. What no rule decides
// is accepted.
type Hook struct {
	Type, At string // `filter` or `nat`; `prerouting`, …
	Priority string // `raw`, `mangle`, `filter`, `dstnat` or `srcnat`, also `filter - 1` and the like; or a number
}

// Rule does its statements in order until one doesn't match.
type Rule struct {
	Do      []Statement
	Comment string
}
