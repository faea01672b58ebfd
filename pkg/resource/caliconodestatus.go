// SPDX-License-Identifier: Apache-2.0

package resource

// CalicoNodeStatus asks for the status of a node's agent. It is in the Kubernetes API alone, where the controllers answer.
type CalicoNodeStatus struct {
	Node                string            `json:"node" doc:"The node."`
	Classes             []NodeStatusClass `json:"classes" doc:"Agent. The node alone knows its BGP sessions and routes: run calicoctl node status on it."`
	UpdatePeriodSeconds *int              `json:"updatePeriodSeconds,omitempty" range:"0,86400" doc:"How often, at least, the status is looked at, 0 = no more. Default 10."`
}

// NodeStatusClass is a part of a node's status.
type NodeStatusClass string

func (NodeStatusClass) words() []string { return []string{"Agent"} }

// NodeStatus is the status of a CalicoNodeStatus.
type NodeStatus struct {
	LastUpdated string      `json:"lastUpdated,omitempty" doc:"When what follows last changed."`
	Agent       AgentStatus `json:"agent,omitzero" doc:"What the node's agent reports; nothing if it has never reported anything."`
}

// AgentStatus is that of an agent. Its BGP speaker is part of it, and the members are called as Calico calls them.
type AgentStatus struct {
	BIRDV4 *SpeakerStatus `json:"birdV4,omitempty" doc:"The agent's."`
	BIRDV6 *SpeakerStatus `json:"birdV6,omitempty" doc:"The same, if the node has an IPv6 address."`
}

// SpeakerStatus is that of an agent, for one family of addresses.
type SpeakerStatus struct {
	State        string `json:"state" doc:"Ready: the agent reports that it lives, and has programmed the node. NotReady: it doesn't."`
	RouterID     string `json:"routerID" doc:"The node's IPv4 address, empty if it has none."`
	LastBootTime string `json:"lastBootTime" doc:"When the agent started."`
}

var calicoNodeStatusKind = &Kind{
	Name: "CalicoNodeStatus", Plural: "CalicoNodeStatuses", newSpec: func() any { return new(CalicoNodeStatus) },
	custom: &custom{columns: []string{"Node", "node"}, status: NodeStatus{}},
}
