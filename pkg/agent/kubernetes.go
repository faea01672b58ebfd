// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-go/calico/pkg/agent/pods"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kube"
)

// Kubernetes says how the Kubernetes API is reached.
type Kubernetes struct {
	Off        bool   // it isn't
	Kubeconfig string // "" = as a pod, if InCluster
	InCluster  bool
	// Members are the Nodes that members of the manifests' etcd run on; none: it isn't known, or there is no such etcd.
	Members []string
}

// kubernetes is a client of the Kubernetes API, nil where there is none to read.
func (c Config) kubernetes() (*kube.Client, error) {
	k := c.Kubernetes
	if k.Off || k.Kubeconfig == "" && !k.InCluster {
		return nil, nil
	}
	client, err := kube.New(kube.Config{Kubeconfig: k.Kubeconfig, Name: "calico-node", Logger: c.Logger})
	switch {
	case err == nil:
		return client, nil
	case k.Kubeconfig == "": // in a pod without a service account, which may need no Kubernetes
		c.Logger.Warn("the Kubernetes API isn't read: pods of networks with policy.type k8s can't start", "err", err)
		return nil, nil
	}
	return nil, fmt.Errorf("the Kubernetes API (KUBECONFIG; CALICO_KUBERNETES=off to do without): %w", err)
}

// confDir is where container runtimes look for their network configuration, unless the agent is told where.
const confDir = "/etc/cni/net.d"

// newPods makes what knows the host's pods.
func newPods(cfg Config, client *kube.Client, podCIDRs func([]netip.Prefix)) *pods.Keeper {
	dir := statefile.OnHost(cmp.Or(cfg.CNI.Dir, confDir))
	return pods.New(pods.Config{Node: cfg.Node, API: pods.Kubernetes{Client: client}, Unshaped: func() bool { return pods.Unshaped(dir) }, PodCIDRs: podCIDRs})
}

// nodeEvents records warnings about this host's Node; nil where there is no API to tell.
func nodeEvents(node string, client *kube.Client) func(reason, message string) {
	if client == nil {
		return nil
	}
	// kubelet has no uid for its Node either, and puts the name in its place: `kubectl describe node` finds both.
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	return func(reason, message string) { client.Warning(about, reason, message) }
}

// memberLabel is the label of Nodes on which the pods of the manifests' etcd run, and memberRetry how soon it is tried again to set it.
const (
	memberLabel = "projectcalico.org/etcd"
	memberRetry = 2 * time.Second
)

// labelMember gives this host's Node the label where it is a member's, and takes it away where it isn't, once that succeeds.
func (c Config) labelMember(ctx context.Context, client *kube.Client) error {
	var value any // null: none
	if slices.Contains(c.Kubernetes.Members, c.Node) {
		value = "member"
	}
	// The status' patch changes labels as well, and the agent has no right to the Node's spec.
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{memberLabel: value}}}
	for failed := ""; ; {
		err := kube.PatchStatus[corev1.Node](ctx, client, "", c.Node, patch)
		if err == nil {
			return nil
		}
		if text := err.Error(); ctx.Err() == nil && text != failed {
			failed = text
			c.Logger.Warn("the Node's label of etcd's members could not be set, trying again", "label", memberLabel, "value", value, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(memberRetry):
		}
	}
}
