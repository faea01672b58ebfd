// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/test/lab"
)

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show etcd, hosts and pods, and how to work on them by hand",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := o.open()
			if err != nil {
				return err
			}
			defer l.Close()
			return printStatus(cmd.Context(), cmd.OutOrStdout(), o, l)
		},
	}
}

func printStatus(ctx context.Context, out io.Writer, o *options, l *lab.Lab) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "LAB\t%s\t%s\n\n", l.Name(), l.Dir())
	fmt.Fprintln(w, "ETCD\tFROM THE HOSTS\tSTATE")
	for i, url := range l.EtcdEndpoints() {
		fmt.Fprintf(w, "etcd%d\t%s\t%s\n", i+1, url, memberState(ctx, l, i+1))
	}
	fmt.Fprintln(w, "\nHOST\tADDRESSES\tAGENT")
	for _, h := range l.Hosts() {
		agent := "does not run"
		if p, err := h.Agent(); err == nil {
			agent = fmt.Sprintf("PID %d", p.PID)
			if err := h.AgentReady(ctx); err != nil {
				agent += ", not ready: " + err.Error()
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", h.Name(), join(h.Addrs()), agent)
	}
	pods, err := l.Pods()
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nPOD\tADDRESSES\tHOST")
	for _, p := range pods {
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name(), join(p.Addrs()), p.Host().Name())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nlogs: %s/log, %s/hosts/*/log\n", l.Dir(), l.Dir())
	fmt.Fprintf(out, "\netcdctl, from anywhere on this machine:\n%s", exports(l.EtcdctlEnv()))
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
	return nil
}

func memberState(ctx context.Context, l *lab.Lab, i int) string {
	p, err := l.EtcdProcess(i)
	if err != nil {
		return err.Error()
	}
	if p == nil {
		return "does not run"
	}
	s, err := l.EtcdStatus(ctx, i)
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

// exports are lines to paste into a shell.
func exports(env []string) string {
	var b strings.Builder
	for _, kv := range env {
		fmt.Fprintf(&b, "  export %s\n", kv)
	}
	return b.String()
}
