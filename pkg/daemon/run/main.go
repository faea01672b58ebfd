// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs do with a context that SIGTERM and SIGINT cancel, and returns the exit status of the program: 0, or 1 for an error of do. err
// is the error of reading the command line: do does not run unless it is nil, and the status is 2, but 0 for flag.ErrHelp and for the error
// of Parse that asks for the version, which Main prints.
func Main(name, version string, err error, do func(context.Context) error) int {
	status := 2
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errVersion):
		fmt.Println(name, version)
		return 0
	case err == nil:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		if err = do(ctx); err == nil {
			return 0
		}
		status = 1
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return status
}
