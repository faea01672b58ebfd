// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// The controllers, by their names in ENABLED_CONTROLLERS.
const (
	Nodes           = "node"
	Policies        = "policy"
	Workloads       = "workloadendpoint"
	ServiceAccounts = "serviceaccount"
	Namespaces      = "namespace"
	Resources       = "resource"
)

// names returns the names of all controllers.
func names() []string {
	return []string{Nodes, Policies, Workloads, ServiceAccounts, Namespaces, Resources}
}

// Config configures the controllers.
type Config struct {
	Store store.Config
	Kube  kube.Config
	// Enabled is the set of controllers that run.
	Enabled map[string]bool
	// ProtectedPorts are TCP ports of the nodes that only nodes may reach.
	ProtectedPorts []model.Port
	// NamespacePolicyLimit bounds the total size of a namespace's NetworkPolicies: see kubepolicy.Size; 0 = no limit.
	NamespacePolicyLimit int
	// LeaseNamespace is the namespace of the leader election's Lease and of the agents' DaemonSet. Identity names this replica in the
	// Lease.
	LeaseNamespace, Identity string
	// GCDryRun and GCResume make the process run only ListGarbage or ResumeGarbage.
	GCDryRun, GCResume bool
}

// metricsAddress is where metrics are served, unless it is set.
const metricsAddress = ":9094"

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Daemon returns the daemon calico-controllers, whose options set c.
func Daemon(c *Config) run.Daemon {
	return run.Daemon{
		Name: "calico-controllers", Prefix: "calico_controllers", Options: options(c), Health: "127.0.0.1:9098", Metrics: metricsAddress,
		Run: func(ctx context.Context, env run.Env) error {
			switch {
			case c.GCDryRun:
				return ListGarbage(ctx, *c, env, os.Stdout)
			case c.GCResume:
				return ResumeGarbage(ctx, *c, env, os.Stdout)
			}
			if run.Variables(env.Environ)["GOGC"] == "" {
				debug.SetGCPercent(gcPercent)
			}
			hostname, _ := os.Hostname() // the rest of the identity is unique
			c.Identity = hostname + "_" + rand.Text()
			return Run(ctx, c, env)
		},
	}
}

// gcPercent is the heap growth between two collections, in percent, unless GOGC is set: most of the heap is what the watches
// know, and stays.
const gcPercent = 50

func options(c *Config) []run.Option {
	return slices.Concat(run.Etcd(&c.Store), []run.Option{
		{Flag: "kubeconfig", Variable: "KUBECONFIG", Help: "file that says how to reach the Kubernetes API; default: as a pod does", Set: run.File(&c.Kube.Kubeconfig)},
		{Flag: "controllers", Variable: "ENABLED_CONTROLLERS", Initial: strings.Join(names(), ","), Help: "comma list of the controllers that run; pods wait for what namespace and serviceaccount make", Set: func(s string) error {
			c.Enabled = map[string]bool{}
			for name := range strings.SplitSeq(s, ",") {
				name = strings.ToLower(strings.TrimSpace(name))
				if name == "profile" {
					name = Namespaces // its former name
				}
				if !slices.Contains(names(), name) {
					return fmt.Errorf("%q is no controller: want some of %s", name, strings.Join(names(), ", "))
				}
				c.Enabled[name] = true
			}
			return nil
		}},
		{Flag: "protected-ports", Variable: "PROTECTED_HOST_PORTS", Help: "comma list of TCP ports of the nodes that only nodes may reach: each gets a host endpoint; default: none", Set: func(s string) error {
			for p := range strings.SplitSeq(s, ",") {
				if p = strings.TrimSpace(p); p == "" {
					continue
				}
				n, err := strconv.ParseUint(p, 10, 16)
				if err != nil || n == 0 {
					return fmt.Errorf("port %q: want a number of 1 to 65535", p)
				}
				c.ProtectedPorts = append(c.ProtectedPorts, model.Port{Min: uint16(n), Max: uint16(n)})
			}
			return nil
		}},
		{Flag: "namespace-policy-limit", Variable: "NAMESPACE_POLICY_LIMIT", Initial: "10000", Help: "of each rule of a namespace's NetworkPolicies the peers times the ports, and 4 more for a selector, together: policies over it, the newest, allow their pods nothing; 0 = no limit", Set: run.Count(&c.NamespacePolicyLimit)},
		{Flag: "lease-namespace", Variable: "POD_NAMESPACE", Help: "namespace of the Lease calico-controllers and of the DaemonSet calico-node; default: this pod's, or kube-system", Set: func(s string) error {
			own, _ := os.ReadFile(serviceAccount) // outside a cluster there is none
			c.LeaseNamespace = cmp.Or(strings.TrimSpace(s), strings.TrimSpace(string(own)), "kube-system")
			return nil
		}},
		{Flag: "gc-dry-run", Switch: true, Initial: "false", Help: "list addresses, blocks and hosts that seem to be left over, and exit", Set: run.Bool(&c.GCDryRun)},
		{Flag: "gc-resume", Switch: true, Initial: "false", Help: "let garbage collection go on that stopped because too much would go at once, and exit", Set: run.Bool(&c.GCResume)},
	})
}
