// SPDX-License-Identifier: Apache-2.0

// Package ctl implements calicoctl, the operator's tool, which reads and changes the data model in etcd as resources.
package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-go/calico/pkg/ctl/connectivity"
	"github.com/calico-go/calico/pkg/ctl/datastore"
	"github.com/calico-go/calico/pkg/ctl/diags"
	"github.com/calico-go/calico/pkg/ctl/doctor"
	"github.com/calico-go/calico/pkg/ctl/explain"
	"github.com/calico-go/calico/pkg/ctl/ipam"
	"github.com/calico-go/calico/pkg/ctl/node"
	"github.com/calico-go/calico/pkg/ctl/resources"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ctl/status"
)

// commands make the subcommands, in the order in which help lists them.
var commands = []func(*session.Env) *cobra.Command{
	resources.NewGet,
	resources.NewApply,
	resources.NewCreate,
	resources.NewReplace,
	resources.NewPatch,
	resources.NewLabel,
	resources.NewDelete,
	resources.NewValidate,
	resources.NewConvert,
	resources.NewSchema,
	resources.NewConfig,
	status.New,
	doctor.New,
	node.New,
	connectivity.New,
	diags.NewCluster,
	explain.New,
	ipam.New,
	datastore.New,
	newVersion,
}

// Run runs a command line and returns the exit status, see session.Status.
func Run(ctx context.Context, env *session.Env, args []string) int {
	defer env.Close()
	defer env.ReportProgress()()
	root := Command(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(env.Stderr, "calicoctl:", line)
		}
	}
	return session.Status(err)
}

// Command returns calicoctl with all of its subcommands.
func Command(env *session.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "calicoctl",
		Short: "Read and change what a Calico cluster is told to do",
		Long: `calicoctl reads and changes, as resources, what a Calico cluster is told to do.

It finds etcd by its flags, else by the environment (ETCD_ENDPOINTS, ETCD_CA_CERT_FILE, ...), else by the file that
--config names.

` + session.StatusHelp,
		Version:       env.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("calicoctl {{.Version}}\n")
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			want := map[string]string{"bool": "true or false", "int": "a whole number", "duration": "a time as 10s or 2m"}
			f := bad.GetFlag()
			err = fmt.Errorf("--%s %q: want %s", f.Name, bad.GetValue(), cmp.Or(want[f.Value.Type()], f.Value.Type()))
		}
		return session.Usagef("%w: see %s --help", err, cmd.CommandPath())
	})
	env.AddFlags(root)
	for _, command := range commands {
		root.AddCommand(command(env))
	}
	markUsage(root)
	return root
}

// markUsage makes wrong arguments, in all commands, end with the status of a wrong command line.
func markUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			want := fmt.Sprintf("want %s %s", cmd.Parent().CommandPath(), cmd.Use)
			switch { // in place of cobra's wording
			case err == nil:
			case strings.Contains(err.Error(), "arg(s)"): // it says how many there are
				err = errors.New(want)
			case strings.HasPrefix(err.Error(), "unknown command") && !cmd.HasSubCommands():
				err = fmt.Errorf("%q doesn't belong there: %s", args[0], want)
			}
			if err != nil {
				return session.Usagef("%w: see %s --help", err, cmd.CommandPath())
			}
			return nil
		}
	}
	if !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				hint := ""
				if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
					hint = "; did you mean " + strings.Join(like, " or ") + "?"
				}
				return session.Usagef("unknown command %q%s: see %s --help", args[0], hint, cmd.CommandPath())
			}
			return cmd.Help()
		}
		cmd.Args, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}
