// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/nodecert"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

// Daemon returns calico-nsm as a daemon whose options set c. hostname is the operating system's.
func Daemon(c *Config, hostname string) run.Daemon {
	return run.Daemon{
		Name: "calico-nsm", Prefix: "calico_nsm", Options: options(c, hostname), Health: "127.0.0.1:9095", Metrics: "127.0.0.1:9089",
		Run: func(ctx context.Context, env run.Env) error { return Run(ctx, *c, env) },
	}
}

func options(c *Config, hostname string) []run.Option {
	return slices.Concat([]run.Option{
		{Flag: "node", Variable: "NODENAME", Help: "name of this node, unlike all others; default: the operating system's", Set: func(s string) error {
			c.Node = cmp.Or(s, hostname)
			return nsm.CheckName("the name", c.Node)
		}},
		{Flag: "address", Variable: "CALICO_NSM_ADDRESS", Help: "this node's IP address for other nodes: managers call it, and tunnels end there; required", Set: func(s string) (err error) {
			if c.Address, err = netip.ParseAddr(s); err != nil || c.Address.Is4In6() || c.Address.IsUnspecified() || c.Address.Zone() != "" {
				return fmt.Errorf("%q: want this node's IP address for other nodes", s)
			}
			return nil
		}},
		{Flag: "port", Variable: "CALICO_NSM_PORT", Initial: "5005", Help: "TCP port of managers", Set: port(&c.Port)},
		{Flag: "vxlan-port", Variable: "CALICO_NSM_VXLAN_PORT", Initial: "4795", Help: "UDP port of tunnels, the same on all nodes", Set: port(&c.VXLANPort)},
		{Flag: "directory", Variable: "CALICO_NSM_DIRECTORY", Initial: nsmgrpc.DefaultDirectory, Help: "where the sockets are", Set: run.Absolute(&c.Directory)},
		{Flag: "state", Variable: "CALICO_NSM_STATE", Help: "where the state is, where pods can write to the directory of the sockets; default: that directory", Set: func(s string) error {
			return run.Absolute(&c.State)(cmp.Or(s, c.Directory))
		}},
		{Flag: "keep-default-routes", Variable: "CALICO_NSM_KEEP_DEFAULT_ROUTES", Initial: "false", Help: "true refuses a service's default route to pods that have one; else it takes the place of theirs while the connection lives", Set: run.Bool(&c.KeepDefaultRoutes)},
		{Flag: "registry", Variable: "CALICO_NSM_REGISTRY", Initial: "etcd", Help: "where managers find one another's endpoints: etcd or kubernetes", Set: func(s string) error {
			if c.Kubernetes = s == "kubernetes"; !c.Kubernetes && s != "etcd" {
				return fmt.Errorf("%q: want etcd or kubernetes", s)
			}
			return nil
		}},
		{Flag: "kubeconfig", Variable: "KUBECONFIG", Help: "file with the access to the Kubernetes API, where the registry is there; default: the pod's service account", Set: run.Text(&c.Kubeconfig)},
		{Flag: "certificate", Variable: "CALICO_NSM_CERTIFICATE", Help: "file that gets a key and a certificate of this manager's own, for which it asks the signer " + nodecert.NSMSigner + " of Kubernetes, and has it renewed; it is both the -cert-file and the -key-file then; default: none is asked for", Set: func(s string) error {
			if c.Certificate = s; s != "" && !c.Kubernetes {
				return errors.New("it is asked of Kubernetes, and the registry is etcd")
			}
			return nil
		}},
		file("ca-file", "CALICO_NSM_CA_FILE", "PEM file of the managers' authority; required", &c.TLS.CAFile, nil),
		file("cert-file", "CALICO_NSM_CERT_FILE", "PEM file of this manager's certificate, with the DNS names calico-nsm and <node>.calico-nsm; required", &c.TLS.CertFile, &c.Certificate),
		file("key-file", "CALICO_NSM_KEY_FILE", "PEM file of its key; required", &c.TLS.KeyFile, &c.Certificate),
	}, run.Etcd(&c.Store), []run.Option{
		{Flag: "etcd-ca-file", Help: "the former name of -etcd-ca-cert-file", Set: func(s string) error {
			if s == "" {
				return nil
			}
			return run.File(&c.Store.CAFile)(s)
		}},
	})
}

func port(p *uint16) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q: want a port from 1 to 65535", s)
		}
		*p = uint16(n)
		return nil
	}
}

// file returns an option for a file. If it isn't set, it takes the value of other, if any.
func file(flag, variable, help string, p, other *string) run.Option {
	return run.Option{Flag: flag, Variable: variable, Help: help, Set: func(s string) error {
		if *p = s; s == "" && other != nil {
			*p = *other
		}
		if *p == "" {
			return errors.New("it is required: managers know one another by certificates")
		}
		return nil
	}}
}
