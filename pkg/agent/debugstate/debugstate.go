// SPDX-License-Identifier: Apache-2.0

// Package debugstate is what an agent says of itself at /debug/state: JSON, or text for
// people where ?format=text asks for that. It has no dependencies, so that any program can read it.
package debugstate

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

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
