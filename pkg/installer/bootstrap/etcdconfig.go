// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/calico-go/calico/pkg/daemon/run"
)

// EtcdConfig returns the configuration file of etcd's member on a node, from the pod's environment. A member has the address that was
// chosen for it, even if the kubelet reports another one for the node.
func EtcdConfig(environ []string) ([]byte, error) {
	env := run.Variables(environ)
	node, cluster := env["NODE_NAME"], env["INITIAL_CLUSTER"]
	members, err := parseMembers(cluster)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(members, func(m member) bool { return m.node == node })
	if at < 0 {
		return nil, fmt.Errorf("node %q is none of etcd's members, %v: its agent takes the label off it by which this pod came here", node, members)
	}
	tls := func(name string, more map[string]any) map[string]any {
		more["client-cert-auth"], more["trusted-ca-file"] = true, "/certs/ca.crt"
		more["cert-file"], more["key-file"] = "/certs/"+name+".crt", "/certs/"+name+".key"
		return more
	}
	client, peer := members[at].url(clientPort), members[at].url(peerPort)
	return json.MarshalIndent(map[string]any{ // JSON is YAML
		"name": node, "data-dir": "/var/lib/etcd/data",
		"listen-client-urls": client, "advertise-client-urls": client,
		"listen-peer-urls": peer, "initial-advertise-peer-urls": peer,
		"initial-cluster": cluster, "initial-cluster-token": env["INITIAL_CLUSTER_TOKEN"],
		// Without TLS, for the probes and for Prometheus on the node: alarms and sizes, no data.
		"listen-metrics-urls":       "http://127.0.0.1:2481",
		"client-transport-security": tls("server", map[string]any{}),
		// The authority also signs clients, which are no members.
		"peer-transport-security": tls("peer", map[string]any{"allowed-cn": []string{peerName}}),
		"tls-min-version":         "TLS1.3",
		// Users are identified by their certificates, which the HTTP gateway would replace by its own.
		"enable-grpc-gateway":  false,
		"auto-compaction-mode": "periodic", "auto-compaction-retention": "5m",
		"quota-backend-bytes": 2 << 30,
	}, "", "  ")
}
