// SPDX-License-Identifier: Apache-2.0

// Package explain implements the command of calicoctl that explains what policy decides.
package explain

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// question holds the options of the command explain.
type question struct {
	env               *session.Env
	namespace, format string
	counts            time.Duration
}

// New returns the command explain.
func New(env *session.Env) *cobra.Command {
	q := &question{env: env}
	cmd := &cobra.Command{
		Use: "explain (ENDPOINT | FROM to TO [PROTOCOL[:PORT]])", Short: "Say which policies hold for an endpoint, or what they decide on a connection, and why",
		Long: `Say which policies hold for an endpoint, or what they decide on a connection, and why: who the ends are, what each is held to, in
the order in which it is asked, and the verdict of each host on its way, rule by rule, by the evaluator that the agents' firewalls are
tested against. The exit status is 1 where the connection is denied.

An end is a pod's NAMESPACE/NAME, or its name alone where no other has it or --namespace says which; a workload's name, a host's name,
or an address, of this cluster or not. PROTOCOL is tcp, udp, sctp, icmp, icmpv6 or a number; without it, it is a ping. "FROM -> TO" in
quotes is the same as FROM to TO. ENDPOINT may be a host, for its host endpoints.

What a host sends to a pod of another comes from its tunnel's address where a tunnel leads there, as etcd has it. A host's interface is
the one that has the address, as far as host endpoints expect addresses; where it matters and etcd doesn't tell which one a packet takes,
the answer is given for each. Nothing is known of other firewalls, nor of agents' settings outside etcd.`,
		Example: "  calicoctl explain prod/web-0\n  calicoctl explain web-0 to db-0 tcp:5432 -n prod\n  calicoctl explain 203.0.113.7 to prod/web-0 tcp:80 -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE:    q.run,
	}
	cmd.Flags().StringVarP(&q.namespace, "namespace", "n", "", "namespace of pods that are named without one")
	cmd.Flags().StringVarP(&q.format, "output", "o", "", "json")
	cmd.Flags().DurationVar(&q.counts, "live", 0, "on a host of the connection: count for this time what the rules that decide match there, such as 10s")
	return cmd
}

func (q *question) run(cmd *cobra.Command, args []string) error {
	words := strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "->", " to "))
	flow := len(words) >= 3 && len(words) <= 4 && words[1] == "to"
	if !flow && len(words) != 1 {
		return session.Usagef("want ENDPOINT, or FROM to TO tcp:80: see %s --help", cmd.CommandPath())
	}
	if q.format != "" && q.format != "json" {
		return session.Usagef("-o %.32q: want json", q.format)
	}
	if q.counts < 0 || q.counts > 0 && (!flow || q.format != "") {
		return session.Usagef("--live %s: want a time, such as 10s, with FROM to TO, and no -o", q.counts)
	}
	f := explain.Flow{}
	if len(words) == 4 {
		if err := parseProtocol(words[3], &f); err != nil {
			return session.Usagef("%w", err)
		}
	}
	snapshot, err := q.env.Read(cmd.Context(), explain.Ranges()...)
	if err != nil {
		return err
	}
	c := explain.New(snapshot.Entries())
	if f.From, err = q.find(c, words[0], flow); err != nil {
		return err
	}
	if !flow {
		held := c.Held(f.From)
		if len(held) == 0 {
			return &session.StatusError{Status: session.StatusNotFound, Err: fmt.Errorf("%s is no endpoint of a workload, and no host with host endpoints", words[0])}
		}
		return q.printHeld(held)
	}
	if f.To, err = q.find(c, words[2], true); err != nil {
		return err
	}
	hops, err := c.Follow(f)
	if err != nil {
		return session.Usagef("%w", err)
	}
	err = q.printHops(f, hops)
	if q.counts > 0 {
		err = errors.Join(err, q.live(cmd.Context(), hops))
	}
	return err
}

// find finds an end. An end of a flow must have an address.
func (q *question) find(c *explain.Cluster, name string, flow bool) (explain.End, error) {
	e, err := c.Find(name, q.namespace)
	var missing *explain.NotFoundError
	switch {
	case errors.As(err, &missing):
		return e, &session.StatusError{Status: session.StatusNotFound, Err: fmt.Errorf("%w%s", err, resource.DidYouMean(name, c.Names()))}
	case err != nil:
		return e, session.Usagef("%w", err)
	case flow && len(e.Addrs) == 0:
		return e, fmt.Errorf("%s has no address in etcd", e.Name)
	}
	return e, nil
}

func parseProtocol(text string, f *explain.Flow) error {
	name, port, hasPort := strings.Cut(text, ":")
	protocol, err := model.ParseProtocol(name)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if protocol.HasPorts() != hasPort {
		return fmt.Errorf("%s: want a port as tcp:80, and none where the protocol has no ports", text)
	}
	if f.Protocol = protocol; hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%s: want a port of 1 to 65535, as tcp:80", text)
		}
		f.Port = uint16(n)
	}
	return nil
}
