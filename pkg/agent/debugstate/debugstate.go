// SPDX-License-Identifier: Apache-2.0

// Package debugstate is what an agent says of itself at /debug/state: JSON, or text for
// people where ?format=text asks for that. It has no dependencies, so that any program can read it: calicoctl does.
package debugstate

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"
)

// State is what the page says that programs need. The agent says more of what it plans.
type State struct {
	Endpoints Endpoints `json:"endpoints"`
	Router    Router    `json:"router"`
}

// Router is how routes and BGP stand.
type Router struct {
	// Waiting is why nothing that etcd says now is done, "" = it is.
	Waiting string            `json:"waiting,omitempty"`
	Lacks   map[string]string `json:"notProgrammed,omitempty"` // why, by what the kernel lacks
	// Peers are the sessions as they stand, PeersError why they are not known, and BGPError
	// why BGP is not as it should be.
	Peers      []Peer `json:"peers"`
	PeersError string `json:"peersError,omitempty"`
	BGPError   string `json:"bgpError,omitempty"`
	// Busy: the router didn't answer in time; only its BGP sessions are known.
	Busy bool `json:"busy,omitempty"`
}

// Peer is a BGP neighbour, and how the session with it stands.
type Peer struct {
	Address netip.Addr `json:"address"`
	AS      uint32     `json:"as"`
	Kind    string     `json:"kind"`           // why it is one: the mesh, a peer of this node, or of all
	Host    string     `json:"host,omitempty"` // that it is, "" = no host of ours
	State   string     `json:"state"`
	Since   time.Time  `json:"since"`
	// Received is how many prefixes it has sent, of which Refused are taken from no neighbour; Used how many learned
	// routes go through it, Sent how many it was sent.
	Received int `json:"received"`
	Refused  int `json:"refused"`
	Used     int `json:"used"`
	Sent     int `json:"sent"`
	// Trouble is the kind of what keeps the session from being up, "" = it is up, or nothing was tried yet. Error is the
	// last one, kept when the session is up again.
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

// Endpoint is one of them.
type Endpoint struct {
	Path      string   `json:"path"` // in etcd
	Interface string   `json:"interface,omitempty"`
	Status    string   `json:"status"` // as it is reported in etcd
	Addresses []string `json:"addresses,omitempty"`
	Reason    string   `json:"reason,omitempty"` // why it isn't up
}

// WriteText prints them for people.
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
