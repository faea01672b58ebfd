// SPDX-License-Identifier: Apache-2.0

package link

// DownError is in the chain of an error about an interface that can't be programmed as it is: it is not there, it is down
// at one end, or another container has it. That is nobody's mistake while a workload comes or goes; a notice follows when
// it changes.
type DownError struct {
	Interface string
	Why       string
}

// IsDown is why an interface can't be programmed that is there, and is set down.
const IsDown = "is down"

// Error names the interface and says what it is.
func (e *DownError) Error() string { return "interface " + e.Interface + " " + e.Why }
