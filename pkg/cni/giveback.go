// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"

	"github.com/calico-go/calico/netconf"
)

// startOver gives back what an earlier ADD for the same interface was given,
// which may have died: few plugins give the same again. The pod may be using it,
// so its link goes, and if this ADD fails its endpoint too.
func (a *attachment) startOver(ctx context.Context) error {
	a.renewed = true
	relink := func() error {
		if a.wire.undo != nil {
			return nil
		}
		return a.wire.replace()
	}
	a.s.giveBackFormer(ctx, a.id)
	if a.s.asksOnLink() {
		return errors.Join(a.s.delegateDel(ctx, a.id), relink())
	}
	if err := relink(); err != nil {
		return err
	}
	return a.s.delegateDel(ctx, a.id)
}

func (a *attachment) undelegate(ctx context.Context) error {
	if !a.asked {
		return nil
	}
	return a.s.giveBack(ctx, a.id)
}

// giveBack frees what other plugins gave to an attachment, the call's own or
// another.
func (s *session) giveBack(ctx context.Context, id identity) error {
	if s.conf.IPAM.Type != netconf.CalicoIPAM && s.conf.IPAM.Type != "" {
		if err := s.delegateDel(ctx, id); err != nil {
			return err
		}
	}
	if !s.giveBackFormer(ctx, id) {
		return nil
	}
	return s.delegations().forget(delegationOf(id))
}

// giveBackFormer has the plugin that gave the addresses take them back, where
// ipam.type is another by now, with the configuration that it gave them by. It may
// be gone, or want a daemon that is: that keeps no container from being deleted,
// and GC tries again.
func (s *session) giveBackFormer(ctx context.Context, id identity) (ok bool) {
	conf, asked := s.delegations().askedWith(delegationOf(id))
	if !asked || conf.IPAM.Type == s.conf.IPAM.Type {
		return true
	}
	former := &session{
		env: s.env, conf: conf, log: s.log, locks: s.locks, plugin: s.plugin, started: s.started, lock: s.lock, node: s.node,
	}
	if err := former.delegateDel(ctx, id); err != nil {
		s.log.Warn("addresses are not given back", "ipam", conf.IPAM.Type, "error", err)
		return false
	}
	s.log.Info("addresses given back to the IPAM plugin of before", "ipam", conf.IPAM.Type)
	return true
}

func (s *session) delegateDel(ctx context.Context, id identity) error {
	path, err := s.findDelegate()
	if err != nil {
		return err
	}
	// From here on nobody knows whether they are still held.
	if err := s.delegations().drop(delegationOf(id)); err != nil {
		return fail(CodeIO, err, "")
	}
	step("answer dropped")
	args := s.delegateArgs("DEL")
	// As with ours: a container that no ADD was done for because of its arguments
	// must be deletable. What is held goes by the container.
	if s.env.argsErr != nil {
		args.PluginArgsStr = "IgnoreUnknown=1"
	} else if args.PluginArgsStr != "" {
		args.PluginArgsStr += ";IgnoreUnknown=1"
	}
	if id.cid != s.env.containerID || id.ifName != s.env.ifName {
		args.ContainerID, args.IfName, args.NetNS = id.cid, id.ifName, ""
	}
	err = s.run(ctx, path, args)
	step("given back")
	return s.explainDelegate(err)
}
