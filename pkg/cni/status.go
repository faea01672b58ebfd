// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// statusTimeout bounds the question to the agent. It has the answer at hand, and may have to
// wait for a processor.
const statusTimeout = 10 * time.Second

// status says whether an ADD would succeed now. Without the agent what pods
// that exist may do no longer follows what is decided: that is code 51. Without
// etcd nothing changes for them: code 50.
func (s *session) status(ctx context.Context) error {
	if err := s.checkNames(); err != nil {
		return err
	}
	if err := s.checkIPAM(); err != nil {
		return err
	}
	if err := s.checkHostIPv6(); err != nil {
		return err
	}
	agent := s.async(func() error {
		if s.plugin == CalicoIPAM || s.conf.PolicySetupTimeout == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		err := gate.Ping(ctx, s.conf.AgentSocket, s.node)
		if errors.Is(err, gate.ErrNoAgent) && s.triedByHand() {
			return nil
		}
		return err
	})
	etcd := s.etcdStatus(ctx)
	err := agent.wait()
	// An agent that says why it can't serve looks after the pods that exist. If
	// etcd is the reason, that is what must be seen to.
	rejected, says := errors.AsType[*gate.RejectedError](err)
	if says && etcd != nil {
		err = nil
	}
	if errors.Is(err, os.ErrPermission) {
		return failf(CodeUnavailable, "run the plugin as root", "the agent can't be asked whether it serves an ADD: %w", err)
	}
	if err != nil && says && !rejected.Retry {
		return failf(CodeUnavailable, correctNodename, "the agent can't serve an ADD: %w", err)
	}
	if err != nil {
		return failf(CodeLimited, "check that calico-node runs on this node, and its log", "the agent can't serve an ADD: %w", err)
	}
	if etcd != nil {
		e := explain(etcd)
		return &Error{Code: CodeUnavailable, Text: e.Text, Hint: e.Hint, Err: etcd}
	}
	if s.plugin == CalicoIPAM || s.conf.IPAM.Type == netconf.CalicoIPAM {
		return nil
	}
	if knows, err := s.delegateKnows(ctx, "1.1.0"); err != nil || !knows {
		return err
	}
	return s.delegateVerb(ctx, "STATUS")
}

// checkHostIPv6 refuses a host without IPv6 where each pod is to have it: new links
// are as the default says.
func (s *session) checkHostIPv6() error {
	v6 := s.conf.IPAM.AssignIPv6 || slices.ContainsFunc(s.wantedAddrs(), netip.Addr.Is6)
	if !v6 || s.plugin != Calico || s.conf.IPAM.Type != netconf.CalicoIPAM {
		return nil
	}
	const hint = "enable it, or set ipam.assign_ipv6 to false"
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return failf(CodeUnavailable, hint, "pods are to have IPv6 addresses, and this kernel has no IPv6")
	case err == nil && strings.TrimSpace(string(disabled)) != "0":
		return failf(CodeUnavailable, hint, "pods are to have IPv6 addresses, and IPv6 is disabled on the host: sysctl net.ipv6.conf.default.disable_ipv6 is %s",
			bytes.TrimSpace(disabled))
	}
	return nil
}

// etcdStatus does all of an ADD's work in etcd but the writing.
func (s *session) etcdStatus(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.conf.DatastoreTimeout)
	defer cancel()
	if err := s.open(ctx); err != nil {
		return err
	}
	// No handle has this name: container ids don't begin with a dot.
	request := s.request(identity{network: s.conf.Name, handle: s.conf.Name + "..status", key: model.WorkloadEndpointKey{Host: s.node}})
	wants := []ipam.Want{{Key: model.ReadyKey{}}}
	if s.plugin == Calico {
		wants = append(wants, ipam.Want{Key: s.statusEndpoint().key})
		for _, k := range s.profileKeys() {
			wants = append(wants, ipam.Want{Key: k})
		}
	}
	ours := s.plugin == CalicoIPAM || s.conf.IPAM.Type == netconf.CalicoIPAM
	// Where all addresses are asked for by number, which ones they will be isn't known.
	ours = ours && (request.IPv4 || request.IPv6 || len(request.Addrs) > 0)
	if ours {
		wants = append(wants, ipam.FirstRead(request)...)
	}
	v := newView()
	var change model.Change
	for len(wants) > 0 {
		if err := s.read(ctx, v, wants); err != nil {
			return err
		}
		wants = nil
		if err := v.checkReady(); err != nil {
			return err
		}
		if ours {
			plan := ipam.NewPlan(v.ipam)
			choice, err := assign(plan, v, request)
			_, taken := errors.AsType[*ipam.TakenError](err)
			if err == nil && s.plugin == CalicoIPAM {
				_, err = s.reserveGateways(plan, v, request, choice)
			}
			if need, more := errors.AsType[*ipam.NeedError](err); more {
				wants = need.Wants
			} else if taken {
				break // by the very container that the configuration has it for
			} else if err != nil {
				return err
			}
			change = plan.Change()
		}
	}
	if s.plugin == Calico {
		id := s.statusEndpoint()
		change.Puts = append(change.Puts, model.Put{Key: id.key, Value: s.endpoint(id, podMAC(id.cid), s.mtu(), nil, model.WorkloadEndpoint{})})
		change.Merge(s.profile(v))
	}
	if len(change.Puts) == 0 { // nothing could be chosen: every ADD writes a handle
		change.Puts = []model.Put{{Key: model.HandleKey{ID: request.Handle}, Value: model.Handle{ID: request.Handle}}}
	}
	return s.writable(ctx, change)
}

// statusEndpoint is the identity of a container that there is not.
func (s *session) statusEndpoint() identity {
	const cid = ".status"
	return identity{network: s.conf.Name, cid: cid, hostIf: "cali",
		key: model.WorkloadEndpointKey{Host: s.node, Orchestrator: "cni", Workload: cid, Endpoint: "eth0"}}
}

// writable finds out whether etcd takes what an ADD would write, without writing it: a compare
// that can't hold is tested after the server's own checks, of room and of permissions.
func (s *session) writable(ctx context.Context, change model.Change) error {
	change.Compares = []model.Compare{{Key: model.ReadyKey{}, Revision: 1<<62 - 1}}
	puts := change.Puts
	change.Puts = nil
	for _, p := range puts {
		if _, large := p.Key.(model.BlockKey); large { // members write to disk what is not done, too; to delete takes the same permission
			change.Deletes = append(change.Deletes, p.Key)
		} else {
			change.Puts = append(change.Puts, p)
		}
	}
	_, err := s.client.Commit(ctx, change)
	if _, ok := errors.AsType[*store.ConflictError](err); ok {
		return nil
	}
	return err
}
