// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/nft/nfnl"
)

// Remove deletes the table, and with it all policy: everything passes. there is false if it didn't exist.
func Remove() (there bool, err error) {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	b := conn.NewBatch()
	b.DeleteTable()
	_, err = b.Commit(0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("delete table inet %s: %w", TableName, err)
	}
	return true, nil
}

// Stands reports whether the table exists: an agent runs, or one that has ended left its policy in force.
func Stands() (bool, error) {
	conn, err := nfnl.Open(TableName)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	found, err := conn.ReadTable()
	return found.There, err
}
