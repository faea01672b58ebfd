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

// Main is what a program does once its command line is read, with the error err. It runs do until that ends, which SIGTERM and SIGINT
// ask for, and returns the exit status: 2 for err, 1 for an error of do, and 0, as where err is flag.ErrHelp or that of Parse for the version.
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
