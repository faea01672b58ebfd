// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func podCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "pod", Short: "Add, delete, check and list pods"}
	cmd.AddCommand(podAddCommand(o), podDelCommand(o), podCheckCommand(o), podListCommand(o))
	return cmd
}

func podAddCommand(o *options) *cobra.Command {
	var host string
	var cfg lab.PodConfig
	var args0 []string
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Make a pod: a namespace that the CNI plugins wire",
		Args:  cobra.ExactArgs(1),
		Example: `  calico-lab pod add web --host a
  calico-lab pod add db --host a --args K8S_POD_NAMESPACE=shop,K8S_POD_NAME=db`,
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			if host == "" {
				hosts := l.Hosts()
				if len(hosts) != 1 {
					return fmt.Errorf("the lab has %d hosts: say which with --host", len(hosts))
				}
				host = hosts[0].Name()
			}
			h, err := l.FindHost(host)
			if err != nil {
				return err
			}
			if err := o.lives(h); err != nil {
				return err
			}
			for _, kv := range args0 {
				name, value, ok := strings.Cut(kv, "=")
				if !ok {
					return fmt.Errorf("--args %s: want NAME=VALUE", kv)
				}
				cfg.Args = append(cfg.Args, [2]string{name, value})
			}
			cfg.ContainerID = cmp.Or(cfg.ContainerID, args[0])
			p, err := h.AddPod(cmd.Context(), args[0], cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", p.Name(), join(p.Addrs()))
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&host, "host", "", "host to run on (may be left out where there is one)")
	f.StringVar(&cfg.ConfFile, "conf", "", "network configuration list (default the host's)")
	f.StringVar(&cfg.ContainerID, "container", "", "container id, by which calicoctl knows a pod outside Kubernetes (default its name)")
	f.StringVar(&cfg.IfName, "ifname", "eth0", "interface in the pod")
	f.StringSliceVar(&args0, "args", nil, "CNI_ARGS, as NAME=VALUE")
	return cmd
}

func podDelCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "del NAME...",
		Aliases: []string{"delete", "rm"},
		Short:   "Have the plugins unwire pods, and remove them",
		Args:    cobra.MinimumNArgs(1),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			return eachPod(o, l, args, func(p *lab.Pod) error { return p.Delete(cmd.Context()) })
		}),
	}
}

func podCheckCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME...",
		Short: "Have the plugins compare pods with what they made",
		Args:  cobra.MinimumNArgs(1),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			return eachPod(o, l, args, func(p *lab.Pod) error {
				if err := p.Check(cmd.Context()); err != nil {
					return fmt.Errorf("pod %s: %w", p.Name(), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is as it was made\n", p.Name())
				return nil
			})
		}),
	}
}

// eachPod continues after errors.
func eachPod(o *options, l *lab.Lab, names []string, fn func(*lab.Pod) error) error {
	var errs []error
	for _, name := range names {
		p, err := l.FindPod(name)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w; `%s` shows those there are", err, o.hint("pod list"))
		}
		if err == nil {
			err = o.lives(p.Host())
		}
		if err == nil {
			err = fn(p)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func podListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List pods with their addresses",
		Args:    cobra.NoArgs,
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, _ []string) error {
			pods, err := l.Pods()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "POD\tHOST\tADDRESSES\tCONTAINER")
			for _, p := range pods {
				addrs := join(p.Addrs())
				if p.Result() == nil {
					addrs = "(not added)"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name(), p.Host().Name(), addrs, p.ContainerID())
			}
			return w.Flush()
		}),
	}
}

func join(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " ")
}
