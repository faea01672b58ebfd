// SPDX-License-Identifier: Apache-2.0

package cni

import "github.com/calico-go/calico/pkg/kernel/killpoint"

// step marks a boundary between two steps of a call, where a test may kill it.
func step(name string) { killpoint.Step(name) }
