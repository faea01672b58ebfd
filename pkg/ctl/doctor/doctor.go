// SPDX-License-Identifier: Apache-2.0

// Package doctor implements the command of calicoctl that examines everything visible from where it runs.
package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/ipam"
	"github.com/calico-go/calico/pkg/ctl/node"
	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ctl/status"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

const (
	slowEtcd  = 100 * time.Millisecond  // an ADD makes three requests
	soon      = 30 * 24 * time.Hour     // a certificate that ends within this time is reported
	clockSkew = 5 * time.Second         // a report that is further in the future is a finding
	agentWait = 6 * time.Second         // for the pages of this node's agent
	agentURL  = "http://127.0.0.1:9099" // where this node's agent answers by default
)

// examination holds the results.
type examination struct {
	env      *session.Env
	now      time.Time
	Fine     []string `json:"fine"`
	Skipped  []string `json:"notExamined"` // each with the reason
	Findings []string `json:"findings"`    // each with what to do
}

func (x *examination) fine(format string, args ...any) {
	x.Fine = append(x.Fine, fmt.Sprintf(format, args...))
}

func (x *examination) skipped(format string, args ...any) {
	x.Skipped = append(x.Skipped, fmt.Sprintf(format, args...))
}

func (x *examination) finding(format string, args ...any) {
	x.Findings = append(x.Findings, fmt.Sprintf(format, args...))
}

