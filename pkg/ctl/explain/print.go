// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/explain"
	"github.com/calico-go/calico/pkg/policy"
)

// answer is the answer about a flow, as printed by -o json.
type answer struct {
	From    explain.End   `json:"from"`
	To      explain.End   `json:"to"`
	Verdict string        `json:"verdict"` // allowed, denied, or undecided: it depends on the interface
	Hosts   []explain.Hop `json:"hosts"`
}

func (q *question) printHops(f explain.Flow, hops []explain.Hop) error {
	a := answer{f.From, f.To, "allowed", hops}
	accepts, denies := map[string]bool{}, map[string]bool{} // hosts that do so at one or more of their interfaces
	for _, h := range hops {
		accepts[h.Host] = accepts[h.Host] || h.Verdict == policy.Accept
		denies[h.Host] = denies[h.Host] || h.Verdict != policy.Accept
	}
	undecided := ""
	for _, h := range hops {
		switch {
		case accepts[h.Host] && denies[h.Host]:
			a.Verdict, undecided = "undecided", h.Host
		case denies[h.Host]:
			a.Verdict = "denied"
		}
	}
	if q.format == "json" {
		if err := output.JSON(q.env.Stdout, a); err != nil {
			return err
		}
	} else if err := a.print(q.env.Stdout); err != nil {
		return err
	}
	switch a.Verdict {
	case "denied":
		return fmt.Errorf("%s can't connect to %s", f.From.Name, f.To.Name)
	case "undecided":
		return fmt.Errorf("whether %s can connect to %s depends on the interface of host %s that the packet takes: give the host endpoint the interface's addresses, or look at the host with ip route get", f.From.Name, f.To.Name, undecided)
	}
	return nil
}

func (a answer) print(w io.Writer) error {
	for _, e := range []struct {
		what string
		explain.End
	}{{"from", a.From}, {"to", a.To}} {
		fmt.Fprintf(w, "%s %s", e.what, e.Name)
		if e.Host != "" && e.Name != "host "+e.Host {
			fmt.Fprintf(w, " on host %s", e.Host)
		}
		before := ": "
		for _, label := range slices.Sorted(maps.Keys(e.Labels)) {
			fmt.Fprintf(w, "%s%s=%s", before, label, e.Labels[label])
			before = ", "
		}
		fmt.Fprintln(w)
	}
	for _, h := range a.Hosts {
		by := ""
		if h.Interface != "" {
			by = ", by " + h.Interface
		}
		fmt.Fprintf(w, "on host %s, %s to %s%s:\n", h.Host, h.Source, h.Destination, by)
		for _, asked := range h.Asked {
			var all []string
			for _, p := range asked.Policies {
				all = append(all, p.String())
			}
			for _, name := range asked.Profiles {
				all = append(all, "profile "+name)
			}
			fmt.Fprintf(w, "  asked: %s of %s: %s\n", asked.Which, asked.Endpoint, cmp.Or(strings.Join(all, ", "), "no policy and no profile"))
		}
		for _, step := range h.Steps {
			fmt.Fprintf(w, "  %s\n", step)
		}
	}
	verdict := a.Verdict
	if verdict == "denied" {
		verdict += " on host " + a.Hosts[len(a.Hosts)-1].Host
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

func (q *question) printHeld(all []explain.Held) error {
	if q.format == "json" {
		return output.JSON(q.env.Stdout, all)
	}
	for _, h := range all {
		printOne(q.env.Stdout, h)
	}
	return nil
}

func printOne(w io.Writer, h explain.Held) {
	fmt.Fprintf(w, "%s (%s)\n", h.Endpoint, h.Path)
	for _, name := range slices.Sorted(maps.Keys(h.Labels)) {
		fmt.Fprintf(w, "  label %s: %s\n", name, h.Labels[name])
	}
	if h.Dropped != "" {
		fmt.Fprintf(w, "nothing passes: %s\n", h.Dropped)
	}
	for _, d := range []struct {
		name string
		explain.Direction
	}{{"ingress", h.Ingress}, {"egress", h.Egress}} {
		fmt.Fprintf(w, "%s:\n", d.name)
		tier, about := "", ""
		for _, p := range d.Policies {
			if p.Tier != tier || p.About != about {
				tier, about = p.Tier, p.About
				rest := "which denies what none of these decides"
				if about != "" {
					rest = "of " + about
				} else if slices.Contains(d.Passing, tier) {
					rest = "which passes on what none of these decides"
				}
				fmt.Fprintf(w, "  tier %s, %s:\n", tier, rest)
			}
			order := "no order"
			if p.Order != nil {
				order = fmt.Sprint("order ", *p.Order)
			}
			fmt.Fprintf(w, "    %s (%s): selector %s\n", p.Name, order, p.Selector)
		}
		for _, name := range d.Profiles {
			fmt.Fprintf(w, "  profile %s\n", name)
		}
		if len(d.Policies)+len(d.Profiles) == 0 {
			fmt.Fprintln(w, "  no policy and no profile: denied")
		}
	}
}
