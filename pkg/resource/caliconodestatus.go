// SPDX-License-Identifier: Apache-2.0

package resource

// CalicoNodeStatus asks for the status of a node. It is in the Kubernetes API alone, where the node's agent answers.
type CalicoNodeStatus struct {
	Node                string            `json:"node" doc:"The node."`
	Classes             []NodeStatusClass `json:"classes" doc:"Parts of the status: Agent, BGP, Routes."`
	UpdatePeriodSeconds *int              `json:"updatePeriodSeconds,omitempty" range:"0,86400" doc:"How often the status is looked at, and written if it has changed, 0 = no more. Default 10."`
}

// NodeStatusClass is a part of a node's status.
type NodeStatusClass string

// The parts of a node's status.
const (
	ClassAgent  NodeStatusClass = "Agent"
	ClassBGP    NodeStatusClass = "BGP"
	ClassRoutes NodeStatusClass = "Routes"
)

func (NodeStatusClass) words() []string {
	return []string{string(ClassAgent), string(ClassBGP), string(ClassRoutes)}
}

// MostInNodeStatus is how many sessions or routes of a family a NodeStatus has at most: with all four lists full it is below the
// 1.5 MiB that etcd takes.
const MostInNodeStatus = 2000

// NodeStatus is the status of a CalicoNodeStatus.
type NodeStatus struct {
	LastUpdated string       `json:"lastUpdated,omitempty" doc:"When what follows last changed."`
	Agent       *AgentStatus `json:"agent,omitempty" doc:"The agent."`
	BGP         *BGPStatus   `json:"bgp,omitempty" doc:"The BGP sessions."`
	Routes      *RouteStatus `json:"routes,omitempty" doc:"The routes to other hosts and their pods."`
}

// AgentStatus is that of an agent. Its BGP speaker is part of it, and the members are called as Calico calls them.
type AgentStatus struct {
	BIRDV4 SpeakerStatus  `json:"birdV4" doc:"The agent's."`
	BIRDV6 *SpeakerStatus `json:"birdV6,omitempty" doc:"The same, if it has IPv6 sessions."`
}

// SpeakerStatus is that of an agent, for one family of addresses.
type SpeakerStatus struct {
	State        string `json:"state" doc:"Ready, or NotReady: kubectl describe on the agent's pod says why."`
	Version      string `json:"version" doc:"The agent's version."`
	RouterID     string `json:"routerID" doc:"The identifier of its BGP speaker, empty if it has none."`
	LastBootTime string `json:"lastBootTime" doc:"When it started."`
}

// BGPStatus is that of a node's sessions, by their addresses' family.
type BGPStatus struct {
	EstablishedV4    int          `json:"numberEstablishedV4" doc:"How many IPv4 sessions are established."`
	NotEstablishedV4 int          `json:"numberNotEstablishedV4" doc:"How many IPv4 sessions are not."`
	EstablishedV6    int          `json:"numberEstablishedV6" doc:"How many IPv6 sessions are established."`
	NotEstablishedV6 int          `json:"numberNotEstablishedV6" doc:"How many IPv6 sessions are not."`
	PeersV4          []PeerStatus `json:"peersV4,omitempty" most:"2000" doc:"The IPv4 sessions, the first 2,000."`
	PeersV6          []PeerStatus `json:"peersV6,omitempty" most:"2000" doc:"The IPv6 sessions, likewise."`
}

// PeerStatus is that of a session.
type PeerStatus struct {
	PeerIP string `json:"peerIP" doc:"The peer's address."`
	Type   string `json:"type" doc:"NodeMesh, NodePeer or GlobalPeer."`
	State  string `json:"state" doc:"The session's state, such as Established."`
	Since  string `json:"since,omitempty" doc:"Since when."`
}

// RouteStatus is that of a node's routes, by family.
type RouteStatus struct {
	V4      []NodeRoute `json:"routesV4,omitempty" most:"2000" doc:"The IPv4 routes, the first 2,000."`
	V6      []NodeRoute `json:"routesV6,omitempty" most:"2000" doc:"The IPv6 routes, likewise."`
	Omitted int         `json:"numberOmitted,omitempty" doc:"How many more routes there are."`
}

// NodeRoute is a route that the agent wants.
type NodeRoute struct {
	Type        string      `json:"type" doc:"FIB if the kernel has it, else RIB."`
	Destination string      `json:"destination" doc:"The CIDR."`
	Gateway     string      `json:"gateway,omitempty" doc:"The first next hop, empty if there is none."`
	Interface   string      `json:"interface,omitempty" doc:"The interface that leads there."`
	LearnedFrom LearnedFrom `json:"learnedFrom" doc:"Where it is from."`
}

// LearnedFrom is where a route is from.
type LearnedFrom struct {
	SourceType string `json:"sourceType" doc:"BGPPeer, or Static: from etcd."`
}

var calicoNodeStatusKind = &Kind{
	Name: "CalicoNodeStatus", Plural: "CalicoNodeStatuses", newSpec: func() any { return new(CalicoNodeStatus) },
	custom: &custom{columns: []string{"Node", "node"}, status: NodeStatus{}},
}
