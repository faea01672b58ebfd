// SPDX-License-Identifier: Apache-2.0

// Package debugstate describes what an agent reports at /debug/state: JSON, or text for people with ?format=text. It has no dependencies,
// so that any program can read it: calicoctl does.
package debugstate

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"
)

// State is the part of the page that programs need. The agent reports more of its plans.
type State struct {
	Endpoints Endpoints `json:"endpoints"`
	Router    Router    `json:"router"`
}

// Router is the state of routes and BGP.
type Router struct {
	// Waiting is why the router doesn't act on etcd now, "" = it does.
	Waiting string            `json:"waiting,omitempty"`
	Lacks   map[string]string `json:"notProgrammed,omitempty"` // reasons, by what the kernel lacks
	// Peers are the sessions, PeersError why they are unknown, and BGPError why BGP is not as it should be.
	Peers      []Peer `json:"peers"`
	PeersError string `json:"peersError,omitempty"`
	BGPError   string `json:"bgpError,omitempty"`
	// Busy: the router didn't answer in time; only its BGP sessions are known.
	Busy bool `json:"busy,omitempty"`
}

// Peer is a BGP neighbour and the state of its session.
type Peer struct {
	Address netip.Addr `json:"address"`
	AS      uint32     `json:"as"`
	Kind    string     `json:"kind"`           // why it is a peer: the mesh, a peer of this node, or of all
	Host    string     `json:"host,omitempty"` // the host that it is, "" = none of ours
	State   string     `json:"state"`
	Since   time.Time  `json:"since"`
	// Received is how many prefixes it has sent, including the Refused, which are taken from no neighbour; Used how many learned routes go
	// through it, Sent how many prefixes it was sent.
	Received int `json:"received"`
	Refused  int `json:"refused"`
	Used     int `json:"used"`
	Sent     int `json:"sent"`
	// Trouble is the kind of problem that keeps the session down, "" = it is up, or nothing was tried yet. Error is the last problem, kept
	// when the session is up again.
	Trouble string    `json:"trouble,omitempty"`
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"errorAt,omitzero"`
}

// Endpoints are the workload endpoints of the host.
type Endpoints struct {
	// Busy: the agent didn't answer in time, and All is empty.
	Busy bool       `json:"busy,omitempty"`
	All  []Endpoint `json:"all"`
}

// Endpoint is a workload endpoint.
type Endpoint struct {
	Path      string   `json:"path"` // in etcd
	Interface string   `json:"interface,omitempty"`
	Status    string   `json:"status"` // as reported in etcd
	Addresses []string `json:"addresses,omitempty"`
	Reason    string   `json:"reason,omitempty"` // why it isn't up
}

// WriteText prints the endpoints for people.
func (e Endpoints) WriteText(w io.Writer) error {
	if e.Busy {
		_, err := fmt.Fprintln(w, "# endpoints\nbusy: there was no answer in time")
		return err
	}
	if _, err := fmt.Fprintln(w, "# endpoints"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, ep := range e.All {
		iface := ep.Interface
		if iface == "" {
			iface = "-"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", iface, ep.Status, strings.Join(ep.Addresses, ","), ep.Path, ep.Reason) // Flush has the error
	}
	return t.Flush()
}
