// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// checkPodCIDR refuses what needs the Kubernetes API.
func (s *session) checkPodCIDR() error {
	if s.conf.IPAM.PodCIDR {
		return failf(CodeConfig, "write the subnet into the network configuration, or use calico-ipam",
			"ipam.subnet: usePodCidr needs the Kubernetes API, which this version does not read yet")
	}
	return nil
}

// run runs a verb of the plugin that has no result. None of these needs to know the
// node's pod CIDR, as an ADD does, which is refused. Some plugins, host-local among
// them, go by the container and yet want a subnet that parses. What addresses
// there may be, other software has asked for.
func (s *session) run(ctx context.Context, path string, args *invoke.Args) error {
	conf, err := s.conf.WithoutPodCIDR()
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, conf, args, s.exec())
}

// asksOnLink reports whether the IPAM plugin asks on the pod's interface, and
// gives back on it: that must be there when it does.
func (s *session) asksOnLink() bool { return s.conf.IPAM.Type == "dhcp" }

// delegate has another plugin give the addresses, by the CNI protocol. Where it
// has given them to this very interface before, it is not asked again.
func (a *attachment) delegate(ctx, etcd context.Context) error {
	s := a.s
	path, err := s.findDelegate()
	if err != nil {
		return err
	}
	former, err := s.delegations().note(delegationOf(a.id))
	if err != nil {
		s.log.Warn("GC will not know of the addresses should this call die", "error", err)
		former = true // or not: nobody knows
	}
	if former || a.linked || s.asksOnLink() {
		if err := a.reading.wait(); err != nil {
			return err
		}
		a.former(a.reading.v)
		// The note may be lost while the pod runs.
		former = former || a.wire.again
	}
	if former || s.asksOnLink() {
		if err := a.wire.ready(etcd); err != nil {
			return err
		}
	}
	if former {
		if answer, ok := a.recall(); ok {
			return a.take(answer)
		}
	}
	a.asked = true // a plugin that fails may have done half of its work
	if former {
		if err := a.startOver(ctx); err != nil {
			return err
		}
	}
	if err := s.delegations().asked(delegationOf(a.id), s.conf.Raw); err != nil {
		s.log.Warn("should ipam.type be another by then, a DEL will not give the addresses back", "error", err)
	}
	step("before ipam")
	raw, err := invoke.ExecPluginWithResult(ctx, path, s.conf.Raw, s.delegateArgs("ADD"), s.exec())
	if err != nil {
		return s.explainDelegate(err)
	}
	step("after ipam")
	answer, err := types100.GetResult(raw)
	if err != nil {
		return failf(CodeDecode, "use a version of it that knows the cniVersion", "result of the IPAM plugin %s: %w", s.conf.IPAM.Type, err)
	}
	if err := a.take(answer); err != nil {
		return err
	}
	if err := s.delegations().keep(delegationOf(a.id), s.conf.IPAM.Type, answer); err != nil {
		s.log.Warn("an ADD that is repeated will get other addresses", "error", err)
	}
	step("answer kept")
	return nil
}

// recall returns what the plugin has given to this interface, if it is still in
// use: the endpoint in etcd is this container's and has these addresses. What is
// leased over the link goes with the link.
func (a *attachment) recall() (*types100.Result, bool) {
	answer, ok := a.s.delegations().kept(delegationOf(a.id), a.s.conf.IPAM.Type)
	ep, live := a.former(a.reading.v)
	if !ok || !live || ep.ContainerID != a.id.cid || a.s.asksOnLink() && a.wire.undo != nil {
		return nil, false
	}
	addrs, err := addrsOf(answer)
	if _, differ := difference(addrs, ep.Addrs()); err != nil || differ {
		return nil, false
	}
	a.s.log.Info("the IPAM plugin has given this interface its addresses before", "ipam", a.s.conf.IPAM.Type)
	return answer, true
}

