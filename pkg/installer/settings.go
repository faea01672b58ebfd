// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/model"
)

// Config configures Install and Uninstall.
type Config struct {
	// From is the directory with the plugins to install.
	From string
	// BinDir and ConfDir are the runtime's directories, as paths on the host.
	BinDir, ConfDir string
	// VarDir and RunDir are the agent's directories.
	VarDir, RunDir string
	// EtcdDir is the node's directory that the manifests mount for their etcd.
	EtcdDir string
	// Template is the network configuration, with placeholders.
	Template string
	// Exclusive allows renaming files of others in the place of ours.
	Exclusive bool
	// Node is this host's name in the data model.
	Node    string
	Logger  *slog.Logger
	environ map[string]string
}

const (
	defaultLogFile = "/var/log/calico/cni/cni.log"
	// nodenameName is the file that every agent leaves in VarDir.
	nodenameName = "nodename"
)

// settings returns the variables that Install and Uninstall read, in the order of the documents.
func settings(c *Config) []run.Option {
	return []run.Option{
		{Variable: "CNI_NETWORK_CONFIG", Help: "the network configuration, a list of plugins, with the placeholders below", Set: func(s string) error {
			c.Template = s
			return nil
		}},
		{Variable: "CNI_BIN_DIR", Initial: "/opt/cni/bin", Help: "the node's directory of plugins, mounted at that path or at the same below `/host`", Set: run.Absolute(&c.BinDir)},
		{Variable: "CNI_CONF_DIR", Initial: "/etc/cni/net.d", Help: "the node's directory of network configurations, mounted in the same way", Set: run.Absolute(&c.ConfDir)},
		{Variable: "CNI_EXCLUSIVE", Initial: "false", Help: "`true` renames what others left in our place to `<name>" + netconf.BackupSuffix + "`: a `calico` that isn't ours", Set: run.Bool(&c.Exclusive)},
		{Variable: "CALICO_VAR_DIR", Initial: "/var/lib/calico", Help: "the agent's directory of the same name, where the configuration is left for it", Set: run.Absolute(&c.VarDir)},
		{Variable: "CALICO_RUN_DIR", Initial: "/run/calico", Help: "the agent's directory of the same name; of uninstall", Set: run.Absolute(&c.RunDir)},
		{Variable: "CALICO_ETCD_DIR", Initial: "/var/lib/calico-etcd", Help: "the node's directory in which the etcd of the manifests has its data; of uninstall -data", Set: run.Absolute(&c.EtcdDir)},
	}
}

// A placeholder is a name between double underscores in a network configuration, which render replaces by a value.
type placeholder struct {
	name, variable, help, initial string
	required                      bool
}

// placeholders returns those that existing configurations of Calico use.
func placeholders() []placeholder {
	return []placeholder{
		{"KUBERNETES_NODE_NAME", "KUBERNETES_NODE_NAME", "this node's name, or else what `NODENAME` says", "", true},
		{"ETCD_ENDPOINTS", "ETCD_ENDPOINTS", "comma list of URLs of etcd", "", true},
		{"ETCD_DISCOVERY_SRV", "ETCD_DISCOVERY_SRV", "domain whose SRV records name etcd", "", false},
		{"ETCD_CA_CERT_FILE", "", "`calico-tls/etcd-ca` in the directory of network configurations, where `CNI_ETCD_CA_CERT_FILE` or `ETCD_CA_CERT_FILE` is set", "", false},
		{"ETCD_CERT_FILE", "", "the same of `etcd-cert` and `…ETCD_CERT_FILE`", "", false},
		{"ETCD_KEY_FILE", "", "the same of `etcd-key` and `…ETCD_KEY_FILE`", "", false},
		{"CNI_MTU", "CNI_MTU", "MTU of pods in bytes, 0 = as the agent found it", "0", false},
		{"LOG_LEVEL", "LOG_LEVEL", "of the plugins", "info", false},
		{"LOG_FILE_PATH", "LOG_FILE_PATH", "of the plugins", defaultLogFile, false},
		{"LOG_FILE_MAX_SIZE", "LOG_FILE_MAX_SIZE", "megabytes", "100", false},
		{"LOG_FILE_MAX_AGE", "LOG_FILE_MAX_AGE", "days", "30", false},
		{"LOG_FILE_MAX_COUNT", "LOG_FILE_MAX_COUNT", "files", "10", false},
		{"DATASTORE_TYPE", "DATASTORE_TYPE", "the plugins know etcd alone", "etcdv3", false},
		{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_HOST", "the plugins don't use it", "", false},
		{"KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT", "the plugins don't use it", "", false},
		{"KUBECONFIG_FILEPATH", "", "`calico-kubeconfig` in the directory of network configurations; it isn't written, as the plugins ask the agent", "", false},
		{"SERVICEACCOUNT_TOKEN", "", "nothing: the plugins ask the agent", "", false},
	}
}

// Reference returns the part of the documents about the settings.
func Reference() string {
	var b strings.Builder
	b.WriteString("| Variable | What it is | Default |\n|---|---|---|\n")
	for _, s := range settings(new(Config)) {
		initial := "none"
		if s.Initial != "" {
			initial = "`" + s.Initial + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Variable, s.Help, initial)
	}
	b.WriteString("\n| Placeholder | What takes its place | Default |\n|---|---|---|\n")
	for _, p := range placeholders() {
		initial, help := "nothing", p.help
		switch {
		case p.initial != "":
			initial = "`" + p.initial + "`"
		case p.required:
			initial = "none: it must be set"
		}
		if p.variable != "" {
			help = "`" + p.variable + "`: " + help
		}
		fmt.Fprintf(&b, "| `__%s__` | %s | %s |\n", p.name, help, initial)
	}
	return b.String()
}

// ParseConfig reads the settings from the environment. from is the directory of the installer itself.
func ParseConfig(environ []string, from string) (Config, error) {
	c := Config{From: from, environ: run.Variables(environ)}
	err := run.ParseEnviron(settings(&c), environ)
	if c.Node = strings.TrimSpace(cmp.Or(c.environ["KUBERNETES_NODE_NAME"], c.environ["NODENAME"])); c.Node != "" {
		if wrong := model.CheckHost(c.Node); wrong != nil {
			err = errors.Join(err, fmt.Errorf("KUBERNETES_NODE_NAME, or NODENAME: %w", wrong))
		}
	}
	return c, err
}
