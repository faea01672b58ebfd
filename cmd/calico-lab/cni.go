// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/lab"
)

func cniCommand(o *options) *cobra.Command {
	var host, stdin string
	call := lab.Call{}
	cmd := &cobra.Command{
		Use:   "cni VERB [CONTAINER]",
		Short: "Run one CNI verb by hand: ADD, DEL, CHECK, GC, STATUS, VERSION",
		Long: `cni runs one plugin once on a host, as a container runtime would, and prints
what it answers. The pod's namespace is made where there is none, and removed by a
DEL that succeeds. The configuration is the first plugin of the host's list, or
what --stdin names.`,
		Example: `  calico-lab cni ADD by-hand --host a
  calico-lab cni DEL by-hand --host a
  calico-lab cni STATUS --host a
  calico-lab cni VERSION --host a --plugin calico-ipam`,
		Args: cobra.RangeArgs(1, 2),
		RunE: o.run(func(cmd *cobra.Command, l *lab.Lab, args []string) error {
			h, err := l.FindHost(host)
			if err != nil {
				return err
			}
			if call.Stdin, err = stdinOf(h, stdin); err != nil {
				return err
			}
			call.Verb = strings.ToUpper(args[0])
			if stdin == "" && (call.Verb == "GC" || call.Verb == "STATUS") {
				// The host's list is for today's runtimes, which don't have these verbs.
				if call.Stdin, err = withVersion(call.Stdin, "1.1.0"); err != nil {
					return err
				}
			}
			if len(args) == 2 {
				call.ContainerID = args[1]
				if call.Netns == "" {
					if call.Netns, err = containerNetns(l, args[1], call.Verb == "ADD"); err != nil {
						return err
					}
				}
			}
			r, err := h.CNI(cmd.Context(), call)
			cmd.ErrOrStderr().Write(r.Stderr)
			cmd.OutOrStdout().Write(r.Stdout)
			var said *types.Error
			switch {
			case errors.As(err, &said):
				return &exitError{1} // it has been printed
			case err == nil && call.Verb == "DEL":
				if ns, err := l.FindNamespace(byHand(call.ContainerID)); err == nil && ns.Path() == call.Netns {
					return ns.Remove()
				}
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&host, "host", "a", "host to run on")
	f.StringVar(&stdin, "stdin", "", `file with the plugin's configuration; "-" is stdin`)
	f.StringVar(&call.Plugin, "plugin", "calico", "plugin to run")
	f.StringVar(&call.IfName, "ifname", "eth0", "CNI_IFNAME")
	f.StringVar(&call.Netns, "netns", "", "CNI_NETNS (default one that belongs to the container)")
	f.StringVar(&call.Args, "args", "", "CNI_ARGS")
	return cmd
}

func byHand(container string) string { return "cni-" + container }

// containerNetns returns the path of the namespace of a container made by hand: "" if there is none and make is false.
func containerNetns(l *lab.Lab, container string, make bool) (string, error) {
	ns, err := l.FindNamespace(byHand(container))
	if errors.Is(err, os.ErrNotExist) {
		if !make {
			return "", nil
		}
		ns, err = l.NewNamespace(byHand(container))
	}
	return ns.Path(), err
}

// stdinOf returns the configuration for the plugin.
func stdinOf(h *lab.Host, file string) ([]byte, error) {
	switch file {
	case "":
		data, err := os.ReadFile(h.ConfFile())
		if err != nil {
			return nil, err
		}
		return firstPlugin(data)
	case "-":
		return io.ReadAll(os.Stdin)
	default:
		return os.ReadFile(file)
	}
}

// withVersion returns the configuration with another cniVersion.
func withVersion(conf []byte, version string) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(conf, &fields); err != nil {
		return nil, err
	}
	fields["cniVersion"] = version
	return json.MarshalIndent(fields, "", "  ")
}

// firstPlugin returns what a runtime passes to the first plugin of a list.
func firstPlugin(conflist []byte) ([]byte, error) {
	var list struct {
		CNIVersion string           `json:"cniVersion"`
		Name       string           `json:"name"`
		Plugins    []map[string]any `json:"plugins"`
	}
	if err := json.Unmarshal(conflist, &list); err != nil {
		return nil, err
	}
	if len(list.Plugins) == 0 {
		return nil, fmt.Errorf("the network configuration list has no plugins")
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	return json.MarshalIndent(conf, "", "  ")
}