// New returns the command doctor.
func New(env *session.Env) *cobra.Command {
	var agent, form string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine the cluster, and this node, and say what to do", Args: cobra.NoArgs,
		Long: `Examine what can be seen from here, and say what to do about each finding: whether each member of etcd answers, and how fast;
certificates that end soon; the lock and garbage collection; nodes whose agents are away or whose clocks are ahead; objects that can't
be read; addresses that leaked and pools that are nearly full; and where an agent answers, this node's kernel, and all that the agent
finds wrong with it and its surroundings. Nothing is changed. The exit status is 1 where there is a finding.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if form != "" && form != "json" {
				return session.Usagef("-o %.32q: want json", form)
			}
			x := &examination{env: env, now: time.Now(), Fine: []string{}, Skipped: []string{}, Findings: []string{}}
			if err := x.etcd(cmd.Context()); err != nil {
				return err
			}
			if err := x.cluster(cmd.Context()); err != nil {
				x.finding("etcd: %v", err)
			}
			x.node(cmd.Context(), agent)
			return x.print(form)
		},
	}
	cmd.Flags().StringVar(&agent, "agent", agentURL, "URL of the health port of this node's agent")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json")
	return cmd
}

func (x *examination) print(form string) error {
	if form == "json" {
		if err := output.JSON(x.env.Stdout, x); err != nil {
			return err
		}
	} else {
		for _, text := range x.Fine {
			fmt.Fprintln(x.env.Stdout, "fine:", text)
		}
		for _, text := range x.Skipped {
			fmt.Fprintln(x.env.Stdout, "not examined:", text)
		}
		for _, text := range x.Findings {
			if _, err := fmt.Fprintln(x.env.Stdout, "FINDING:", text); err != nil {
				return err
			}
		}
	}
	if n := len(x.Findings); n > 0 {
		return fmt.Errorf("findings: %d", n)
	}
	return nil
}

// etcd asks each member separately, and checks the certificates used for it.
func (x *examination) etcd(ctx context.Context) error {
	members, certificates, err := x.env.Members(ctx)
	if err != nil {
		return err
	}
	for _, endpoint := range slices.Sorted(maps.Keys(members)) {
		client := members[endpoint]
		bound, cancel := x.env.Bound(ctx)
		_, err := client.Read(bound, model.KeyRange(model.ReadyKey{})) // the first one connects
		start := time.Now()
		if err == nil {
			_, err = client.Read(bound, model.KeyRange(model.ReadyKey{}))
		}
		took := time.Since(start)
		cancel()
		_ = client.Close() // all requests have been answered
		switch {
		case err != nil:
			x.finding("etcd: member %s doesn't answer: %v", endpoint, err)
		case took > slowEtcd:
			x.finding("etcd: member %s takes %v for one read: look at its disk and at the network to it; each pod's start needs several", endpoint, took.Round(time.Millisecond))
		default:
			x.fine("etcd: member %s answers", endpoint)
		}
	}
	for _, file := range certificates {
		x.certificate(file)
	}
	return nil
}

// certificate checks when the certificates in a file end.
func (x *examination) certificate(file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		x.finding("certificate: %v", err)
		return
	}
	ends, found := time.Time{}, false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (!found || c.NotAfter.Before(ends)) {
			ends, found = c.NotAfter, true
		}
	}
	switch when := ends.Format(time.DateTime); {
	case !found:
		x.finding("certificate: %s has none: want PEM", file)
	case ends.Before(x.now):
		x.finding("certificate: %s ended at %s: make a new one", file, when)
	case ends.Before(x.now.Add(soon)):
		x.finding("certificate: %s ends at %s: make a new one before", file, when)
	default:
		x.fine("certificate: %s is good until %s", file, when)
	}
}

// cluster examines everything in etcd.
func (x *examination) cluster(ctx context.Context) error {
	snapshot, err := x.env.Read(ctx, model.PrefixRange(model.Root))
	if err != nil {
		return err
	}
	entries, nodes, before := snapshot.Entries(), 0, len(x.Findings)
	for _, text := range status.Problems(entries) {
		x.finding("%s", text)
	}
	for _, e := range entries {
		switch k := e.Key.(type) {
		case model.HostMetadataKey:
			nodes++
		case model.LastStatusKey:
			if s, ok := e.Value.(model.Status); ok && s.Time.Sub(x.now) > clockSkew {
				x.finding("node %s: its clock, or the one here, is %v off: set both by NTP", k.Host, s.Time.Sub(x.now).Round(time.Second))
			}
		}
	}
	switch {
	case len(x.Findings) > before:
	case nodes == 0:
		x.skipped("agents: etcd has no node yet")
	default:
		x.fine("cluster: %s, whose agents report; nothing that can't be read", resource.Count(nodes, "node"))
	}
	before = len(x.Findings)
	problems, pools, err := ipam.Problems(ctx, x.env)
	for _, text := range problems {
		x.finding("addresses: %s", text)
	}
	switch {
	case len(x.Findings) > before || err != nil:
	case pools == 0:
		x.fine("addresses: blocks, handles and endpoints agree")
		x.skipped("addresses: there is no pool: pods have theirs of another IPAM plugin")
	default:
		x.fine("addresses: blocks, handles and endpoints agree, and pools have room")
	}
	return err
}

// node examines this host, if an agent answers on it.
func (x *examination) node(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, agentWait)
	defer cancel()
	agent, err := node.Ask(ctx, url)
	switch none, ok := errors.AsType[*node.NoAgentError](err); {
	case ok && url == agentURL:
		x.skipped("this host: no agent answers at %s, so it isn't taken for a node", url)
		return
	case ok:
		x.finding("this node: no agent answers at %s: %v", url, none.Err)
		return
	}
	before := len(x.Findings)
	for _, t := range node.System(os.DirFS("/")) {
		if t.Do != "" {
			x.finding("this node: %s is %s: %s", t.Name, t.Has, t.Do)
		}
	}
	if !agent.Ready {
		x.finding("this node: its agent isn't ready: %s", strings.Join(strings.Fields(agent.Readiness), " "))
	}
	if err != nil {
		x.finding("this node: %v", err)
		return
	}
	for _, p := range agent.Problems {
		x.finding("this node: %s %s: %s", p.Kind, p.Path, p.Reason)
	}
	for _, reason := range []string{agent.Router.BGPError, agent.Router.PeersError} {
		if reason != "" {
			x.finding("this node: BGP: %s", reason)
		}
	}
	for _, p := range agent.Router.Peers {
		if p.Trouble != "" {
			x.finding("this node: BGP with %s (%s, AS %d) is %s: %s: see that its agent runs, that TCP 179 passes between them, and that AS numbers and passwords are the same on both",
				p.Address, cmp.Or(p.Host, "no host of ours"), p.AS, p.State, p.Error)
		}
	}
	if len(x.Findings) == before {
		x.fine("this node: its agent is ready, and finds nothing wrong")
	}
}
