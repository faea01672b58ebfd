// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func hostCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Add hosts, kill and return them, pull their cables",
		Example: `  calico-lab host kill b
  calico-lab host return b
  calico-lab host flap b --each 1s`,
	}
	cmd.AddCommand(hostAddCommand(o), hostReturnCommand(o), hostFlapCommand(o))
	add := func(use, short, long, said string, fn func(*lab.Host) error) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " HOST...", Short: short, Long: long, Args: cobra.MinimumNArgs(1),
			RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
				return eachHost(l, args, func(h *lab.Host) error {
					if err := fn(h); err != nil {
						return err
					}
					fmt.Fprintf(cmd.ErrOrStderr(), said+"\n", h.Name())
					return nil
				})
			}),
		})
	}
	add("kill", "Kill hosts: link and agent are gone at once",
		`kill cuts the host's link and then kills its agent, so that neither says goodbye: its
lease in etcd runs out, its BGP sessions time out. What is on the host lives on beyond
reach, so that it can be looked at; calico-lab host return brings the host back.`,
		"host %s is dead", (*lab.Host).Kill)
	add("cut", "Pull hosts' cables", "cut takes the carrier from the host's eth0. Its agent goes on.",
		"the link of host %s is cut", (*lab.Host).CutLink)
	add("join", "Put hosts' cables back", "join ends what cut has done.", "the link of host %s is joined", (*lab.Host).JoinLink)
	return cmd
}

// lives returns an error for a host that was killed: its plugins would wait for etcd, and blame that.
func (o *options) lives(h *lab.Host) error {
	f, err := h.Faults()
	if err == nil && f.Dead {
		err = fmt.Errorf("host %s is dead: %s", h.Name(), o.hint("host return "+h.Name()))
	}
	return err
}

// eachHost finds all hosts before it acts on any.
func eachHost(l *lab.Lab, names []string, fn func(*lab.Host) error) error {
	var hosts []*lab.Host
	for _, name := range names {
		h, err := l.FindHost(name)
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
	}
	for _, h := range hosts {
		if err := fn(h); err != nil {
			return err
		}
	}
	return nil
}

func hostAddCommand(o *options) *cobra.Command {
	rack := 0
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a host with an agent",
		Args:  cobra.ExactArgs(1),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			routers := l.Routers()
			if rack < 0 || rack > len(routers) {
				return fmt.Errorf("--rack %d: the lab has %d racks", rack, len(routers))
			}
			add := l.AddHost
			if rack > 0 {
				add = routers[rack-1].AddHost
			}
			h, err := add(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", h.Name(), join(h.Addrs()))
			return nil
		}),
	}
	cmd.Flags().IntVar(&rack, "rack", 0, "number of its rack; 0 is on the fabric itself")
	return cmd
}

func hostReturnCommand(o *options) *cobra.Command {
	reboot := false
	cmd := &cobra.Command{
		Use:   "return HOST...",
		Short: "Bring hosts back that were killed",
		Long: `return joins the host's link, starts its agent and waits until it is ready. All that the
host had is as it was, pods included: as a virtual machine that was halted. With --reboot
only name, addresses and disk are: what the kernel held and the pods are gone, as after a
loss of power. A container runtime would now delete the old containers: so does
calico-lab pod del.`,
		Args: cobra.MinimumNArgs(1),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			return eachHost(l, args, func(h *lab.Host) error {
				back := h.Return
				if reboot {
					back = h.Reboot
				}
				start := time.Now()
				if err := back(cmd.Context()); err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "host %s is back after %v\n", h.Name(), time.Since(start).Round(10*time.Millisecond))
				return nil
			})
		}),
	}
	cmd.Flags().BoolVar(&reboot, "reboot", false, "with nothing but its name, its addresses and its disk")
	return cmd
}

func hostFlapCommand(o *options) *cobra.Command {
	each := time.Second
	cmd := &cobra.Command{
		Use:   "flap HOST",
		Short: "Pull and put back a host's cable until interrupted",
		Args:  cobra.ExactArgs(1),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			if each <= 0 {
				return fmt.Errorf("--each %v: want a time such as 1s", each)
			}
			return eachHost(l, args, func(h *lab.Host) error {
				fmt.Fprintf(cmd.ErrOrStderr(), "the link of host %s goes down and up, each for %v, until Ctrl-C\n", h.Name(), each)
				return h.FlapLink(cmd.Context(), each)
			})
		}),
	}
	cmd.Flags().DurationVar(&each, "each", each, "how long it is down, and how long up")
	return cmd
}

func partitionCommand(o *options) *cobra.Command {
	from := "hosts"
	cmd := &cobra.Command{
		Use:   "partition HOST...",
		Short: "Cut hosts off from all others, or from etcd",
		Long: `partition cuts the named hosts off from all others: they reach each other, and so do the
others. Etcd is on both sides, unless --from says otherwise. Partitions add up: the hosts of
the next one are on a side of their own. calico-lab heal ends them all.`,
		Example: `  calico-lab partition a b
  calico-lab partition a --from etcd`,
		Args: cobra.MinimumNArgs(1),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			cuts := map[string][]func(*lab.Lab, ...string) error{
				"hosts": {(*lab.Lab).Partition},
				"etcd":  {(*lab.Lab).PartitionFromEtcd},
				"all":   {(*lab.Lab).Partition, (*lab.Lab).PartitionFromEtcd},
			}[from]
			if cuts == nil {
				return fmt.Errorf("--from %s: want hosts, etcd or all", from)
			}
			for _, cut := range cuts {
				if err := cut(l, args...); err != nil {
					return err
				}
			}
			return printFaults(cmd, l)
		}),
	}
	cmd.Flags().StringVar(&from, "from", from, "what they lose: the other hosts, etcd, or all (both)")
	return cmd
}

func healCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "heal",
		Short: "End all partitions",
		Long:  "heal ends what calico-lab partition has done, for all hosts. Loss, cables and dead hosts stay as they are.",
		Args:  cobra.NoArgs,
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, _ []string) error {
			if err := l.Heal(); err != nil {
				return err
			}
			return printFaults(cmd, l)
		}),
	}
}

func lossCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "loss HOST PERCENT",
		Short: "Have packets to and from a host get lost",
		Long: `loss drops that percentage of the packets to the host at random, and of those from
it, so that of 100 pings 81 get an answer at 10%. 0% ends it.`,
		Example: `  calico-lab loss b 10%
  calico-lab loss b 0%`,
		Args: cobra.ExactArgs(2),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			percent, err := parsePercent(args[1])
			if err != nil {
				return err
			}
			h, err := l.FindHost(args[0])
			if err != nil {
				return err
			}
			if err := h.SetLoss(percent); err != nil {
				return err
			}
			return printFaults(cmd, l)
		}),
	}
}

func parsePercent(text string) (float64, error) {
	number := text
	if n := len(text); n > 0 && text[n-1] == '%' {
		number = text[:n-1]
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return 0, fmt.Errorf("loss %q: want 0%% to 100%%, such as 10%%", text)
	}
	return percent, nil
}

// printFaults prints the current faults of all hosts.
func printFaults(cmd *cobra.Command, l *lab.Lab) error {
	wrong := 0
	for _, h := range l.Hosts() {
		f, err := h.Faults()
		if err != nil {
			return err
		}
		if text := f.String(); text != "" {
			wrong++
			fmt.Fprintf(cmd.ErrOrStderr(), "host %s: %s\n", h.Name(), text)
		}
	}
	if wrong == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is wrong with any host")
	}
	return nil
}
