// SPDX-License-Identifier: Apache-2.0

// Package netconf parses what a container runtime passes to a CNI plugin: the network configuration on stdin and the
// arguments in CNI_ARGS.
//
// A known field of the wrong type is an error that names the field; unknown fields are allowed, as the CNI
// specification demands.
package netconf

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Defaults of absent fields.
const (
	defaultEndpoint           = "http://127.0.0.1:2379"
	defaultNodenameFile       = "/var/lib/calico/nodename"
	defaultAgentSocket        = "/run/calico/agent.sock"
	defaultLogFile            = "/var/log/calico/cni/cni.log"
	defaultLogMaxSize         = 100 // MB
	defaultLogMaxAge          = 30  // days
	defaultLogMaxCount        = 10  // files
	defaultPolicySetupTimeout = 10 * time.Second
	defaultDatastoreTimeout   = 20 * time.Second
	// CalicoIPAM is the ipam.type that is served in process.
	CalicoIPAM = "calico-ipam"
	// usePodCIDR in ipam.subnet stands for the node's pod CIDR.
	usePodCIDR = "usePodCidr"
)

// Config is one network configuration, with defaults filled in.
type Config struct {
	CNIVersion string // "" is 0.1.0
	Name       string // never empty
	Type       string

	Etcd     Etcd
	Nodename Nodename
	IPAM     IPAM

	// MTU of the pod's interface in bytes, 0 = as determined by the agent.
	MTU int

	Policy     Policy
	Kubernetes Kubernetes

	// IPForward turns on ip_forward inside the container
	// (container_settings.allow_ip_forwarding).
	IPForward bool
	// IncludeDefaultRoutes adds 0/0 and ::/0 to the routes of host-local.
	IncludeDefaultRoutes bool
	// IPAddrsNoIPAM and FloatingIPs enable the annotations of these names (feature_control).
	IPAddrsNoIPAM bool
	FloatingIPs   bool

	Log Log

	Agent Agent
	// DatastoreTimeout bounds all work with etcd in one call.
	DatastoreTimeout time.Duration

	Runtime Runtime
	// Pod has the requests of the pod's annotations; see Annotate.
	Pod Annotations
	// DNS is runtimeConfig.dns, or else the dns of the network configuration.
	DNS DNS

	// IsGateway is the bridge plugin's isGateway or isDefaultGateway; it
	// matters to calico-ipam, which reads its main plugin's configuration.
	IsGateway bool

	// PrevResult is the result of the ADD, nil if there is none.
	PrevResult json.RawMessage
	// ValidAttachments are those that GC keeps; nil if the field is absent.
	ValidAttachments []Attachment

	// Raw is the configuration as received, for plugins called in turn.
	Raw []byte
}

// Etcd says where etcd is and which credentials to use.
type Etcd struct {
	Unnamed      bool // Endpoints has the default
	Endpoints    []string
	DiscoverySRV string
	CAFile       string
	CertFile     string
	KeyFile      string
	Username     string
	PasswordFile string
}

// Nodename says how to find this node's name: the first available of Name, the content of File, Hostname, and the
// operating system's host name.
type Nodename struct {
	Name         string
	File         string
	FileSet      bool // the file is configured, not the default
	FileOptional bool // it may be missing although it is configured
	FileRequired bool // it must exist although it is the default, since it is marked as not optional
	Hostname     string
}

// IPAM is the ipam section.
type IPAM struct {
	Type       string
	AssignIPv4 bool
	AssignIPv6 bool
	IPv4Pools  []model.PoolRef
	IPv6Pools  []model.PoolRef
	// Subnet is host-local's subnet; it may be usePodCIDR.
	Subnet string
	// PodCIDR reports that a subnet, at any depth, stands for the node's pod CIDR.
	PodCIDR bool
	// Gateway is the gateway that calico-ipam reports to another main plugin; invalid = choose one.
	Gateway netip.Addr
}

// Policy is the policy section.
type Policy struct {
	Kubernetes                                               bool // type is k8s
	APIRoot, AuthToken, ClientCertificate, ClientKey, CAFile string
}

// Kubernetes is the kubernetes section.
type Kubernetes struct {
	Kubeconfig, APIRoot, NodeName string
}

// Agent says how to ask the node's agent whether a pod's network is programmed.
type Agent struct {
	Socket    string
	SocketSet bool // it is configured, not the default
	// Timeout bounds the wait, 0 = don't wait (policy_setup_timeout_seconds).
	Timeout time.Duration
}

// Runtime has the container runtime's requests for one container.
type Runtime struct {
	IPs     []netip.Addr // runtimeConfig.ips
	ArgsIPs []netip.Addr // args.cni.ips
	MAC     model.MAC    // runtimeConfig.mac
	// Bandwidth is runtimeConfig.bandwidth, which is passed only to a plugin with the capability.
	Bandwidth Bandwidth
}

// Log says what to log and where.
type Log struct {
	Level    slog.Level
	File     string // "" = no file
	MaxSize  int    // MB before the file rotates
	MaxAge   int    // days a rotated file is kept, 0 = for ever
	MaxCount int    // rotated files kept, 0 = all
}

// DNS has the settings of the pod's resolver.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

// Attachment is one container interface that is still valid.
type Attachment struct {
	ContainerID, IfName string
}
