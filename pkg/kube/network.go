// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Network is the state of a Node's condition NetworkUnavailable.
type Network struct {
	Unavailable bool // it is True, or absent
	Ours        bool // it was set by SetNetwork
}

// The condition's reasons, as users of Calico know them.
const (
	networkUp   = "CalicoIsUp"
	networkDown = "CalicoIsDown"
)

// NetworkOf reads a Node's condition.
func NetworkOf(n *corev1.Node) Network {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable {
			return Network{c.Status != corev1.ConditionFalse, c.Reason == networkUp || c.Reason == networkDown}
		}
	}
	return Network{Unavailable: true}
}

// SetNetwork sets a Node's condition NetworkUnavailable: the scheduler places no pods on a node where it is True.
func SetNetwork(ctx context.Context, c *Client, node string, unavailable bool) error {
	now := metav1.NewTime(time.Now())
	condition := corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: networkUp, Message: "Calico is running on this node",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if unavailable {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, networkDown, "Nothing is heard of calico-node on this node: see the log of its pod"
	}
	return PatchStatus[corev1.Node](ctx, c, "", node, map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}})
}
