// SPDX-License-Identifier: Apache-2.0

package link

// DownError is in the chain of an error about an interface that can't be programmed as it is: it doesn't exist, it is down at one end, or
// another container has it. That is normal while a workload comes or goes; an event follows when it changes.
type DownError struct {
	Interface string
	Why       string
}

// IsDown is why an existing interface that is set down can't be programmed.
const IsDown = "is down"

// Error names the interface and says what is wrong.
func (e *DownError) Error() string { return "interface " + e.Interface + " " + e.Why }
