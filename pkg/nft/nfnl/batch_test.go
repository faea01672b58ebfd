// SPDX-License-Identifier: Apache-2.0

package nfnl

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/nft/table"
	"github.com/calico-go/calico/test/netns"
)

// TestSmallBuffers expects every one of 100,000 elements, with about the buffers that net.core.wmem_max gives. The change must not take
// effect in pieces.
func TestSmallBuffers(t *testing.T) {
	const n = 100_000
	var elements []Element
	for i := range n {
		elements = append(elements, Element{Key: string(binary.BigEndian.AppendUint32(nil, uint32(i)))})
	}
	netns.Host(t, func() {
		c := open(t)
		c.sock.most = 200_000
		set := table.Set{Name: "large", Key: []table.Type{table.TypeIPv4}}
		b := c.NewBatch()
		b.AddTable()
		b.AddSet(set, elements)
		if transactions, err := b.Commit(0); err != nil || transactions < 2 || b.Writes != 2+n {
			t.Fatalf("%d transactions, %d writes, %v: want some, of %d", transactions, b.Writes, err, 2+n)
		}
		got := make(map[string]bool)
		for deadline := time.Now().Add(eventually.Limit); len(got) != n; { // while the kernel spreads them over more buckets it may leave some out
			if err := c.ReadElements(&set, func(e Element) { got[e.Key] = true }); err != nil || time.Now().After(deadline) {
				t.Fatalf("%d elements, %v: want %d", len(got), err, n)
			}
		}
		b = c.NewBatch()
		b.DeleteElements(set, elements[1:])
		if _, err := b.Commit(0); err == nil || !strings.Contains(err.Error(), "too large for the socket") {
			t.Errorf("got %v", err)
		}
		b = c.NewBatch()
		b.DeleteElements(set, elements[1:3])
		if _, err := b.Commit(0); err != nil {
			t.Error(err)
		}
	})
}
