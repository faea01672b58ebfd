// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/kube"
)

// What the manifests know of etcd's members.
const (
	membersConfig = "calico-etcd" // ConfigMap
	endpointsKey  = "endpoints"
	clusterKey    = "initial-cluster"
	tokenKey      = "initial-cluster-token"
	poolsKey      = "pools"
	memberLabel   = "projectcalico.org/etcd"
	memberValue   = "member"
	controlPlane  = "node-role.kubernetes.io/control-plane"
)

// Ports of the nodes: beside those of the cluster's own etcd.
const clientPort, peerPort = 2479, 2480

// A member of etcd is a node: its data is there, and its address is where the others find it.
type member struct {
	node string
	addr netip.Addr
}

func (m member) String() string { return m.node + "=" + m.addr.String() }

func (m member) url(port uint16) string {
	return "https://" + netip.AddrPortFrom(m.addr, port).String()
}

// errNotChosen says that nothing is there to be renewed.
var errNotChosen = errors.New("where etcd runs has yet to be chosen")

// chosen are the members, and the default pools, that were chosen once. The first time it chooses them, and waits until there are
// enough nodes.
func (b *bootstrapper) chosen(ctx context.Context) (members []member, pools []netip.Prefix, err error) {
	for {
		config, err := kube.Get[corev1.ConfigMap](ctx, b.kube, namespace, membersConfig)
		if err == nil {
			if members, err = parseMembers(config.Data[clusterKey]); err != nil {
				return nil, nil, err
			}
			if pools, err = parsePools(config.Data[poolsKey]); err != nil {
				return nil, nil, fmt.Errorf("ConfigMap %s/%s: %s: %w", namespace, membersConfig, poolsKey, err)
			}
			return members, pools, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, nil, err
		}
		if b.cfg.Renew {
			return nil, nil, errNotChosen
		}
		nodes, err := kube.List[corev1.Node](ctx, b.kube, kube.Select{})
		if err != nil {
			return nil, nil, err
		}
		chosen, err := chooseMembers(nodes, b.cfg.Members)
		if err != nil {
			b.log.Info("waiting for nodes that etcd can run on", "reason", err)
			if err := b.pause(ctx); err != nil {
				return nil, nil, err
			}
			continue
		}
		pools, err := b.pools(ctx)
		if err != nil {
			return nil, nil, err
		}
		_, err = kube.Create(ctx, b.kube, formatChosen(chosen, pools))
		if err == nil {
			b.log.Info("chose where etcd runs", "members", fmt.Sprint(chosen))
		} else if !errors.Is(err, os.ErrExist) { // another one was faster
			return nil, nil, err
		}
	}
}

// chooseMembers takes nodes of the control plane, the oldest first; where a cluster shows none, as those of providers do,
// any nodes.
func chooseMembers(nodes []*corev1.Node, want int) ([]member, error) {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return n.DeletionTimestamp != nil })
	if slices.ContainsFunc(nodes, isControlPlane) {
		nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !isControlPlane(n) })
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var out []member
	for _, n := range nodes {
		var addrs []netip.Addr
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil {
				addrs = append(addrs, addr)
			}
		}
		if len(addrs) > 0 { // IPv4, where the node has both
			out = append(out, member{n.Name, slices.MinFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })})
		}
	}
	if len(out) < want {
		return nil, fmt.Errorf("%d of %d nodes of the control plane, or of all nodes where none has the label %s, have an InternalIP", len(out), want, controlPlane)
	}
	return out[:want], nil
}

func isControlPlane(n *corev1.Node) bool {
	_, ok := n.Labels[controlPlane]
	return ok
}

func formatChosen(members []member, pools []netip.Prefix) *corev1.ConfigMap {
	var endpoints, cluster, networks []string
	for _, p := range pools {
		networks = append(networks, p.String())
	}
	for _, m := range members {
		endpoints = append(endpoints, m.url(clientPort))
		cluster = append(cluster, m.node+"="+m.url(peerPort))
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: membersConfig, Labels: map[string]string{"k8s-app": "calico-etcd"}},
		Data: map[string]string{
			endpointsKey: strings.Join(endpoints, ","), clusterKey: strings.Join(cluster, ","),
			poolsKey: strings.Join(networks, ","),
			tokenKey: "calico-" + rand.Text(), // members of two clusters never take one another for their own
		},
	}
}

func parseMembers(cluster string) ([]member, error) {
	var out []member
	for part := range strings.SplitSeq(cluster, ",") {
		node, url, ok := strings.Cut(part, "=")
		at, err := netip.ParseAddrPort(strings.TrimPrefix(url, "https://"))
		if !ok || err != nil {
			return nil, fmt.Errorf("ConfigMap %s/%s: %s %q: want <node>=https://<address>:%d, one for each member", namespace, membersConfig, clusterKey, cluster, peerPort)
		}
		out = append(out, member{node, at.Addr()})
	}
	return out, nil
}

// label lets the pods of etcd run on their nodes.
func (b *bootstrapper) label(ctx context.Context, m member) error {
	node, err := kube.Get[corev1.Node](ctx, b.kube, "", m.node)
	if errors.Is(err, os.ErrNotExist) {
		b.log.Warn("the node of a member of etcd is gone: make it anew under its name and address, or its member stays away", "node", m.node)
		return nil
	}
	if err == nil && node.Labels[memberLabel] != memberValue {
		labels := map[string]string{memberLabel: memberValue}
		err = kube.Patch[corev1.Node](ctx, b.kube, "", m.node, map[string]any{"metadata": map[string]any{"labels": labels}})
	}
	if err != nil {
		return fmt.Errorf("the node of a member of etcd: %w", err)
	}
	return nil
}

// unlabel takes the label off nodes that were members of an etcd before: a member's pod must not go there.
func (b *bootstrapper) unlabel(ctx context.Context, members []member) error {
	nodes, err := kube.List[corev1.Node](ctx, b.kube, kube.Select{Labels: memberLabel})
	if err != nil {
		return fmt.Errorf("nodes of members of etcd: %w", err)
	}
	for _, n := range nodes {
		if slices.ContainsFunc(members, func(m member) bool { return m.node == n.Name }) {
			continue
		}
		if err := kube.Patch[corev1.Node](ctx, b.kube, "", n.Name, map[string]any{"metadata": map[string]any{"labels": map[string]any{memberLabel: nil}}}); err != nil {
			return fmt.Errorf("a node that is no member of etcd any more: %w", err)
		}
		b.log.Info("took the label off a node that is no member of etcd any more", "node", n.Name, "label", memberLabel)
	}
	return nil
}
