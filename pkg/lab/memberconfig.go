// SPDX-License-Identifier: Apache-2.0

package lab

// MemberConfig is the configuration of one etcd member: the file passed to `calico-lab etcd`. Package member runs it.
type MemberConfig struct {
	Name    string `json:"name"`
	DataDir string `json:"data_dir"`
	// ClientURLs are the URLs to listen on; all except unix ones are advertised.
	ClientURLs []string `json:"client_urls"`
	PeerURL    string   `json:"peer_url"`
	// Cluster is etcd's initial cluster: name=peer URL, comma separated.
	Cluster string `json:"cluster"`
	// Control is the unix socket on which the member answers over HTTP, bypassing etcd's own API and its
	// authentication:
	//
	//	GET  /status                      → MemberStatus
	//	GET  /range?prefix=P&revision=N   → MemberRange
	//	POST /compact?revision=N
	//	POST /alarm?on=true               the quota alarm: etcd turns read-only
	Control string `json:"control"`

	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
	// Users are created, and authentication is enabled, unless it is enabled already.
	Users   []MemberUser `json:"users,omitempty"`
	NoFsync bool         `json:"no_fsync,omitempty"`
	Quota   int64        `json:"quota,omitempty"`
}

// MemberUser is a user of etcd. Without a prefix it has the role root.
type MemberUser struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	Prefix   string `json:"prefix,omitempty"` // may read and write below it
}

// MemberStatus is one member's view of the cluster.
type MemberStatus struct {
	ID       uint64 `json:"id"`
	Leader   uint64 `json:"leader"` // 0 = none
	Revision int64  `json:"revision"`
	// Compacted is the oldest revision that can still be read.
	Compacted int64 `json:"compacted"`
	Auth      bool  `json:"auth"`
}

// MemberRange is part of the store at one revision.
type MemberRange struct {
	Revision int64       `json:"revision"`
	Keys     []MemberKey `json:"keys"`
}

// MemberKey is one key as stored in etcd.
type MemberKey struct {
	Key      string `json:"key"`
	Value    []byte `json:"value"`
	Created  int64  `json:"created"`
	Modified int64  `json:"modified"`
	Lease    int64  `json:"lease,omitempty"`
}
