// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// AwaitClean waits until nothing is left of pods that are gone: etcd keeps its invariants, the addresses in use are
// those of pods and tunnels, and each node has a link and a route for each of its pods and no others.
func (c *Cluster) AwaitClean(etcd *store.Client) {
	c.tb.Helper()
	eventually.Within(c.tb, Patience, "nothing to be left of former pods", func() error {
		pods := map[netip.Addr]Pod{}
		for _, p := range c.Pods("-A") {
			if !p.HostNetwork && p.IP.IsValid() && p.Phase != "Succeeded" && p.Phase != "Failed" {
				pods[p.IP] = p
			}
		}
		blocks, err := inEtcd(etcd, pods)
		wrong := []error{err}
		for _, n := range c.Nodes {
			wrong = append(wrong, n.leftovers(pods, blocks))
		}
		return errors.Join(wrong...)
	})
}

// inEtcd compares the content of etcd with the running pods, and returns the existing blocks.
func inEtcd(etcd *store.Client, pods map[netip.Addr]Pod) (blocks map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	snapshot, err := etcd.Read(ctx, model.PrefixRange("/calico/"))
	if err != nil {
		return nil, err
	}
	blocks = map[string]bool{}
	var wrong []error
	for _, v := range invariants.Check(snapshot.Entries()) {
		wrong = append(wrong, errors.New(v.String()))
	}
	held, endpoints := map[netip.Addr]bool{}, 0
	for _, e := range snapshot.Entries() {
		switch value := e.Value.(type) {
		case model.WorkloadEndpoint:
			endpoints++
		case model.Block:
			blocks[value.CIDR.String()] = true
			a := value.CIDR.Addr()
			for _, n := range value.Allocations {
				// An address stays reserved if a plugin found it on the host before the agent had recorded it as its
				// tunnel's.
				if n >= 0 && value.Attributes[n].Secondary["type"] != "tunnel-address" && !model.IsGatewayHandle(value.Attributes[n].HandleID, a) {
					held[a] = true
					if _, runs := pods[a]; !runs {
						wrong = append(wrong, fmt.Errorf("%s is held by %v, and no pod has it", a, value.Attributes[n].Secondary))
					}
				}
				a = a.Next()
			}
		}
	}
	for a, p := range pods {
		if !held[a] {
			wrong = append(wrong, fmt.Errorf("%s of %s/%s is not held", a, p.Namespace, p.Name))
		}
	}
	if endpoints != len(pods) {
		wrong = append(wrong, fmt.Errorf("%d endpoints, %d pods", endpoints, len(pods)))
	}
	return blocks, errors.Join(wrong...)
}

// leftovers compares the node's links and routes with its pods, and its routes to blocks with the blocks.
func (n *Node) leftovers(pods map[netip.Addr]Pod, blocks map[string]bool) error {
	links, err := n.Command("ip", "-o", "link").Output()
	if err != nil {
		return fmt.Errorf("links of %s: %w", n.Name, err)
	}
	routes, err := n.Command("ip", "-o", "route").Output()
	if err != nil {
		return fmt.Errorf("routes of %s: %w", n.Name, err)
	}
	var wrong []error
	count := func(text []byte, before string) int { // without the agent's probe of the path
		return strings.Count(string(text), before+"cali") - strings.Count(string(text), before+"caliprobe")
	}
	mine, have := 0, count(links, ": ")
	for a, p := range pods {
		if p.Node == n.Name {
			mine++
			if !strings.Contains(string(routes), a.String()+" dev cali") {
				wrong = append(wrong, fmt.Errorf("%s has no route to %s of %s/%s", n.Name, a, p.Namespace, p.Name))
			}
		}
	}
	if have != mine {
		wrong = append(wrong, fmt.Errorf("%s has %d links of pods, and %d pods", n.Name, have, mine))
	}
	if have := count(routes, " dev "); have != mine {
		wrong = append(wrong, fmt.Errorf("%s has %d routes to pods, and %d pods", n.Name, have, mine))
	}
	for line := range strings.Lines(string(routes)) {
		block := strings.Fields(strings.TrimPrefix(line, "blackhole "))[0]
		if strings.Contains(line, " proto 81 ") && strings.Contains(block, "/") && !blocks[block] {
			wrong = append(wrong, fmt.Errorf("%s has a route to a block that is no more: %s", n.Name, line))
		}
	}
	return errors.Join(wrong...)
}
