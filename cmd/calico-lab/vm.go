// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/taps"
	"github.com/calico-go/calico/pkg/model"
)

func vmCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Add and delete what stands for virtual machines",
		Long: `A machine is a namespace whose eth0 is joined to a tap of a host, frame by frame,
as a hypervisor joins them. It has a MAC address and nothing else: it asks for its
addresses by DHCP, and its endpoint in etcd is yours to write.`,
	}
	cmd.AddCommand(vmAddCommand(o), vmDelCommand(o), vmRunCommand(o))
	return cmd
}

func vmAddCommand(o *options) *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:     "add NAME --host HOST",
		Short:   "Make a machine and its tap",
		Args:    cobra.ExactArgs(1),
		Example: `  calico-lab vm add vm1 --host a`,
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			h, err := l.FindHost(host)
			if err == nil {
				err = o.lives(h)
			}
			if err != nil {
				return err
			}
			name := args[0]
			if tap := machineTap(name); len(tap) > 15 {
				return fmt.Errorf("machine name %s: its tap would be %s: want up to 12 characters", name, tap)
			}
			ns, err := l.NewNamespace(name)
			if err != nil {
				return fmt.Errorf("add machine %s: %w", name, err)
			}
			if err := runMachine(cmd.Context(), l, h, name); err != nil {
				return errors.Join(fmt.Errorf("add machine %s: %w", name, err), ns.Remove())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", name, machineTap(name), machineMAC(name))
			return nil
		}),
	}
	cmd.Flags().StringVar(&host, "host", "", "host to run on")
	_ = cmd.MarkFlagRequired("host") // the flag exists
	return cmd
}

// runMachine starts the process that is the machine's hypervisor, and waits until its link is up.
func runMachine(ctx context.Context, l *lab.Lab, h *lab.Host, name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := h.Start(machineRole(name), self, "--name", l.Name(), "vm", "run", name, "--host", h.Name())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = eventually.Wait(ctx, "its tap to be up", func() error {
		if !p.Alive() {
			cancel()
			return errors.New(lab.Tail(p.Log, 1))
		}
		out, err := h.Exec(ctx, "ip", "link", "show", "dev", machineTap(name), "up")
		if err == nil && len(out) == 0 {
			err = errors.New("it is down")
		}
		return err
	})
	if err != nil && p.Alive() {
		err = errors.Join(err, p.Kill())
	}
	return err
}

func vmDelCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "del NAME",
		Short: "Remove a machine and its tap; its endpoint stays",
		Args:  cobra.ExactArgs(1),
		RunE: o.run(func(_ *cobra.Command, l *lab.Lab, args []string) error {
			ns, err := l.FindNamespace(args[0])
			if err != nil {
				return err
			}
			p, err := l.Process(machineRole(args[0]))
			if err == nil {
				err = p.Kill()
			}
			if err != nil {
				return fmt.Errorf("delete machine %s: %w", args[0], err)
			}
			return ns.Remove()
		}),
	}
}

// vmRunCommand connects a machine to its tap until it is killed.
func vmRunCommand(o *options) *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use: "run NAME", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: o.run(func(_ *cobra.Command, l *lab.Lab, args []string) error {
			name := args[0]
			h, err := l.FindHost(host)
			if err != nil {
				return err
			}
			ns, err := l.FindNamespace(name)
			if err != nil {
				return err
			}
			var nic, tap *os.File
			if err := ns.Do(func() (err error) { nic, err = taps.Machine(machineMAC(name)); return err }); err != nil {
				return err
			}
			if err := h.Do(func() (err error) { tap, err = taps.Open(machineTap(name)); return err }); err != nil {
				return err
			}
			taps.Join(nic, tap)()
			return errors.New("the machine's link or its tap is gone")
		}),
	}
	cmd.Flags().StringVar(&host, "host", "", "host with the tap")
	return cmd
}

func machineRole(name string) string { return "vm-" + name }

func machineTap(name string) string { return "tap" + name }

// machineMAC derives the address from the name, so that a machine has the same one on every host.
func machineMAC(name string) model.MAC {
	h := fnv.New32a()
	h.Write([]byte(name))
	sum := h.Sum(nil)
	return model.MAC{0xfa, 0x16, 0x3e, sum[1], sum[2], sum[3]}
}
