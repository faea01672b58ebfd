// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// A report is the result of check, in the file format that release --from-report reads.
type report struct {
	Revision int64 `json:"revision"` // etcd's
	// Violations are violations of the data model's invariants.
	Violations []violation `json:"violations"`
	// Unused are allocated addresses that no endpoint and no tunnel has.
	Unused []unused `json:"unused"`
	// Pods are those of which the Kubernetes API says otherwise.
	Pods []mismatch `json:"pods,omitempty"`
}

type violation struct {
	Invariant int    `json:"invariant"`
	Key       string `json:"key"`
	Text      string `json:"text"`
	Repair    bool   `json:"repair"` // calicoctl ipam repair fixes it
}

type unused struct {
	Address    string            `json:"address"`
	Block      string            `json:"block"`
	Handle     string            `json:"handle,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

func newCheck(env *session.Env) *cobra.Command {
	var all, problems bool
	var to, kubeconfig string
	cmd := &cobra.Command{
		Use: "check", Short: "Check that blocks, handles and endpoints agree", Args: cobra.NoArgs,
		Long: `Check that blocks, handles and endpoints agree, and which addresses nobody uses. The exit status is 1 where they don't, or some
are unused. With --kubeconfig or KUBECONFIG, they are compared with the pods of the Kubernetes API, too.

An address that no endpoint and no tunnel has was leaked, or belongs to a workload of another main plugin, of which etcd has no
endpoint: look before you release it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snapshot, err := read(cmd, env)
			if err != nil {
				return err
			}
			r, addrs := check(snapshot)
			if kubeconfig != "" || env.Getenv("KUBECONFIG") != "" {
				if r.Pods, err = mismatches(cmd.Context(), env, kubeconfig); err != nil {
					return err
				}
			}
			if to != "" {
				var text bytes.Buffer
				if err := output.JSON(&text, r); err != nil {
					return err
				}
				if err := os.WriteFile(to, text.Bytes(), 0o600); err != nil {
					return err
				}
			}
			return printReport(env, r, addrs, all, problems)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "show-all-ips", false, "print every allocated address and its user")
	f.BoolVar(&problems, "show-problem-ips", false, "print each address that nobody uses")
	session.KubeconfigFlag(f, &kubeconfig)
	f.StringVarP(&to, "output", "o", "", "file to write a report to, in JSON")
	return cmd
}

func check(snapshot model.Snapshot) (report, []usage.Address) {
	entries := snapshot.Entries()
	r := report{Revision: snapshot.Revision, Violations: []violation{}, Unused: []unused{}}
	for _, v := range invariants.Repairs(viewOf(snapshot), entries) {
		if !v.Note {
			r.Violations = append(r.Violations, violation{v.Invariant, v.Key.Path(), v.Text, v.Before || !v.Change.Empty()})
		}
	}
	addrs := usage.New(entries).All()
	for _, a := range addrs {
		if a.Leaked() {
			r.Unused = append(r.Unused, unused{a.Addr.String(), a.Block.String(), a.Handle, a.Attributes})
		}
	}
	return r, addrs
}

// nearlyFull is the share of a family's addresses in use, in percent, from which doctor reports it.
const nearlyFull = 90

