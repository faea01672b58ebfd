// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/reclaim"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
)

// option is one setting of the process: a flag, and the variable that holds
// its default.
type option struct {
	flag, variable, initial, help string
	set                           func(*Config, string) error
}

func options() []option {
	text := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, s string) error {
			*field(c) = strings.TrimSpace(s)
			return nil
		}
	}
	file := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, s string) error {
			*field(c) = strings.TrimSpace(s)
			if *field(c) == "" {
				return nil
			}
			f, err := os.Open(*field(c))
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	absolute := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, s string) error {
			if !filepath.IsAbs(s) {
				return fmt.Errorf("%q: want an absolute path", s)
			}
			*field(c) = filepath.Clean(s)
			return nil
		}
	}
	address := func(field func(*Config) *string) func(*Config, string) error {
		return func(c *Config, s string) (err error) {
			*field(c), err = params.ParseListen(s)
			return err
		}
	}
	method := func(family int) func(*Config, string) error {
		return func(c *Config, s string) (err error) {
			c.Methods[family], err = plan.ParseMethod(s, family == 1)
			return err
		}
	}
	return []option{
		{"nodename", "NODENAME", "", "name of this host; default: the operating system's, lower case", func(c *Config, s string) error {
			c.Node = strings.TrimSpace(s)
			return checkNode(c.Node)
		}},
		{"etcd-endpoints", "ETCD_ENDPOINTS", "", "comma list of URLs of etcd; default: http://127.0.0.1:2379, https with certificate files", func(c *Config, s string) error {
			for e := range strings.SplitSeq(s, ",") {
				if e = strings.TrimSpace(e); e != "" {
					c.Store.Endpoints = append(c.Store.Endpoints, e)
				}
			}
			return nil
		}},
		{"etcd-discovery-srv", "ETCD_DISCOVERY_SRV", "", "domain whose SRV records name etcd, instead of endpoints", text(func(c *Config) *string { return &c.Store.DiscoverySRV })},
		{"etcd-ca-cert-file", "ETCD_CA_CERT_FILE", "", "certificate of who signed etcd's; default: the system's roots", file(func(c *Config) *string { return &c.Store.CAFile })},
		{"etcd-cert-file", "ETCD_CERT_FILE", "", "certificate of this client", file(func(c *Config) *string { return &c.Store.CertFile })},
		{"etcd-key-file", "ETCD_KEY_FILE", "", "key of this client's certificate", file(func(c *Config) *string { return &c.Store.KeyFile })},
		{"etcd-username", "ETCD_USERNAME", "", "user of etcd", text(func(c *Config) *string { return &c.Store.Username })},
		{"etcd-password-file", "ETCD_PASSWORD_FILE", "", "file with the user's password", file(func(c *Config) *string { return &c.Store.PasswordFile })},
		{"cni-conf-dir", "CNI_CONF_DIR", "", "the container runtime's directory of network configurations, where what calico-install has left is written once the agent serves the host; it may be mounted below /host; default: none, nothing is written", func(c *Config, s string) error {
			if s == "" {
				return nil
			}
			return absolute(func(c *Config) *string { return &c.CNI.Dir })(c, s)
		}},
		{"cni-exclusive", "CNI_EXCLUSIVE", "false", "true renames network configurations of others that come first by name to <name>" + netconf.BackupSuffix, func(c *Config, s string) (err error) {
			if c.CNI.Exclusive, err = strconv.ParseBool(s); err != nil {
				err = fmt.Errorf("%q: want true or false", s)
			}
			return err
		}},
		{"cni-etcd-ca-cert-file", "CNI_ETCD_CA_CERT_FILE", "", "what is copied to the directory calico-tls beside the network configuration, for the plugins, as it changes: the certificate of who signed etcd's; default: the agent's own", file(func(c *Config) *string { return &c.CNI.CAFile })},
		{"cni-etcd-cert-file", "CNI_ETCD_CERT_FILE", "", "the same of the certificate; default: the agent's own", file(func(c *Config) *string { return &c.CNI.CertFile })},
		{"cni-etcd-key-file", "CNI_ETCD_KEY_FILE", "", "the same of its key; default: the agent's own", file(func(c *Config) *string { return &c.CNI.KeyFile })},
		{"kubeconfig", "KUBECONFIG", "", "file with the access to the Kubernetes API, of which plugins learn by this agent what it knows of pods; default: in a cluster the pod's service account, else the API isn't read", text(func(c *Config) *string { return &c.Kubernetes.Kubeconfig })},
		{"kubernetes", "CALICO_KUBERNETES", "auto", "off: the Kubernetes API isn't read, whatever else is set", func(c *Config, s string) error {
			c.Kubernetes.Off = s == "off"
			if s != "off" && s != "auto" {
				return fmt.Errorf("%q: want auto or off", s)
			}
			return nil
		}},
		{"run-dir", "CALICO_RUN_DIR", "/run/calico", "directory of the gate's socket, " + socketName, absolute(func(c *Config) *string { return &c.RunDir })},
		{"var-dir", "CALICO_VAR_DIR", "/var/lib/calico", "directory of the files " + nodenameName + ", " + mtuName + ", " + status.LeasesName + ", " + reclaim.GUIDName + " and " + router.BGPStateName, absolute(func(c *Config) *string { return &c.VarDir })},
		{"config", "CALICO_CONFIG_FILE", params.DefaultFile, "file of parameters, [global] and lines Name = value; it need not be there", absolute(func(c *Config) *string { return &c.ConfigFile })},
		{"health", "CALICO_HEALTH_ADDRESS", "", "host:port of /liveness, /readiness, /debug/state and /debug/invalid; 0 = off; default: as the Health parameters say, 127.0.0.1:9099", address(func(c *Config) *string { return &c.Health })},
		{"ip", "IP", "", "how this host finds its IPv4 address: an address, first-found, can-reach=<address or name>, interface=<regular expressions>, skip-interface=<the same>, cidr=<list>, or none; default: first-found", method(0)},
		{"ip6", "IP6", "", "the same for IPv6; default: none", method(1)},
		{"as", "AS", "", "number of this host's BGP autonomous system, which is written to etcd; default: what etcd says, or 64512", func(c *Config, s string) (err error) {
			if s = strings.TrimSpace(s); s == "" {
				return nil
			}
			c.AS, err = model.ParseASNumber(s)
			return err
		}},
		{"metrics", "CALICO_METRICS_ADDRESS", "", "host:port of /metrics; 0 = off; default: as the PrometheusMetrics parameters say, :9091", address(func(c *Config) *string { return &c.Metrics })},
	}
}

