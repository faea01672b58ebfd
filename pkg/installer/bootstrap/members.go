// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/retry"
)

// Names in the manifests that concern etcd's members.
const (
	membersConfig = "calico-etcd" // ConfigMap
	endpointsKey  = "endpoints"
	clusterKey    = "initial-cluster"
	tokenKey      = "initial-cluster-token"
	poolsKey      = "pools"
	authorityKey  = "etcd-ca"
	controlPlane  = "node-role.kubernetes.io/control-plane"
)

// Ports on the nodes, different from those of the cluster's own etcd.
const clientPort, peerPort = 2479, 2480

// A member of etcd is a node: it has the data, and the address at which other members find it.
type member struct {
	node string
	addr netip.Addr
}

func (m member) String() string { return m.node + "=" + m.addr.String() }

func (m member) url(port uint16) string {
	return "https://" + netip.AddrPortFrom(m.addr, port).String()
}

// errNotChosen says that there is nothing to renew yet.
var errNotChosen = errors.New("where etcd runs has yet to be chosen")

// chosen returns the members and default pools, which are chosen once. The first call chooses them, after waiting for enough nodes.
func (b *bootstrapper) chosen(ctx context.Context) (members []member, pools []netip.Prefix, err error) {
	for {
		config, err := kube.Get[corev1.ConfigMap](ctx, b.kube, namespace, membersConfig)
		if err != nil {
			return nil, nil, applied(err)
		}
		if cluster := config.Data[clusterKey]; cluster != "" {
			if members, err = parseMembers(cluster); err != nil {
				return nil, nil, err
			}
			if pools, err = parsePools(config.Data[poolsKey]); err != nil {
				return nil, nil, fmt.Errorf("ConfigMap %s/%s: %s: %w", namespace, membersConfig, poolsKey, err)
			}
			return members, pools, nil
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
			if err := retry.Wait(ctx, retryAfter); err != nil {
				return nil, nil, err
			}
			continue
		}
		pools, err := b.pools(ctx)
		if err != nil {
			return nil, nil, err
		}
		config.Data = formatChosen(chosen, pools)
		_, err = kube.Update(ctx, b.kube, config)
		if err == nil {
			b.log.Info("chose where etcd runs", "members", fmt.Sprint(chosen))
		} else if !errors.Is(err, kube.ErrChanged) { // another process was faster
			return nil, nil, err
		}
	}
}

// chooseMembers returns the oldest nodes of the control plane, want in number.
func chooseMembers(nodes []*corev1.Node, want int) ([]member, error) {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		_, is := n.Labels[controlPlane]
		return !is || n.DeletionTimestamp != nil
	})
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
		if len(addrs) > 0 { // IPv4, if the node has both
			out = append(out, member{n.Name, slices.MinFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })})
		}
	}
	if len(out) < want {
		return nil, fmt.Errorf("%d nodes have the label %s and an InternalIP: want %d", len(out), controlPlane, want)
	}
	return out[:want], nil
}

func formatChosen(members []member, pools []netip.Prefix) map[string]string {
	var endpoints, cluster, networks []string
	for _, p := range pools {
		networks = append(networks, p.String())
	}
	for _, m := range members {
		endpoints = append(endpoints, m.url(clientPort))
		cluster = append(cluster, m.node+"="+m.url(peerPort))
	}
	return map[string]string{
		endpointsKey: strings.Join(endpoints, ","), clusterKey: strings.Join(cluster, ","),
		poolsKey: strings.Join(networks, ","),
		tokenKey: "calico-" + rand.Text(), // keeps members of two clusters from joining each other
	}
}

func parseMembers(cluster string) ([]member, error) {
	var out []member
	for part := range strings.SplitSeq(cluster, ",") {
		node, url, _ := strings.Cut(part, "=https://")
		at, err := netip.ParseAddrPort(url)
		twice := slices.ContainsFunc(out, func(m member) bool { return m.node == node })
		if a := at.Addr(); err != nil || node == "" || twice || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || at.Port() != peerPort {
			return nil, fmt.Errorf("ConfigMap %s/%s: %s %q: want <node>=https://<address>:%d, one for each member", namespace, membersConfig, clusterKey, cluster, peerPort)
		}
		out = append(out, member{node, at.Addr()})
	}
	return out, nil
}