// Problems returns what is wrong with addresses according to etcd, each with what to do, and how many pools there are.
func Problems(ctx context.Context, env *session.Env) (problems []string, pools int, err error) {
	snapshot, err := env.Read(ctx, usage.Ranges()...)
	if err != nil {
		return nil, 0, err
	}
	r, _ := check(snapshot)
	if n := len(r.Violations); n > 0 {
		problems = append(problems, fmt.Sprintf("%s, as of %s: %s: see calicoctl ipam repair", resource.Count(n, "violation"), r.Violations[0].Key, r.Violations[0].Text))
	}
	if n := len(r.Unused); n > 0 {
		are := map[bool]string{true: "is", false: "are"}[n == 1]
		problems = append(problems, fmt.Sprintf("%s %s used by nobody that etcd knows of, as %s: see calicoctl ipam check --show-problem-ips", resource.Count(n, "address"), are, r.Unused[0].Address))
	}
	used := usage.New(snapshot.Entries())
	disabled, others, parked := 0, 0, 0
	for _, family := range []string{"IPv4", "IPv6"} {
		size, inUse := new(big.Int), 0
		for _, p := range used.Pools {
			switch {
			case !p.CIDR.IsValid() || p.CIDR.Addr().Is6() != (family == "IPv6"):
				continue
			case p.Disabled:
				disabled++
			case !p.ForPods:
				others++
			case p.Parked:
				parked++
			default:
				counts := p.Counts()
				size.Add(size.Add(size, counts.Free), big.NewInt(int64(counts.InUse)))
				inUse += counts.InUse
			}
			pools++
		}
		percent := new(big.Int).Mul(big.NewInt(int64(inUse)), big.NewInt(100))
		if percent.Cmp(new(big.Int).Mul(size, big.NewInt(nearlyFull))) >= 0 && inUse > 0 {
			problems = append(problems, fmt.Sprintf("%s: %d of %s addresses of all pools are in use: make another pool", family, inUse, size))
		}
	}
	switch {
	case pools == 0 && !used.Any():
		problems = append(problems, "there is no pool, so no pod gets an address of calico-ipam: make one, see calicoctl apply and docs/reference/ippool.md")
	case pools > 0 && disabled == pools:
		problems = append(problems, fmt.Sprintf("all pools, %d, are disabled: no new pod gets an address: enable one (calicoctl patch ippool NAME -p '{\"spec\":{\"disabled\":false}}'), or make another", disabled))
	case pools > 0 && disabled+others == pools:
		problems = append(problems, fmt.Sprintf("of %s %d are disabled and %d have allowedUses without Workload: no new pod gets an address: have one serve workloads (calicoctl patch ippool NAME -p '{\"spec\":{\"allowedUses\":[\"Workload\",\"Tunnel\"]}}'), or make another",
			resource.Count(pools, "pool"), disabled, others))
	case pools > 0 && disabled+others+parked == pools:
		problems = append(problems, fmt.Sprintf("of %s %d have a nodeSelector that picks no node, or assignmentMode Manual, and the others serve no pods: no new pod gets an address but one that asks for such a pool: give nodes the labels (calicoctl label node NAME LABEL=VALUE), or make another pool",
			resource.Count(pools, "pool"), parked))
	}
	return problems, pools, nil
}

func viewOf(snapshot model.Snapshot) *model.View {
	v := model.NewView()
	for i, r := range usage.Ranges() {
		v.Add(r, snapshot.Revision, snapshot.Ranges[i])
	}
	return v
}

func printReport(env *session.Env, r report, addrs []usage.Address, all, problems bool) error {
	w := env.Stdout
	if all {
		for _, a := range addrs {
			fmt.Fprintf(w, "%s: %s\n", a.Addr, user(a))
		}
	}
	for _, v := range r.Violations {
		fmt.Fprintf(w, "%s: %s\n", v.Key, v.Text)
	}
	for _, a := range r.Unused {
		if problems {
			fmt.Fprintf(w, "%s: allocated to handle %q, and used by nobody that etcd knows of\n", a.Address, a.Handle)
		}
	}
	for _, m := range r.Pods {
		fmt.Fprintf(w, "pod %s: %s\n", m.Pod, m.Text)
	}
	if _, err := fmt.Fprintf(w, "%s allocated, %d of them used by nobody that etcd knows of; %s\n", resource.Count(len(addrs), "address"), len(r.Unused), resource.Count(len(r.Violations), "violation")); err != nil {
		return err
	}
	if len(r.Violations)+len(r.Unused)+len(r.Pods) == 0 {
		return nil
	}
	return session.Found(errors.New("see calicoctl ipam repair for violations; calicoctl ipam release --from-report for addresses"))
}

func user(a usage.Address) string {
	switch {
	case a.User != "":
		return a.User
	case a.Leaked():
		return "nobody"
	}
	return "reserved as a gateway"
}
