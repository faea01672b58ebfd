// SPDX-License-Identifier: Apache-2.0

// Package why has the command of calicoctl that explains what policy decides.
package why

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
)

// New is the command explain.
func New(env *session.Env) *cobra.Command {
	return &cobra.Command{
		Use: "explain (ENDPOINT | FROM to TO [PROTOCOL[:PORT]])", Short: "Say which policies hold for an endpoint, or what they decide on a connection, and why",
		Long: `Say which policies hold for an endpoint, or what they decide on a connection, and why: the verdict of each host on its way, rule by
rule, by the evaluator that the agents' firewalls are tested against. The exit status is 1 where the connection is denied.

An end is a pod's NAMESPACE/NAME, a workload's name, a host's name, or an address, of this cluster or not. PROTOCOL is tcp, udp, sctp,
icmp, icmpv6 or a number; without it, it is a ping. "FROM -> TO" in quotes is the same as FROM to TO.

What a host sends to a pod of another comes from its tunnel's address where a tunnel leads there, as etcd has it.
Host endpoints of single interfaces are not asked of what is forwarded, and nothing is known of other firewalls.`,
		Example: "  calicoctl explain prod/web-0\n  calicoctl explain prod/web-0 to prod/db-0 tcp:5432\n  calicoctl explain 203.0.113.7 to prod/web-0 tcp:80",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			words := strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "->", " to "))
			flow := len(words) >= 3 && len(words) <= 4 && words[1] == "to"
			if !flow && len(words) != 1 {
				return session.Usagef("want ENDPOINT, or FROM to TO tcp:80: see %s --help", cmd.CommandPath())
			}
			f := explain.Flow{}
			if len(words) == 4 {
				if err := parseProtocol(words[3], &f); err != nil {
					return session.Usagef("%w", err)
				}
			}
			snapshot, err := env.Read(cmd.Context(), explain.Ranges()...)
			if err != nil {
				return err
			}
			c := explain.New(snapshot.Entries())
			if f.From, err = find(c, words[0]); err != nil {
				return err
			}
			if !flow {
				if f.From.Key == (model.WorkloadEndpointKey{}) {
					return &session.StatusError{Status: session.StatusNotFound, Err: fmt.Errorf("%s is no endpoint of a workload", words[0])}
				}
				return printHeld(env.Stdout, c.Endpoint(f.From.Key))
			}
			if f.To, err = find(c, words[2]); err != nil {
				return err
			}
			hops, err := c.Follow(f)
			if err != nil {
				return session.Usagef("%w", err)
			}
			return printHops(env.Stdout, f, hops)
		},
	}
}

func find(c *explain.Cluster, name string) (explain.End, error) {
	e, err := c.Find(name)
	var missing *explain.NotFoundError
	switch {
	case errors.As(err, &missing):
		return e, &session.StatusError{Status: session.StatusNotFound, Err: err}
	case err != nil:
		return e, session.Usagef("%w", err)
	case len(e.Addrs) == 0:
		return e, fmt.Errorf("%s has no address in etcd", e)
	}
	return e, nil
}

func parseProtocol(text string, f *explain.Flow) error {
	name, port, hasPort := strings.Cut(text, ":")
	protocol, err := model.ParseProtocol(name)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	f.Protocol, f.ICMPType = protocol, 0
	switch ports := protocol == model.ProtocolTCP || protocol == model.ProtocolUDP || protocol == model.ProtocolSCTP || protocol == model.ProtocolUDPLite; {
	case protocol == model.ProtocolICMP:
		f.ICMPType = 8 // echo request
	case protocol == model.ProtocolICMPv6:
		f.ICMPType = 128
	case ports != hasPort:
		return fmt.Errorf("%s: want a port as tcp:80, and none where the protocol has no ports", text)
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || protocol == model.ProtocolICMP || protocol == model.ProtocolICMPv6 {
			return fmt.Errorf("%s: want a port of 1 to 65535, as tcp:80", text)
		}
		f.Port = uint16(n)
	}
	return nil
}

func printHops(w io.Writer, f explain.Flow, hops []explain.Hop) error {
	denied := ""
	for _, h := range hops {
		fmt.Fprintf(w, "on host %s, %s to %s:\n", h.Host, h.Packet.Src, h.Packet.Dst)
		for _, step := range h.Trail {
			fmt.Fprintf(w, "  %s\n", step)
		}
		if h.DNAT.IsValid() {
			fmt.Fprintf(w, "  its destination becomes %s\n", h.DNAT)
		}
		switch {
		case h.SNAT.IsValid():
			fmt.Fprintf(w, "  its source becomes %s\n", h.SNAT)
		case h.Masqueraded:
			fmt.Fprintln(w, "  its source becomes an address of the host")
		}
		if h.Verdict != policy.Accept {
			denied = h.Host
		}
	}
	if denied != "" {
		fmt.Fprintf(w, "denied on host %s\n", denied)
		return fmt.Errorf("%s can't connect to %s", f.From, f.To)
	}
	_, err := fmt.Fprintln(w, "allowed")
	return err
}

func printHeld(w io.Writer, h explain.Held) error {
	fmt.Fprintln(w, h.Key.Path())
	for _, name := range slices.Sorted(maps.Keys(h.Labels)) {
		fmt.Fprintf(w, "  label %s: %s\n", name, h.Labels[name])
	}
	if h.Dropped != "" {
		fmt.Fprintf(w, "nothing passes: %s\n", h.Dropped)
	}
	for _, d := range []struct {
		name string
		explain.Direction
	}{{"ingress", h.Inbound}, {"egress", h.Outbound}} {
		fmt.Fprintf(w, "%s:\n", d.name)
		tier := ""
		for _, p := range d.Policies {
			if p.ID.Tier != tier {
				tier = p.ID.Tier
				rest := "denies"
				if slices.Contains(d.Passing, tier) {
					rest = "passes on"
				}
				fmt.Fprintf(w, "  tier %s, which %s what none of these decides:\n", tier, rest)
			}
			order := "no order"
			if p.Order != nil {
				order = fmt.Sprint("order ", *p.Order)
			}
			fmt.Fprintf(w, "    %s (%s): selector %s\n", p.ID.Name, order, p.Selector)
		}
		for _, p := range d.Profiles {
			fmt.Fprintf(w, "  profile %s\n", p.ID.Name)
		}
		if len(d.Policies)+len(d.Profiles) == 0 {
			fmt.Fprintln(w, "  no policy and no profile: denied")
		}
	}
	return nil
}
