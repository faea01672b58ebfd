// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// newHosts returns the keeper of hosts' entries in etcd, which give the Node of a host and its labels, and of the host endpoints of
// Nodes if ports are protected. If none are, host endpoints made earlier are deleted.
func (c *controllers) newHosts(cfg writer.Config) *owned.Keeper {
	k := owned.New(owned.Config{Config: cfg, Kinds: map[string]string{model.HostPrefix(""): kindNode}, Needed: c.needed, Living: c.living})
	if len(c.cfg.ProtectedPorts) == 0 {
		k.Synced(kindNode)
	}
	return k
}

// node is what is kept of a Node.
type node struct {
	kubepolicy.Node
	translation // in c.hosts
}

func (c *controllers) keepNode(n *corev1.Node) node {
	of, problems := kubepolicy.NodeOf(n)
	kept := node{of, translation{about: kube.Reference(n), problems: texts(problems)}}
	if c.cfg.Enabled[Nodes] {
		kept.puts = []model.Put{{Key: model.HostMetadataKey{Host: n.Name}, Value: model.HostMetadata{Labels: of.Labels, Kubernetes: model.KubernetesNode{Name: n.Name, UID: string(n.UID)}}}}
		if e, ok := kubepolicy.NodeEndpoint(of); ok && len(c.cfg.ProtectedPorts) > 0 {
			kept.puts = append(kept.puts, model.Put{Key: kubepolicy.NodeEndpointKey(n.Name), Value: e})
		}
	}
	return kept
}

// ofNodes returns the part of an update that belongs to Nodes.
func ofNodes(u model.Update) model.Update {
	all := u.Entries
	u.Entries = nil
	for _, e := range all {
		endpoint, is := e.Key.(model.HostEndpointKey)
		if _, entry := e.Key.(model.HostMetadataKey); entry || is && endpoint == kubepolicy.NodeEndpointKey(endpoint.Host) {
			u.Entries = append(u.Entries, e)
		}
	}
	return u
}

func (c *controllers) watchNodes(ctx context.Context) error {
	return kube.Watch(ctx, c.kube, kube.Select{}, c.keepNode, handler(c, kindNode, kube.Handler[node]{
		Set: func(n node) {
			c.cluster.setNode(n.about.Name, n.Node)
			c.setIn(c.hosts, n.translation)
		},
		Deleted: func(_, name string) {
			c.cluster.removeNode(name)
			c.hosts.Remove(writer.Object{Kind: kindNode, Name: name})
			c.garbage.loop.Wake()
		},
		Synced: func() {
			c.cluster.nodesSynced()
			c.garbage.nodes.Store(true)
		},
	}))
}
