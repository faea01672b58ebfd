// SPDX-License-Identifier: Apache-2.0

package kubernetes

import "testing"

// current is the test or subtest that is running. What is started ends with the test that made the cluster.
type current struct {
	testing.TB
	whole testing.TB
}

// Cleanup implements testing.TB.
func (c *current) Cleanup(fn func()) { c.whole.Cleanup(fn) }

// Run runs a subtest on the cluster.
func (c *Cluster) Run(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		before := c.tb.TB
		c.tb.TB = t
		defer func() { c.tb.TB = before }()
		fn(t)
	})
}
