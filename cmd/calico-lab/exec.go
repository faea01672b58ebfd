// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func execCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command in the network of a pod, a host, or the fabric",
		Long: `exec runs a command in the network of a pod, a virtual machine or a host; NAME "fabric" is the
namespace of etcd and of the wire between the hosts, "rack1" that of a rack's router. Only the network is another:
files and processes are the machine's. On a host, the environment tells Calico's
programs where they are.`,
		Example: `  calico-lab exec web -- sh
  calico-lab exec web -- ip addr
  calico-lab exec a -- ip route`,
		Args: cobra.MinimumNArgs(2),
		RunE: o.run(func(_ *cobra.Command, l *lab.Lab, args []string) error {
			if args[1] == "--" && len(args) > 2 {
				args = slices.Delete(args, 1, 2)
			}
			ns, env, err := find(l, args[0])
			if err != nil {
				return err
			}
			path, err := exec.LookPath(args[1])
			if err != nil {
				return err
			}
			// The command replaces this process, and takes over the terminal, the signals and the exit status.
			runtime.LockOSThread()
			return ns.Enter(func() error {
				if err := syscall.Exec(path, args[1:], env); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				return nil
			})
		}),
	}
	// Everything after the name belongs to the command, including flags, with or without --.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// find finds a pod, a host, a router, or the fabric.
func find(l *lab.Lab, name string) (lab.Namespace, []string, error) {
	env := append(os.Environ(), "CALICO_LAB="+l.Name(), "CALICO_LAB_NAMESPACE="+name)
	if name == "fabric" {
		return l.Fabric(), env, nil
	}
	for _, r := range l.Routers() {
		if r.Name() == name {
			return r.Namespace(), env, nil
		}
	}
	if h, err := l.FindHost(name); err == nil {
		return h.Namespace(), append(env, h.Env()...), nil
	}
	p, err := l.FindPod(name)
	if errors.Is(err, os.ErrNotExist) {
		if ns, err := l.FindNamespace(name); err == nil { // a virtual machine's
			return ns, env, nil
		}
		return lab.Namespace{}, nil, fmt.Errorf("lab %s has neither a pod nor a host %s: calico-lab status shows what there is", l.Name(), name)
	}
	if err != nil {
		return lab.Namespace{}, nil, err
	}
	return p.Namespace(), env, nil
}
