// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/reentry"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nodecert"
	"github.com/calico-go/calico/pkg/plan"
)

// Daemon returns calico-node, whose options fill c. hostname is the operating system's.
func Daemon(c *Config, hostname string) run.Daemon {
	return run.Daemon{Name: "calico-node", Prefix: "calico_node", Options: slices.Concat(options(c, hostname), []run.Option{
		{Flag: "clean-up-legacy", Switch: true, Initial: "false", Help: "list the chains, sets and routes that the agent of an older version of Calico has left on this host, and exit; -yes removes them", Set: run.Bool(&c.CleanUp)},
		{Flag: "yes", Switch: true, Initial: "false", Help: "with -clean-up-legacy: remove what is listed", Set: run.Bool(&c.Yes)},
	}), Run: func(ctx context.Context, env run.Env) error { return Run(ctx, *c, env) }}
}

// options are those in the documentation.
func options(c *Config, hostname string) []run.Option {
	method := func(family int) func(string) error {
		return func(s string) (err error) {
			c.Methods[family], err = plan.ParseMethod(s, family == 1)
			return err
		}
	}
	return slices.Concat([]run.Option{
		{Flag: "nodename", Variable: "NODENAME", Help: "name of this host; default: the operating system's, lower case", Set: func(s string) error { return c.SetNode(s, hostname) }},
	}, run.Etcd(&c.Store), []run.Option{
		{Flag: "cni-conf-dir", Variable: "CNI_CONF_DIR", Help: "the container runtime's directory of network configurations, where what calico-install has left is written once the agent serves the host; it may be mounted below /host; default: none, nothing is written", Set: func(s string) error {
			if s == "" {
				return nil
			}
			return run.Absolute(&c.CNI.Dir)(s)
		}},
		{Flag: "cni-exclusive", Variable: "CNI_EXCLUSIVE", Initial: "false", Help: "true renames network configurations of others that come first by name to <name>" + netconf.BackupSuffix, Set: run.Bool(&c.CNI.Exclusive)},
		{Flag: "cni-etcd-ca-cert-file", Variable: "CNI_ETCD_CA_CERT_FILE", Help: "what is copied to the directory calico-tls beside the network configuration, for the plugins, as it changes: the certificate of who signed etcd's; default: the agent's own", Set: run.File(&c.CNI.CAFile)},
		{Flag: "cni-etcd-cert-file", Variable: "CNI_ETCD_CERT_FILE", Help: "the same of the certificate; default: the agent's own", Set: run.File(&c.CNI.CertFile)},
		{Flag: "cni-etcd-key-file", Variable: "CNI_ETCD_KEY_FILE", Help: "the same of its key; default: the agent's own", Set: run.File(&c.CNI.KeyFile)},
		{Flag: "kubeconfig", Variable: "KUBECONFIG", Help: "file with the access to the Kubernetes API, of which plugins learn by this agent what it knows of pods; default: in a cluster the pod's service account, else the API isn't read", Set: run.Text(&c.Kubernetes.Kubeconfig)},
		{Flag: "kubernetes", Variable: "CALICO_KUBERNETES", Initial: "auto", Help: "off: the Kubernetes API isn't read, whatever else is set", Set: func(s string) error {
			c.Kubernetes.Off = s == "off"
			if s != "off" && s != "auto" {
				return fmt.Errorf("%q: want auto or off", s)
			}
			return nil
		}},
		{Flag: "etcd-node-certificate", Variable: "CALICO_ETCD_NODE_CERTIFICATE", Help: "file that gets a key and a certificate of this host's own for etcd, for which the agent asks the signer " + nodecert.Signer + " of Kubernetes, and has it renewed; it is both the -etcd-cert-file and the -etcd-key-file then; default: none is asked for", Set: func(s string) error {
			if s == "" {
				return nil
			}
			c.Store.CertFile, c.Store.KeyFile = s, s
			return run.Absolute(&c.Kubernetes.Certificate)(s)
		}},
		{Flag: "etcd-members", Variable: "CALICO_ETCD_MEMBERS", Help: "comma list of <node>=<URL>, the members of the manifests' etcd: this host's Node has the label " + memberLabel + " where it is among them, and else hasn't; default: the label is left alone", Set: func(s string) error {
			for m := range strings.SplitSeq(s, ",") {
				if node, _, is := strings.Cut(m, "="); is {
					c.Kubernetes.Members = append(c.Kubernetes.Members, strings.TrimSpace(node))
				}
			}
			return nil
		}},
		{Flag: "ip", Variable: "IP", Help: "how this host finds its IPv4 address: an address, first-found, can-reach=<address or name>, interface=<regular expressions>, skip-interface=<the same>, cidr=<list>, or none; default: first-found", Set: method(0)},
		{Flag: "ip6", Variable: "IP6", Help: "the same for IPv6; default: none", Set: method(1)},
		{Flag: "as", Variable: "AS", Help: "number of this host's BGP autonomous system, which is written to etcd; default: what etcd says, or 64512", Set: func(s string) (err error) {
			if s = strings.TrimSpace(s); s == "" {
				return nil
			}
			c.AS, err = model.ParseASNumber(s)
			return err
		}},
	}, HostOptions(c))
}

// HostOptions are the options of every agent, whatever its source.
func HostOptions(c *Config) []run.Option {
	address := func(p *string) func(string) error { // empty: the parameters decide
		return func(s string) error {
			*p = strings.TrimSpace(s)
			_, err := serving.ParseAddress(s)
			return err
		}
	}
	return []run.Option{
		{Flag: "run-dir", Variable: "CALICO_RUN_DIR", Initial: "/run/calico", Help: "directory of the gate's socket, " + socketName, Set: run.Absolute(&c.RunDir)},
		{Flag: "var-dir", Variable: "CALICO_VAR_DIR", Initial: "/var/lib/calico", Help: "directory of the files " + nodenameName + ", " + mtuName + ", " + status.LeasesName + ", " + reentry.GUIDName + " and " + router.BGPStateName, Set: run.Absolute(&c.VarDir)},
		{Flag: "config", Variable: "CALICO_CONFIG_FILE", Initial: params.DefaultFile, Help: "file of parameters, [global] and lines Name = value; it need not be there", Set: run.Absolute(&c.ConfigFile)},
		{Flag: "health", Variable: "CALICO_HEALTH_ADDRESS", Help: "host:port of /liveness, /readiness, /debug/state and /debug/invalid; 0 = off; default: as the Health parameters say, 127.0.0.1:9099", Set: address(&c.Health)},
		{Flag: "metrics", Variable: "CALICO_METRICS_ADDRESS", Help: "host:port of /metrics; 0 = off; default: as the PrometheusMetrics parameters say, :9091", Set: address(&c.Metrics)},
	}
}

// SetNode sets the node's name: set, or else the operating system's in lower case.
func (c *Config) SetNode(set, hostname string) error {
	if c.Node = strings.TrimSpace(set); c.Node != "" {
		return model.CheckHost(c.Node)
	}
	if c.Node = strings.ToLower(hostname); c.Node == "" {
		return errors.New("the host has no name: set NODENAME")
	}
	if err := model.CheckHost(c.Node); err != nil {
		return fmt.Errorf("it is not set, and the operating system's host name can't be used: %w", err)
	}
	return nil
}
