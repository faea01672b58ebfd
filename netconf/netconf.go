// SPDX-License-Identifier: Apache-2.0

// Package netconf reads what a container runtime tells a CNI plugin: the
// network configuration on stdin and the arguments in CNI_ARGS.
//
// A known field of the wrong type is an error that names the field; unknown
// fields are allowed, as the CNI specification demands.
package netconf

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// Defaults of fields that are absent.
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
	// usePodCIDR is what stands in ipam.subnet for the node's pod CIDR.
	usePodCIDR = "usePodCidr"
)

// Config is one network configuration, defaults filled in.
type Config struct {
	CNIVersion string // "" is 0.1.0
	Name       string // never empty
	Type       string

	Etcd     Etcd
	Nodename Nodename
	IPAM     IPAM

	// MTU of the pod's interface in bytes, 0 = as the agent found it.
	MTU int

	Policy     Policy
	Kubernetes Kubernetes

	// IPForward turns on ip_forward inside the container
	// (container_settings.allow_ip_forwarding).
	IPForward bool
	// IncludeDefaultRoutes adds 0/0 and ::/0 to the routes of host-local.
	IncludeDefaultRoutes bool
	// IPAddrsNoIPAM and FloatingIPs let those annotations work (feature_control).
	IPAddrsNoIPAM bool
	FloatingIPs   bool

	Log Log

	Agent Agent
	// DatastoreTimeout bounds all work with etcd in one call.
	DatastoreTimeout time.Duration

	Runtime Runtime
	// Pod is what the pod's annotations ask for; see Annotate.
	Pod Annotations
	// DNS is runtimeConfig.dns, or else the dns of the network configuration.
	DNS DNS

	// IsGateway is the bridge plugin's isGateway or isDefaultGateway; it
	// matters to calico-ipam, which reads its main plugin's configuration.
	IsGateway bool

	// PrevResult is the result of the ADD, nil where there is none.
	PrevResult json.RawMessage
	// ValidAttachments are those that GC keeps; nil where the field is absent.
	ValidAttachments []Attachment

	// Raw is the configuration as it came, for plugins called in turn.
	Raw []byte
}

// Etcd says where etcd is and how to get in.
type Etcd struct {
	Unnamed      bool // Endpoints are the default
	Endpoints    []string
	DiscoverySRV string
	CAFile       string
	CertFile     string
	KeyFile      string
	Username     string
	PasswordFile string
}

// Nodename says how this node's name is found: the first that is there of
// Name, the content of File, Hostname, and the operating system's host name.
type Nodename struct {
	Name         string
	File         string
	FileSet      bool // the file is configured, not the default
	FileOptional bool // though it is configured, and not there yet
	FileRequired bool // though it is the default: that it isn't optional is said
	Hostname     string
}

// IPAM is the ipam section.
type IPAM struct {
	Type       string
	AssignIPv4 bool
	AssignIPv6 bool
	IPv4Pools  []model.PoolRef
	IPv6Pools  []model.PoolRef
	// Subnet is host-local's; it may be usePodCIDR.
	Subnet string
	// PodCIDR reports that a subnet, at any depth, asks for the node's pod CIDR.
	PodCIDR bool
	// Gateway is the gateway that calico-ipam reports to another main plugin,
	// invalid = choose.
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

// Agent says how the node's agent is asked whether a pod's network is programmed.
type Agent struct {
	Socket    string
	SocketSet bool // it is configured, not the default
	// Timeout bounds the wait, 0 = don't wait (policy_setup_timeout_seconds).
	Timeout time.Duration
}

// Runtime is what the container runtime asks for, for one container.
type Runtime struct {
	IPs     []netip.Addr // runtimeConfig.ips
	ArgsIPs []netip.Addr // args.cni.ips
	MAC     model.MAC    // runtimeConfig.mac
	// Bandwidth is runtimeConfig.bandwidth, which only a plugin that has the capability is passed.
	Bandwidth Bandwidth
}

// Log says what is logged and where.
type Log struct {
	Level    slog.Level
	File     string // "" = no file
	MaxSize  int    // MB before the file rotates
	MaxAge   int    // days a rotated file is kept, 0 = for ever
	MaxCount int    // rotated files kept, 0 = all
}

// DNS is what the pod's resolver uses.
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
