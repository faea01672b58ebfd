// SPDX-License-Identifier: Apache-2.0

// Package nft keeps one table of nftables, inet calico, as this host's policy says: it renders policy to rules and sets, writes the
// differences, and reads them back.
package nft

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/pkg/policy"
)

// TableName is the name of our table. Nothing else is touched.
const TableName = "calico"

// Config configures a Firewall.
type Config struct {
	Logger *slog.Logger
	// Between is called between the transactions of a long Apply; may be nil.
	Between func()
}

// Report is the result of an Apply.
type Report struct {
	// Programmed are the endpoints that were touched, by path: nil = as desired, and read back.
	Programmed map[string]error
	// InForce are the paths of endpoints whose own policies waited and are now in force.
	InForce []string
	// More: something waits for another Apply: large policies and their sets, their users, or removals.
	More                 bool
	Writes               int  // changes sent to the kernel
	Repairs              int  // among the writes, corrections: others changed it, or a failed change took effect
	Sets, Members, Rules int  // in the table now
	Whole                bool // everything was read and compared
}

// Event says that others changed our table, but not what: an Audit finds out.
type Event struct{}

// check refuses settings that would enforce nothing, or that the kernel refuses.
func check(s policy.Settings) error {
	if len(s.Prefixes) == 0 {
		return errors.New("there are no prefixes of workload interfaces: configure them")
	}
	if n := len(s.Prefixes); n > MaxPrefixes {
		return fmt.Errorf("there are %d prefixes of workload interfaces: at most %d", n, MaxPrefixes)
	}
	for _, p := range s.Prefixes {
		if p == "" || len(p) > table.MaxInterface {
			return fmt.Errorf("%q can't be the prefix of workload interfaces: want 1 to %d bytes", p, table.MaxInterface)
		}
	}
	return nil
}

// MaxPrefixes is how many prefixes workload interfaces may have: one rule has them all, twice.
const MaxPrefixes = 16
