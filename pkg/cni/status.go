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

// agentTimeout bounds a question to the agent. The agent answers from memory, but may have to wait for a processor.
const agentTimeout = 10 * time.Second

// asStatus gives an error the code with which STATUS says that an ADD would fail.
func asStatus(command string, err error) error {
	if command != "STATUS" || err == nil {
		return err
	}
	e := protocol.Explain(err)
	return &protocol.Error{Code: protocol.CodeUnavailable, Text: e.Text, Hint: e.Hint, Err: err}
}

// status checks whether an ADD would succeed now. Without the agent, existing pods no longer follow policy changes:
// that is code 51. Without etcd nothing changes for them: that is code 50.
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
	// An agent that says why it can't serve still looks after existing pods. If etcd is the reason, report etcd's
	// error.
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

// podStatus checks whether the agent could be asked for a pod.
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

// checkHostIPv6 returns an error if pods need IPv6 and the host's default for new links disables it.
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

// etcdStatus does all of an ADD's work in etcd except writing, for a container that doesn't exist: no container ID
// begins with a dot.
func (c *call) etcdStatus(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.conf.DatastoreTimeout)
	defer cancel()
	id := protocol.NewIdentity(c.conf.Name, c.node.name, protocol.Environ{ContainerID: ".status", IfName: "eth0"})
	request := addresses.Request(c.conf, id, c.wanted(), c.started)
	if c.conf.Policy.Kubernetes {
		request.Namespace = ipam.AnyNamespace
	}
	// If all addresses are asked for individually, STATUS doesn't know which ones they will be.
	asks := request.IPv4 || request.IPv6 || len(request.Addrs) > 0
	// Then nothing can be chosen; but every ADD of an IPAM plugin writes a handle.
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
			return nil // it is in use by the very container that the configuration is for
		}
		change = decided
		return err
	})
	if err != nil {
		return err
	}
	return c.etcd.Writable(ctx, change)
}