// take uses what the plugin gave.
func (a *attachment) take(r *types100.Result) error {
	s := a.s
	addrs, err := addrsOf(r)
	if err != nil {
		return failf(CodeDecode, "", "result of the IPAM plugin %s: %w", s.conf.IPAM.Type, err)
	}
	if len(addrs) == 0 {
		return failf(CodeConfig, "correct the ipam section of the network configuration", "the IPAM plugin %s gave no address", s.conf.IPAM.Type)
	}
	for _, addr := range addrs {
		if !addr.IsGlobalUnicast() {
			return failf(CodeConfig, "have it give an address that can be routed to",
				"the IPAM plugin %s gave %s: not an address that a container can have here", s.conf.IPAM.Type, addr)
		}
	}
	if slices.ContainsFunc(addrs, netip.Addr.Is6) {
		if err := a.s.checkMAC(); err != nil {
			return err
		}
	}
	a.addrs = addrs
	for _, route := range r.Routes {
		r, ok, err := routeOf(route)
		if err != nil {
			return failf(CodeConfig, "correct the routes of the ipam section of the network configuration", "the IPAM plugin %s gave a %w", s.conf.IPAM.Type, err)
		}
		if ok {
			a.routes = append(a.routes, r)
		}
	}
	if a.dns = dns(s.conf.DNS); a.dns.IsEmpty() {
		a.dns = r.DNS
	}
	return nil
}

// addrsOf are the addresses of a plugin's result, each once.
func addrsOf(r *types100.Result) ([]netip.Addr, error) {
	if err := complete(r); err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, ip := range r.IPs {
		addr, ok := addrOf(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("bad address %v", ip.Address)
		}
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out, nil
}

func (s *session) delegations() delegations { return newDelegations(s.env.varDir) }

// delegateVerb runs a verb without a result.
func (s *session) delegateVerb(ctx context.Context, verb string) error {
	path, err := s.findDelegate()
	if err != nil {
		return err
	}
	return s.explainDelegate(s.run(ctx, path, s.delegateArgs(verb)))
}

// delegateKnows reports whether the plugin can be asked for a verb that came
// with the version.
func (s *session) delegateKnows(ctx context.Context, since string) (bool, error) {
	path, err := s.findDelegate()
	if err != nil {
		return false, err
	}
	info, err := invoke.GetVersionInfo(ctx, path, s.exec())
	if err != nil {
		return false, s.explainDelegate(err)
	}
	return slices.ContainsFunc(info.SupportedVersions(), func(v string) bool {
		ok, err := version.GreaterThanOrEqualTo(v, since)
		return err == nil && ok
	}), nil
}

func (s *session) findDelegate() (string, error) {
	name := s.conf.IPAM.Type
	if s.env.path == "" {
		return "", failf(CodeEnvironment, "set it to the directories of the CNI plugins", "CNI_PATH is not set, and ipam.type is %s", name)
	}
	path, err := invoke.FindInPath(name, filepath.SplitList(s.env.path))
	if err != nil {
		return "", failf(CodeConfig, "install it, or correct ipam.type", "IPAM plugin %s: not in CNI_PATH %s", name, s.env.path)
	}
	return path, nil
}

func (s *session) delegateArgs(verb string) *invoke.Args {
	return &invoke.Args{
		Command: verb, ContainerID: s.env.containerID, NetNS: s.env.netns, IfName: s.env.ifName,
		PluginArgsStr: s.env.rawArgs, Path: s.guardedPath(),
	}
}

func (s *session) exec() invoke.Exec {
	return &delegateExec{
		DefaultExec: invoke.DefaultExec{RawExec: &invoke.RawExec{}}, lock: s.lock, name: s.conf.IPAM.Type, timeout: delegateTimeout,
	}
}

// explainDelegate names the plugin that failed. Its error keeps its code.
func (s *session) explainDelegate(err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Code: CodeDecode, Text: "IPAM plugin " + s.conf.IPAM.Type + ": " + err.Error(), Err: err}
	if _, ok := errors.AsType[*stoppedError](err); ok {
		e.Code = CodeTryAgain
	} else if errors.Is(err, context.Canceled) {
		e.Code, e.Hint = CodeTryAgain, "the call was interrupted by a signal: try again"
	}
	if theirs, ok := errors.AsType[*types.Error](err); ok {
		e.Text, e.Hint = "IPAM plugin "+s.conf.IPAM.Type+": "+theirs.Msg, theirs.Details
		if e.Code = theirs.Code; e.Code == 0 {
			e.Code = CodeIO
		}
	}
	if e.Hint == "" && !s.asksOnLink() {
		e.Hint = lookAtIPAM
	}
	if e.Hint == "" && s.asksOnLink() {
		e.Hint = "run `dhcp daemon` on this node, and a DHCP server or relay that listens on the node's cali* interfaces: " +
			"a pod's only neighbour is its node"
	}
	return e
}
