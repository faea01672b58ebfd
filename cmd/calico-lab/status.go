// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

// statusPatience is how long a process of the lab may take to report its state.
const statusPatience = 10 * time.Second

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show etcd, hosts and pods, and how to work on them by hand",
		Args:  cobra.NoArgs,
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, _ []string) error {
			return printStatus(cmd.Context(), cmd.OutOrStdout(), o, l, statusPatience)
		}),
	}
}

func printStatus(ctx context.Context, out io.Writer, o *options, l *lab.Lab, patience time.Duration) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "LAB\t%s\t%s\n\n", l.Name(), l.Dir())
	fmt.Fprintln(w, "ETCD\tFROM THE HOSTS\tSTATE")
	for i, url := range l.Members().Endpoints() {
		fmt.Fprintf(w, "etcd%d\t%s\t%s\n", i+1, url, memberState(ctx, l, i+1, patience))
	}
	if err := printHosts(ctx, w, l, patience); err != nil {
		return err
	}
	pods, err := l.Pods()
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nPOD\tADDRESSES\tHOST")
	for _, p := range pods {
		host := p.Host().Name()
		if !p.Exists() {
			host += " (gone with the host's reboot)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name(), join(p.Addrs()), host)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nlogs: %s/log, %s/hosts/*/log\n", l.Dir(), l.Dir())
	fmt.Fprintf(out, "\ncalicoctl, from anywhere on this machine:\n%s", exports(l.Members().CalicoctlEnv()))
	if hosts := l.Hosts(); len(hosts) > 0 {
		h := hosts[0]
		fmt.Fprintf(out, `
a plugin by hand, on host %[1]s (%[2]s puts you there):
  export CNI_COMMAND=ADD CNI_CONTAINERID=by-hand CNI_IFNAME=eth0 CNI_NETNS=PATH
  jq '.plugins[0] + {name, cniVersion}' %[3]s | calico
or:
  %[4]s
`, h.Name(), o.hint("exec "+h.Name()+" -- sh"), h.ConfFile(), o.hint("cni ADD by-hand --host "+h.Name()))
	}
	_, err = fmt.Fprintf(out, "\netcdctl, to look below what calicoctl shows:\n%s", exports(l.Members().EtcdctlEnv()))
	return err
}

// printHosts prints columns for racks and faults only if there are any.
func printHosts(ctx context.Context, w io.Writer, l *lab.Lab, patience time.Duration) error {
	hosts, routers := l.Hosts(), l.Routers()
	if len(routers) > 0 {
		fmt.Fprintln(w, "\nROUTER\tIN THE RACK\tON THE FABRIC")
		for _, r := range routers {
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Name(), join(r.Addrs()), join(r.Uplinks()))
		}
	}
	rows := [][]string{{"\nHOST", "RACK", "ADDRESSES", "AGENT", "FAULTS"}}
	faulty := false
	for _, h := range hosts {
		agent := "does not run"
		if p, err := h.Agent().Process(); err == nil {
			agent = fmt.Sprintf("PID %d", p.PID)
			if err := within(ctx, patience, h.Agent().Ready); err != nil {
				agent += ", not ready: " + err.Error()
			}
		}
		rack := "-"
		if r := h.Router(); r != nil {
			rack = r.Name()
		}
		f, err := h.Faults()
		if err != nil {
			return err
		}
		faulty = faulty || f.String() != ""
		rows = append(rows, []string{h.Name(), rack, join(h.Addrs()), agent, f.String()})
	}
	for _, row := range rows {
		if !faulty {
			row = row[:4]
		}
		if len(routers) == 0 {
			row = slices.Delete(row, 1, 2)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return nil
}

// within asks a process for its state with a timeout, since it may hang.
func within(ctx context.Context, patience time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := ask(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", patience)
	}
	return err
}

func memberState(ctx context.Context, l *lab.Lab, i int, patience time.Duration) string {
	p, err := l.Members().Process(i)
	if err != nil {
		return err.Error()
	}
	if p == nil {
		return "does not run"
	}
	var s lab.MemberStatus
	err = within(ctx, patience, func(ctx context.Context) (err error) {
		s, err = l.Members().Status(ctx, i)
		return err
	})
	switch {
	case err != nil:
		return fmt.Sprintf("PID %d: %v", p.PID, err)
	case s.Leader == 0:
		return fmt.Sprintf("PID %d, no leader", p.PID)
	case s.Leader == s.ID:
		return fmt.Sprintf("PID %d, leader, revision %d", p.PID, s.Revision)
	default:
		return fmt.Sprintf("PID %d, revision %d", p.PID, s.Revision)
	}
}

// exports returns lines to paste into a shell.
func exports(env []string) string {
	var b strings.Builder
	for _, kv := range env {
		fmt.Fprintf(&b, "  export %s\n", kv)
	}
	return b.String()
}
