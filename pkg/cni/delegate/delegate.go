// SPDX-License-Identifier: Apache-2.0

// Package delegate asks another IPAM plugin for addresses, using the CNI protocol.
package delegate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/kernel/killpoint"
	"github.com/calico-go/calico/pkg/kernel/pod"
)

// timeout bounds one run of another plugin: the dhcp daemon asks for about a minute, and kubelet waits for four.
const timeout = 2 * time.Minute

// mainPlugins ask ipam.type for addresses themselves; used as ipam.type, they would call themselves without end.
var mainPlugins = []string{"calico", "bridge", "dummy", "host-device", "ipvlan", "loopback", "macvlan", "ptp", "tap", "vlan"}

// Plugin is the IPAM plugin that ipam.type names.
type Plugin struct {
	Conf *netconf.Config
	Env  protocol.Environ
	// PodCIDRs are those of the Kubernetes Node, for an ADD.
	PodCIDRs []netip.Prefix
	// Inheritable makes child processes hold the interface's lock as well. It may be nil.
	Inheritable func()
}

// Answer is the result of an IPAM plugin.
type Answer struct {
	Addrs  []netip.Addr
	Routes []pod.Route // in place of the default routes
	DNS    types.DNS
}

// Check returns an error if the plugin can't be called.
func (p Plugin) Check() error {
	if slices.Contains(mainPlugins, p.Conf.IPAM.Type) {
		return protocol.Failf(protocol.CodeConfig, "set ipam.type to calico-ipam, or to another IPAM plugin",
			"ipam.type %s is a main plugin: it asks ipam.type for addresses, which is itself", p.Conf.IPAM.Type)
	}
	_, err := p.find()
	return err
}

// Add asks for addresses.
func (p Plugin) Add(ctx context.Context) (Answer, error) {
	path, err := p.find()
	if err != nil {
		return Answer{}, err
	}
	conf, err := p.configuration()
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	killpoint.Step("before ipam")
	var raw types.Result
	err = p.speak(ctx, path, conf, func(conf []byte) (err error) {
		raw, err = invoke.ExecPluginWithResult(ctx, path, conf, p.args("ADD", p.Env.ContainerID, p.Env.IfName), p.exec())
		return err
	})
	if err != nil {
		return Answer{}, p.explain(ctx, err)
	}
	killpoint.Step("after ipam")
	result, err := types100.GetResult(raw)
	if err != nil {
		return Answer{}, protocol.Failf(protocol.CodeDecode, "use a version of it that knows the cniVersion", "result of the IPAM plugin %s: %w", p.Conf.IPAM.Type, err)
	}
	return p.read(result)
}

// configuration returns the network configuration passed to the plugin for an ADD.
func (p Plugin) configuration() ([]byte, error) {
	conf, err := p.Conf.WithPodCIDRs(p.PodCIDRs)
	if err != nil {
		return nil, protocol.Fail(protocol.CodeTryAgain, err, "have Kubernetes give its nodes podCIDRs (--allocate-node-cidrs), or write the subnet into the network configuration")
	}
	return conf, nil
}

// CheckPodCIDRs returns an error if the Node lacks the pod CIDRs that the network configuration asks for.
func (p Plugin) CheckPodCIDRs() error {
	_, err := p.configuration()
	return err
}

// read extracts from a result what a pod can use.
func (p Plugin) read(r *types100.Result) (Answer, error) {
	name := p.Conf.IPAM.Type
	addrs, err := addrsOf(r)
	if err != nil {
		return Answer{}, protocol.Failf(protocol.CodeDecode, "", "result of the IPAM plugin %s: %w", name, err)
	}
	if len(addrs) == 0 {
		return Answer{}, protocol.Failf(protocol.CodeConfig, "correct the ipam section of the network configuration", "the IPAM plugin %s gave no address", name)
	}
	for _, addr := range addrs {
		if !addr.IsGlobalUnicast() {
			return Answer{}, protocol.Failf(protocol.CodeConfig, "have it give an address that can be routed to",
				"the IPAM plugin %s gave %s: not an address that a container can have here", name, addr)
		}
	}
	out := Answer{Addrs: addrs, DNS: protocol.DNS(p.Conf.DNS)}
	for _, route := range r.Routes {
		r, ok, err := attach.RouteOf(route)
		if err != nil {
			return Answer{}, protocol.Failf(protocol.CodeConfig, "correct the routes of the ipam section of the network configuration", "the IPAM plugin %s gave a %w", name, err)
		}
		if ok {
			out.Routes = append(out.Routes, r)
		}
	}
	if out.DNS.IsEmpty() {
		out.DNS = r.DNS
	}
	return out, nil
}

