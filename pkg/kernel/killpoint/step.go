// SPDX-License-Identifier: Apache-2.0

//go:build !killpoints

// Package killpoint ends the process at a chosen step, in binaries built with the tag killpoints, so that tests see what is left.
package killpoint

// Step marks a boundary between two steps of a call. Built with the tag killpoints, the process can be told to die there.
func Step(string) {}