// UsageError is a command line or an environment that makes no sense. Help says
// that help was asked for, and printed, instead.
type UsageError struct {
	Help bool
	err  error
}

// Error names the flag or variable, and what to do.
func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap is the cause.
func (e *UsageError) Unwrap() error { return e.err }

// invocation is what a command line asks for.
type invocation struct {
	Config  Config
	Version bool // only the version is asked for
	// CleanUp: what an older version has left on the host is listed, and with Yes removed, and nothing else done.
	CleanUp, Yes bool
}

// ParseConfig reads the command line and the environment: flags win. hostname
// is the operating system's. Errors are *UsageError; help goes to out.
func ParseConfig(args, environ []string, hostname string, out io.Writer) (invocation, error) {
	var in invocation
	flags := flag.NewFlagSet("calico-node", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&in.Version, "version", false, "print the version and exit")
	flags.BoolVar(&in.CleanUp, "clean-up-legacy", false, "list the chains, sets and routes that the agent of an older version of Calico has left on this host, and exit; -yes removes them")
	flags.BoolVar(&in.Yes, "yes", false, "with -clean-up-legacy: remove what is listed")
	all := options()
	for _, o := range all {
		flags.String(o.flag, o.initial, fmt.Sprintf("%s (%s)", o.help, o.variable))
	}
	if err := flags.Parse(args); err != nil {
		return in, &UsageError{Help: errors.Is(err, flag.ErrHelp), err: err}
	}
	if flags.NArg() > 0 {
		return in, &UsageError{err: fmt.Errorf("argument %q is not understood: calico-node takes flags only, see -help", flags.Arg(0))}
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	variables := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		variables[name] = value
	}
	for _, o := range all {
		value, source := flags.Lookup(o.flag).Value.String(), "flag -"+o.flag
		if v, ok := variables[o.variable]; ok && v != "" && !given[o.flag] {
			value, source = v, o.variable
		}
		if o.flag == "nodename" && strings.TrimSpace(value) == "" {
			value, source = strings.ToLower(hostname), "the operating system's host name (set NODENAME to use another)"
		}
		if err := o.set(&in.Config, value); err != nil {
			return in, &UsageError{err: fmt.Errorf("%s: %w", source, err)}
		}
	}
	if len(in.Config.Store.Endpoints) == 0 && in.Config.Store.DiscoverySRV == "" {
		scheme := "http"
		if s := in.Config.Store; s.CAFile != "" || s.CertFile != "" || s.KeyFile != "" {
			scheme = "https"
		}
		in.Config.Store.Endpoints = []string{scheme + "://127.0.0.1:2379"}
	}
	in.Config.Kubernetes.InCluster = variables["KUBERNETES_SERVICE_HOST"] != ""
	in.Config.Felix = params.Environ(environ)
	return in, nil
}

// checkNode refuses what other parts could not take as a host's name.
func checkNode(name string) error {
	if name == "" {
		return errors.New("the host has no name: set NODENAME")
	}
	return model.CheckHost(name)
}