// addrsOf returns the addresses of a plugin's result without duplicates.
func addrsOf(r *types100.Result) ([]netip.Addr, error) {
	if err := protocol.Complete(r); err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, ip := range r.IPs {
		addr, ok := protocol.AddrOf(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("bad address %v", ip.Address)
		}
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out, nil
}

// Del makes the plugin release what it assigned to a container interface, the call's own or another.
func (p Plugin) Del(ctx context.Context, id protocol.Identity) error {
	args := p.args("DEL", id.Container, id.IfName)
	// It must be possible to delete a container whose ADD failed because of its arguments. The plugin finds what it
	// holds by the container.
	if p.Env.ArgsErr != nil {
		args.PluginArgsStr = "IgnoreUnknown=1"
	} else if args.PluginArgsStr != "" {
		args.PluginArgsStr += ";IgnoreUnknown=1"
	}
	if id.Container != p.Env.ContainerID || id.IfName != p.Env.IfName {
		args.NetNS = ""
	}
	err := p.run(ctx, args)
	killpoint.Step("given back")
	return err
}

// Verb runs a verb that has no result.
func (p Plugin) Verb(ctx context.Context, verb string) error {
	return p.run(ctx, p.args(verb, p.Env.ContainerID, p.Env.IfName))
}

// run runs a verb that has no result. Unlike ADD, these verbs need no pod CIDR of the node, and they should not depend
// on the Kubernetes API. Some plugins, such as host-local, go by the container and yet require a subnet that parses.
func (p Plugin) run(ctx context.Context, args *invoke.Args) error {
	if slices.Contains(mainPlugins, p.Conf.IPAM.Type) {
		return nil // no ADD can have succeeded like this, and the plugin would call itself without end
	}
	path, err := p.find()
	if err != nil {
		return err
	}
	conf, err := p.Conf.WithoutPodCIDR()
	if err != nil {
		return p.explain(ctx, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p.explain(ctx, p.speak(ctx, path, conf, func(conf []byte) error {
		return invoke.ExecPluginWithoutResult(ctx, path, conf, args, p.exec())
	}))
}

func (p Plugin) find() (string, error) {
	name := p.Conf.IPAM.Type
	if p.Env.Path == "" {
		return "", protocol.Failf(protocol.CodeEnvironment, "set it to the directories of the CNI plugins", "CNI_PATH is not set, and ipam.type is %s", name)
	}
	path, err := invoke.FindInPath(name, filepath.SplitList(p.Env.Path))
	if err != nil {
		return "", protocol.Failf(protocol.CodeConfig, "install it, or correct ipam.type", "IPAM plugin %s: not in CNI_PATH %s", name, p.Env.Path)
	}
	return path, nil
}

func (p Plugin) args(verb, containerID, ifName string) *invoke.Args {
	return &invoke.Args{
		Command: verb, ContainerID: containerID, NetNS: p.Env.Netns, IfName: ifName, PluginArgsStr: p.Env.RawArgs, Path: p.Env.Path,
	}
}

func (p Plugin) exec() invoke.Exec {
	if p.Inheritable != nil {
		p.Inheritable()
	}
	return &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
}

// explain adds the plugin's name to its error. The error keeps its code.
func (p Plugin) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	name := p.Conf.IPAM.Type
	e := &protocol.Error{Code: protocol.CodeDecode, Text: "IPAM plugin " + name + ": " + err.Error(), Err: err}
	if theirs, ok := errors.AsType[*types.Error](err); ok {
		e.Text, e.Hint = "IPAM plugin "+name+": "+theirs.Msg, theirs.Details
		if e.Code = theirs.Code; e.Code == 0 {
			e.Code = protocol.CodeIO
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Code, e.Text, e.Hint = protocol.CodeTryAgain, "IPAM plugin "+name+": "+ctx.Err().Error(), "the call was interrupted by a signal: try again"
	case ctx.Err() != nil:
		e.Code, e.Text = protocol.CodeTryAgain, fmt.Sprintf("IPAM plugin %s: it did not answer within %v", name, timeout)
	}
	if e.Hint == "" && name == "dhcp" {
		e.Hint = "run `dhcp daemon` on this node, and a DHCP server or relay that listens on the node's cali* interfaces: " +
			"a pod's only neighbour is its node"
	} else if e.Hint == "" {
		e.Hint = protocol.LookAtIPAM
	}
	return e
}
