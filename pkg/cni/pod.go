// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/cni/attach"
	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/gate"
)

// readsPod reports whether an ADD needs data from the Kubernetes API.
func (c *call) readsPod() bool { return c.conf.Policy.Kubernetes || c.conf.IPAM.PodCIDR }

// askPod asks the agent for what the Kubernetes API knows about the pod and its node, and applies the annotations to
// the configuration.
func (c *call) askPod(ctx context.Context, id protocol.Identity) (err error) {
	if !c.readsPod() {
		return nil
	}
	var r gate.PodRequest // empty: the node alone
	if c.conf.Policy.Kubernetes {
		r = gate.PodRequest{Namespace: id.PodSpace, Name: id.PodName, UID: c.env.Args.PodUID}
	}
	if c.pod, err = attach.AskPod(ctx, c.conf, c.log, r); err != nil {
		return err
	}
	if err := c.conf.Annotate(c.pod.Annotations); err != nil {
		return protocol.Fail(protocol.CodeConfig, err, "correct it, at pod "+id.PodSpace+"/"+id.PodName+" or at its namespace")
	}
	return nil
}

// bandwidth returns the limits for the pod: the runtime's, which passes them if the configuration has the capability;
// else those of the annotations, unless another plugin of the list applies them.
func (c *call) bandwidth() netconf.Bandwidth {
	asked := c.conf.Pod.Bandwidth
	switch {
	case c.conf.Runtime.Bandwidth != netconf.Bandwidth{}:
		return c.conf.Runtime.Bandwidth
	case asked == netconf.Bandwidth{} || c.pod.Unshaped:
		return asked
	}
	c.log.Debug("another plugin of the list limits the pod's bandwidth")
	return netconf.Bandwidth{}
}
