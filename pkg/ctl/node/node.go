// SPDX-License-Identifier: Apache-2.0

// Package node implements calicoctl node, the commands on the node where they run.
package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/diags"
	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
)

// New returns the command node.
func New(env *session.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Ask the agent of this node, and look at the node"}
	cmd.AddCommand(newStatus(env), newCheckSystem(env), diags.NewNode(env))
	return cmd
}

func newStatus(env *session.Env) *cobra.Command {
	var url, form string
	var all bool
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether the agent of this node is ready, how its BGP sessions are, and what is wrong", Args: cobra.NoArgs,
		Long: `Say whether the agent of this node is ready, how its BGP sessions are, and what is wrong. The exit status is 1 where it isn't ready,
and 4 where no agent answers.

ROUTES IN are the prefixes that the peer has sent, ROUTES OUT those that it was sent. TYPE says why it is a peer: the mesh of all nodes, a
BGPPeer of this node (own) or of all (global), or another node that has this one for its reflector.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if form != "" && form != "json" {
				return session.Usagef("-o %.32q: want json", form)
			}
			ctx, cancel := env.Bound(cmd.Context())
			defer cancel()
			a, err := Ask(ctx, url)
			var none *NoAgentError
			if errors.As(err, &none) {
				return &session.StatusError{Status: session.StatusUnavailable, Err: fmt.Errorf("%w: is calico-node running here, and are HealthHost and HealthPort as --agent says?", err)}
			}
			if err != nil {
				return err
			}
			if form == "json" {
				err = output.JSON(env.Stdout, a)
			} else {
				err = printAgent(env, a)
			}
			if err == nil && all {
				var text string
				text, _, err = session.Page(ctx, url+"/debug/state?format=text")
				fmt.Fprintf(env.Stdout, "\n%s", text)
			}
			if err == nil && !a.Ready {
				return errors.New("the agent is not ready")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&url, "agent", "http://127.0.0.1:9099", "URL of the agent's health port")
	cmd.Flags().BoolVar(&all, "all", false, "with endpoints, routes, tunnels and what is announced, as the agent says")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json")
	return cmd
}

func printAgent(env *session.Env, a Agent) error {
	w, r := env.Stdout, a.Router
	if a.Ready {
		fmt.Fprintln(w, "agent: ready")
	} else {
		fmt.Fprintf(w, "agent: not ready\n%s\n", strings.TrimSpace(a.Readiness))
	}
	for _, reason := range []string{r.BGPError, r.PeersError} {
		if reason != "" {
			fmt.Fprintf(w, "BGP: %s\n", reason)
		}
	}
	if len(r.Peers) == 0 && r.PeersError == "" {
		fmt.Fprintln(w, "BGP: no peers")
	} else if r.PeersError == "" {
		fmt.Fprintln(w)
		var rows [][]string
		for _, p := range r.Peers {
			rows = append(rows, []string{p.Address.String(), p.Kind, cmp.Or(p.Host, "-"), strconv.FormatUint(uint64(p.AS), 10), p.State, p.Since.UTC().Format(time.DateTime),
				strconv.Itoa(p.Received), strconv.Itoa(p.Sent), cmp.Or(p.Error, "-")})
		}
		if err := output.Table(w, []string{"PEER", "TYPE", "NODE", "AS", "STATE", "SINCE", "ROUTES IN", "ROUTES OUT", "LAST ERROR"}, rows); err != nil {
			return err
		}
	}
	if len(a.Problems)+len(r.Lacks) == 0 {
		_, err := fmt.Fprintln(w, "\nevery object and setting is in order")
		return err
	}
	var rows [][]string
	for _, p := range a.Problems {
		rows = append(rows, []string{p.Kind + " " + p.Path, p.Since.UTC().Format(time.DateTime), p.Reason})
	}
	for _, what := range slices.Sorted(maps.Keys(r.Lacks)) {
		rows = append(rows, []string{what, "-", "not programmed: " + r.Lacks[what]})
	}
	fmt.Fprintln(w)
	return output.Table(w, []string{"PROBLEM", "SINCE", "REASON"}, rows)
}
