// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// The controllers, by the names that ENABLED_CONTROLLERS knows.
const (
	Nodes           = "node"
	Policies        = "policy"
	Workloads       = "workloadendpoint"
	ServiceAccounts = "serviceaccount"
	Namespaces      = "namespace"
)

// names are all of them.
func names() []string { return []string{Nodes, Policies, Workloads, ServiceAccounts, Namespaces} }

// Config is what the controllers work with.
type Config struct {
	Store store.Config
	Kube  kube.Config
	// Enabled are the controllers that run.
	Enabled map[string]bool
	// ProtectedPorts are TCP ports of the nodes that only nodes may reach.
	ProtectedPorts []model.Port
	// LeaseNamespace is where the Lease is by which one replica leads, and the agents' DaemonSet; Identity names this one among them.
	LeaseNamespace, Identity string
	Health, Metrics          serving.Address
	LogLevel                 slog.Level

	Version string
	Logger  *slog.Logger
	Level   *slog.LevelVar // nil: the log's level is not this program's
}

// option is one setting: a flag, and the variable that holds its default.
type option struct {
	flag, variable, initial, help string
	set                           func(*Config, string) error
}

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

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
	address := func(field func(*Config) *serving.Address) func(*Config, string) error {
		return func(c *Config, s string) (err error) {
			*field(c), err = parseAddress(s)
			return err
		}
	}
	return []option{
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
		{"kubeconfig", "KUBECONFIG", "", "file that says how to reach the Kubernetes API; default: as a pod does", file(func(c *Config) *string { return &c.Kube.Kubeconfig })},
		{"controllers", "ENABLED_CONTROLLERS", strings.Join(names(), ","), "comma list of the controllers that run; pods wait for what namespace and serviceaccount make", func(c *Config, s string) error {
			c.Enabled = map[string]bool{}
			for name := range strings.SplitSeq(s, ",") {
				name = strings.ToLower(strings.TrimSpace(name))
				if name == "profile" {
					name = Namespaces // as it was called once
				}
				if !slices.Contains(names(), name) {
					return fmt.Errorf("%q is no controller: want some of %s", name, strings.Join(names(), ", "))
				}
				c.Enabled[name] = true
			}
			return nil
		}},
		{"protected-ports", "PROTECTED_HOST_PORTS", "", "comma list of TCP ports of the nodes that only nodes may reach: each gets a host endpoint; default: none", func(c *Config, s string) error {
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
		{"lease-namespace", "POD_NAMESPACE", "", "namespace of the Lease calico-controllers and of the DaemonSet calico-node; default: this pod's, or kube-system", func(c *Config, s string) error {
			c.LeaseNamespace = strings.TrimSpace(s)
			if c.LeaseNamespace == "" {
				own, err := os.ReadFile(serviceAccount)
				if c.LeaseNamespace = strings.TrimSpace(string(own)); err != nil || c.LeaseNamespace == "" {
					c.LeaseNamespace = "kube-system"
				}
			}
			return nil
		}},
		{"health", "CALICO_HEALTH_ADDRESS", "127.0.0.1:9098", "host:port of /healthz, /readyz and /debug/invalid; 0 = off", address(func(c *Config) *serving.Address { return &c.Health })},
		{"metrics", "CALICO_METRICS_ADDRESS", ":9094", "host:port of /metrics; 0 = off", address(func(c *Config) *serving.Address { return &c.Metrics })},
		{"log-level", "LOG_LEVEL", "info", "debug, info, warning or error", func(c *Config, s string) error {
			switch strings.ToLower(strings.TrimSpace(s)) {
			case "debug":
				c.LogLevel = slog.LevelDebug
			case "info":
				c.LogLevel = slog.LevelInfo
			case "warning", "warn":
				c.LogLevel = slog.LevelWarn
			case "error", "fatal":
				c.LogLevel = slog.LevelError
			default:
				return fmt.Errorf("%q: want debug, info, warning or error", s)
			}
			return nil
		}},
	}
}

func parseAddress(s string) (serving.Address, error) {
	if s = strings.TrimSpace(s); s == "" || s == "0" {
		return serving.Address{}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return serving.Address{}, fmt.Errorf("address %q: want host:port or :port, or 0 for off", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return serving.Address{}, fmt.Errorf("address %q: want a port of 1 to 65535, or 0 for off", s)
	}
	return serving.Address{Enabled: true, Host: host, Port: uint16(n)}, nil
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
	// GCDryRun and GCResume ask for ListGarbage and ResumeGarbage, instead of Run.
	GCDryRun, GCResume bool
}

// ParseConfig reads the command line and the environment: flags win. Errors are *UsageError; help goes to out.
func ParseConfig(args, environ []string, out io.Writer) (invocation, error) {
	var in invocation
	flags := flag.NewFlagSet("calico-controllers", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&in.Version, "version", false, "print the version and exit")
	flags.BoolVar(&in.GCDryRun, "gc-dry-run", false, "list addresses, blocks and hosts that seem to be left over, and exit")
	flags.BoolVar(&in.GCResume, "gc-resume", false, "let garbage collection go on that stopped because too much would go at once, and exit")
	all := options()
	for _, o := range all {
		flags.String(o.flag, o.initial, fmt.Sprintf("%s (%s)", o.help, o.variable))
	}
	if err := flags.Parse(args); err != nil {
		return in, &UsageError{Help: errors.Is(err, flag.ErrHelp), err: err}
	}
	if flags.NArg() > 0 {
		return in, &UsageError{err: fmt.Errorf("argument %q is not understood: calico-controllers takes flags only, see -help", flags.Arg(0))}
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
	return in, nil
}
