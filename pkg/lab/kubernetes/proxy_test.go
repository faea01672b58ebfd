// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestProxyModes asks for services in each mode of kube-proxy. Whom policy lets through, and the source that a pod sees, is the same in every
// mode, and whichever of kube-proxy and the agent has made its rules last.
func TestProxyModes(t *testing.T) {
	c := Up(t, Images(t)...)
	c.Install(Manifest(t))
	c.Kubectl("create", "namespace", "modes")
	a, b := c.Node("node-a"), c.Node("node-b")
	on := func(n *Node, text string) string {
		return strings.Replace(text, "      containers:", "      nodeName: "+n.Name+"\n      containers:", 1)
	}
	c.Apply(on(b, workload("Deployment", "modes", "web", 1, web)) + on(a, workload("Deployment", "modes", "client", 1, web)) + service("modes", "web"))
	for name, external := range map[string]string{"cluster": "Cluster", "local": "Local"} {
		c.Apply(fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: modes}
spec: {type: NodePort, externalTrafficPolicy: %s, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`, name, external))
	}
	server := c.AwaitPods(1, "-n", "modes", "-l", "app=web")[0]
	client := c.AwaitPods(1, "-n", "modes", "-l", "app=client")[0]
	address := c.serviceAddress("modes", "web")
	port := func(service string) string {
		return c.Kubectl("get", "service", "-n", "modes", service, "-o", "jsonpath={.spec.ports[0].nodePort}")
	}
	outside := fabric.Addr().String()
	// What is asked, who is seen, and whether the policy below lets it through.
	type way struct {
		name    string
		ask     func() (source string, err error)
		source  string
		allowed bool
	}
	curl := func(run func(argv ...string) *exec.Cmd, host, port string) func() (string, error) {
		return func() (string, error) {
			out, err := run("curl", "-s", "-m", "2", "http://"+net.JoinHostPort(host, port)+"/clientip").Output()
			return string(out), err
		}
	}
	here := func(argv ...string) *exec.Cmd { return exec.CommandContext(t.Context(), argv[0], argv[1:]...) }
	ways := []way{
		{"a pod", func() (string, error) { return c.ask(client, address, "80", "/clientip") }, client.IP.String(), true},
		{"the pod itself", func() (string, error) { return c.ask(server, address, "80", "/clientip") }, b.Address.String(), false},
		{"another node", curl(a.Command, address, "80"), a.Address.String(), false},
		{"outside, by the other node's port", curl(here, a.Address.String(), port("cluster")), a.Address.String(), false},
		{"outside, by the port of the pod's node alone", curl(here, b.Address.String(), port("local")), outside, true},
	}
	check := func(t *testing.T, closed bool) {
		t.Helper()
		for _, w := range ways {
			eventually.Within(t, Patience, w.name+" to be served as it should", func() error {
				source, err := w.ask()
				if host, _, splitErr := net.SplitHostPort(strings.TrimSpace(source)); splitErr == nil {
					source = host
				}
				switch allowed := w.allowed || !closed; {
				case allowed && (err != nil || source != w.source):
					return fmt.Errorf("source %q, want %s: %v", source, w.source, err)
				case !allowed && err == nil:
					return fmt.Errorf("source %q, want none", source)
				}
				return nil
			})
		}
	}
	for _, mode := range []string{"nftables", "iptables"} {
		for _, last := range []string{"kube-proxy", "calico-node"} {
			c.Run(t, mode+", "+last+" last", func(t *testing.T) {
				for _, n := range c.Nodes {
					n.proxyMode(mode)
					if last == "calico-node" {
						n.Run("nft", "delete", "table", "inet", "calico")
						eventually.Within(t, Patience, "the agent to make its table again", func() error { return n.Command("nft", "list", "table", "inet", "calico").Run() })
					}
				}
				check(t, false)
				c.Apply(policy("modes", "web", fmt.Sprintf(`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}, {ipBlock: {cidr: %s/32}}]}]}`, outside)))
				check(t, true)
				c.Kubectl("delete", "networkpolicy", "-n", "modes", "web")
			})
		}
	}
}

// proxyMode starts kube-proxy again, in another mode, without what it had made.
func (n *Node) proxyMode(mode string) {
	n.c.tb.Helper()
	n.proxy.stop()
	n.Run(filepath.Join(n.c.bin, "kube-proxy"), "--config="+n.etc("kube-proxy.yaml"), "--cleanup")
	n.Run("sed", "-i", "s/^mode: .*/mode: "+mode+"/", n.etc("kube-proxy.yaml"))
	n.proxy.start()
	eventually.Within(n.c.tb, Patience, "kube-proxy of "+n.Name+" to have its rules", func() error {
		return n.Command("sh", "-c", "nft list tables | grep -q 'ip kube-proxy' || iptables-save | grep -q KUBE-SERVICES").Run()
	})
}
