// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

// pinger is a pod, a host or a router.
type pinger interface {
	lab.Target
	Ping(context.Context, lab.Target) error
}

func pingCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "ping FROM TO...",
		Short: "See whether a pod or a host gets an answer from others",
		Long: `ping sends echo requests from a pod or a host, for five seconds at most, until
every address of each TO has answered. TO is a pod, a host or an address.`,
		Example: `  calico-lab ping web db
  calico-lab ping a web
  calico-lab ping web 172.20.1.1`,
		Args: cobra.MinimumNArgs(2),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			from, err := findPinger(l, args[0])
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range args[1:] {
				to, err := findTarget(l, name)
				if err == nil {
					err = from.Ping(cmd.Context(), to)
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s answers: %s\n", name, join(to.Addrs()))
			}
			return errors.Join(errs...)
		}),
	}
}

func findPinger(l *lab.Lab, name string) (pinger, error) {
	if h, err := l.FindHost(name); err == nil {
		return h, nil
	}
	for _, r := range l.Routers() {
		if r.Name() == name {
			return r, nil
		}
	}
	p, err := l.FindPod(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s has neither a pod nor a host %s: calico-lab status shows what there is", l.Name(), name)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func findTarget(l *lab.Lab, name string) (lab.Target, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return lab.Address(a), nil
	}
	return findPinger(l, name)
}
