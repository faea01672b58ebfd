// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"path/filepath"
	"strings"
)

// Network is the name of the CNI network of every host.
const Network = "calico-lab"

// PluginConf returns the configuration of the calico plugin on this host, as in the conflist, before Config.Conf is
// applied.
func (h *Host) PluginConf() map[string]any {
	conf := map[string]any{
		"type":           "calico",
		"etcd_endpoints": strings.Join(h.lab.members.Endpoints(), ","),
		"nodename":       h.name,
		"nodename_file":  filepath.Join(h.VarDir(), "nodename"),
		"agent_socket":   h.AgentSocket(),
		"log_level":      "info",
		"log_file_path":  filepath.Join(h.LogDir(), "cni.log"),
		"ipam": map[string]any{
			"type":        "calico-ipam",
			"assign_ipv4": "true",
			"assign_ipv6": "true",
		},
	}
	if h.lab.cfg.patient {
		conf["policy_setup_timeout_seconds"] = 60
	}
	if h.lab.state.TLS {
		conf["etcd_ca_cert_file"] = h.lab.members.PKI("ca.crt")
		conf["etcd_cert_file"] = h.lab.members.PKI("client.crt")
		conf["etcd_key_file"] = h.lab.members.PKI("client.key")
	}
	if h.lab.state.Auth {
		conf["etcd_username"] = EtcdUser
		conf["etcd_password_file"] = h.lab.members.PasswordFile()
	}
	return conf
}

func (h *Host) writeConf() error {
	plugin := h.PluginConf()
	if h.lab.cfg.patient {
		plugin["datastore_timeout_seconds"] = 60
	}
	if h.lab.cfg.Conf != nil {
		h.lab.cfg.Conf(h.name, plugin)
	}
	return writeJSON(h.ConfFile(), map[string]any{
		"cniVersion": "1.0.0",
		"name":       Network,
		"plugins":    []any{plugin},
	})
}
