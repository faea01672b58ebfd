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

	"github.com/calico-go/calico/pkg/cni/addresses"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
)

// agentTimeout bounds a question to the agent. It has the answer at hand, and may have to
// wait for a processor.
const agentTimeout = 10 * time.Second

// asStatus gives an error the code by which STATUS says that an ADD would fail.
func asStatus(command string, err error) error {
	if command != "STATUS" || err == nil {
		return err
	}
	e := protocol.Explain(err)
	return &protocol.Error{Code: protocol.CodeUnavailable, Text: e.Text, Hint: e.Hint, Err: err}
}

// status says whether an ADD would succeed now. Without the agent what pods
// that exist may do no longer follows what is decided: that is code 51. Without
// etcd nothing changes for them: code 50.
func (c *call) status(ctx context.Context) error {
	if err := c.checkNames(); err != nil {
		return err
	}
	if err := c.checkIPAM(); err != nil {
		return err
	}
	if err := c.checkHostIPv6(); err != nil {
		return err
	}
	agent := attach.Async(c.log, func() error {
		if c.plugin == protocol.CalicoIPAM || c.conf.Agent.Timeout == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		err := gate.Ping(ctx, c.conf.Agent.Socket, c.node.name)
		if errors.Is(err, gate.ErrNoAgent) && attach.AgentNeverRan(c.conf) {
			return nil
		}
		return err
	})
	etcd := c.etcdStatus(ctx)
	err := agent.Wait()
	// An agent that says why it can't serve looks after the pods that exist. If
	// etcd is the reason, that is what must be seen to.
	rejected, says := errors.AsType[*gate.RejectedError](err)
	if says && etcd != nil {
		err = nil
	}
	const text = "the agent can't serve an ADD: %w"
	switch {
	case errors.Is(err, os.ErrPermission):
		return protocol.Failf(protocol.CodeUnavailable, "run the plugin as root", "the agent can't be asked whether it serves an ADD: %w", err)
	case err != nil && says && !rejected.Retry:
		return protocol.Failf(protocol.CodeUnavailable, correctNodename, text, err)
	case err != nil:
		return protocol.Failf(protocol.CodeLimited, "check that calico-node runs on this node, and its log", text, err)
	case etcd != nil:
		return asStatus("STATUS", etcd)
	}
	if err := asStatus("STATUS", errors.Join(c.podStatus(ctx), c.checkMTU())); err != nil || !c.delegates() {
		return err
	}
	if knows, err := c.delegate().Knows(ctx, "1.1.0"); err != nil || !knows {
		return err
	}
	return c.delegate().Verb(ctx, "STATUS")
}

// podStatus finds out whether the agent could be asked for a pod.
func (c *call) podStatus(ctx context.Context) (err error) {
	if c.plugin != protocol.Calico || !c.readsPod() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	if c.pod, err = attach.TryPod(ctx, c.conf); err != nil || !c.delegates() {
		return err
	}
	return c.delegate().CheckPodCIDRs()
}

// checkHostIPv6 refuses a host without IPv6 where each pod is to have it: new links
// are as the default says.
func (c *call) checkHostIPv6() error {
	v6 := c.conf.IPAM.AssignIPv6 || slices.ContainsFunc(c.wanted(), netip.Addr.Is6)
	if !v6 || c.plugin != protocol.Calico || c.delegates() {
		return nil
	}
	const hint = "enable it, or set ipam.assign_ipv6 to false"
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return protocol.Failf(protocol.CodeUnavailable, hint, "pods are to have IPv6 addresses, and this kernel has no IPv6")
	case err == nil && strings.TrimSpace(string(disabled)) != "0":
		return protocol.Failf(protocol.CodeUnavailable, hint, "pods are to have IPv6 addresses, and IPv6 is disabled on the host: sysctl net.ipv6.conf.default.disable_ipv6 is %s",
			bytes.TrimSpace(disabled))
	}
	return nil
}

// etcdStatus does all of an ADD's work in etcd but the writing, for a container that there is not: no container id begins
// with a dot.
func (c *call) etcdStatus(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	id := protocol.NewIdentity(c.conf.Name, c.node.name, protocol.Environ{ContainerID: ".status", IfName: "eth0"})
	request := addresses.Request(c.conf, id, c.wanted(), c.started)
	// Where all addresses are asked for by number, which ones they will be isn't known.
	asks := request.IPv4 || request.IPv6 || len(request.Addrs) > 0
	// Nothing can be chosen then: every ADD of an IPAM plugin writes a handle.
	change := model.Change{Puts: []model.Put{{Key: model.HandleKey{ID: id.Handle}, Value: model.Handle{ID: id.Handle}}}}
	ranges := []model.Range{model.KeyRange(model.ReadyKey{})}
	decide := func(v *model.View) (model.Change, error) { return change, addresses.CheckReady(v) }
	switch {
	case c.plugin == protocol.Calico:
		a := addresses.Addition{Conf: c.conf, ID: id, MAC: protocol.PodMAC(id.Handle), MTU: c.mtu(), Request: request}
		if c.delegates() || !asks {
			a.Addrs = []netip.Addr{}
		}
		ranges, decide = a.FirstRead(), func(v *model.View) (model.Change, error) {
			_, change, err := a.Decide(v)
			return change, err
		}
	case asks:
		s := addresses.Subnets{Conf: c.conf, Request: request}
		ranges, decide = s.FirstRead(), func(v *model.View) (model.Change, error) {
			_, change, err := s.Decide(v)
			return change, err
		}
	}
	err := c.etcd.Read(ctx, ranges, func(v *model.View) error {
		decided, err := decide(v)
		_, explained := errors.AsType[*protocol.Error](err)
		if _, taken := errors.AsType[*ipam.TakenError](err); taken && !explained {
			return nil // by the very container that the configuration has it for
		}
		change = decided
		return err
	})
	if err != nil {
		return err
	}
	return c.etcd.Writable(ctx, change)
}
