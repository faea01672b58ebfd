// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"os"
)

// Verbs is a program whose first argument says what to do.
type Verbs struct {
	Name, Version, Usage string
	// Do are its jobs by that argument, "" if there is none. They get the arguments after it and return the exit status.
	Do map[string]func(args []string) int
}

// Main runs the job that a command line asks for, and returns the exit status.
func (v Verbs) Main(args []string) int {
	verb := ""
	if len(args) > 0 {
		verb, args = args[0], args[1:]
	}
	do, is := v.Do[verb]
	switch verb {
	case "-v", "-version", "--version":
		fmt.Println(v.Name, v.Version)
		return 0
	case "-h", "-help", "--help", "help":
		fmt.Print(v.Usage)
		return 0
	}
	if is {
		return do(args)
	}
	if verb != "" {
		fmt.Fprintf(os.Stderr, "%s: %q is not understood\n", v.Name, verb)
	}
	fmt.Fprint(os.Stderr, v.Usage)
	return 2
}
