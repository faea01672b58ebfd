// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

func newRelease(env *session.Env) *cobra.Command {
	var ip, from string
	var force bool
	cmd := &cobra.Command{
		Use: "release (--ip=ADDRESS | --from-report=FILE)", Short: "Free addresses that nobody uses", Args: cobra.NoArgs,
		Long: `Free addresses that nobody uses, each in one transaction that looks again: one that an endpoint or a tunnel has stays, and so does one
of a report that another handle has meanwhile.

A workload of another main plugin has no endpoint in etcd: its address would be given to another. So a report is only done with --force,
once you have looked at it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []unused
			switch {
			case (ip == "") == (from == ""):
				return session.Usagef("want --ip=ADDRESS or --from-report=FILE")
			case ip != "":
				list = []unused{{Address: ip}}
			default:
				var err error
				if list, err = readReport(from); err != nil {
					return session.Usagef("%w", err)
				}
				if !force && !env.DryRun {
					return session.Usagef("%s has %s without a user: see it by --dry-run, then give --force", from, resource.Count(len(list), "address"))
				}
			}
			return release(cmd, env, list, ip != "")
		},
	}
	f := cmd.Flags()
	f.StringVar(&ip, "ip", "", "the address")
	f.StringVar(&from, "from-report", "", "file that calicoctl ipam check -o wrote")
	f.BoolVar(&force, "force", false, "do what the report says")
	f.BoolVar(&env.DryRun, "dry-run", false, "say what would be freed, and do nothing")
	return cmd
}

func readReport(name string) ([]unused, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseReport(name, data)
}

func parseReport(name string, data []byte) ([]unused, error) {
	var r report
	if err := json.Unmarshal(data, &r); err != nil || r.Unused == nil {
		return nil, fmt.Errorf("%s: want a file that `calicoctl ipam check -o` wrote", name)
	}
	for i, u := range r.Unused { // check all of them before one is freed
		if _, err := parseAddr(u.Address); err != nil {
			return nil, fmt.Errorf("%s: unused[%d]: %w", name, i, err)
		}
	}
	return r.Unused, nil
}

// release frees each address that is still as listed; one named by hand, whichever handle it has.
func release(cmd *cobra.Command, env *session.Env, list []unused, byHand bool) error {
	snapshot, err := read(cmd, env)
	if err != nil {
		return err
	}
	users, hosts := usage.New(snapshot.Entries()), map[netip.Addr]string{} // that took addresses
	for _, a := range users.All() {
		hosts[a.Addr] = a.Host()
	}
	var errs []error
	freed := 0
	for _, of := range list {
		addr, err := parseAddr(of.Address)
		if err != nil {
			return err
		}
		env.Progress("%d of %d freed", freed, len(list))
		if err = unlessUsed(users, addr); err == nil { // check again in the transaction, for endpoints of the host that took it
			again := []model.Range{model.PrefixRange(model.HostPrefix(hosts[addr]))}
			err = env.Transact(cmd.Context(), again, func(v *model.View) (model.Change, error) { return releaseOne(v, addr, of, byHand) })
		}
		if err != nil {
			errs = append(errs, err)
			if session.Status(err) == session.StatusUnavailable {
				break
			}
			continue
		}
		freed++
		if _, err := fmt.Fprintf(env.Stdout, "%s released%s\n", addr, env.DryRunNote()); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// unlessUsed returns an error if an address is in use.
func unlessUsed(u *usage.Usage, addr netip.Addr) error {
	if user := u.User(addr); user != "" {
		return fmt.Errorf("%s is used by %s: delete the workload, which frees it", addr, user)
	}
	return nil
}

func releaseOne(v *model.View, addr netip.Addr, of unused, byHand bool) (model.Change, error) {
	var entries []model.Entry
	for _, r := range v.Ranges() {
		some, _ := v.Read(r)
		entries = append(entries, some...)
	}
	if err := unlessUsed(usage.New(entries), addr); err != nil {
		return model.Change{}, err
	}
	plan := ipam.NewPlan(v)
	handle, freed, err := plan.ReleaseAddr(addr, time.Now())
	switch {
	case err != nil:
		return model.Change{}, err
	case !freed:
		return model.Change{}, &session.StatusError{Status: session.StatusNotFound, Err: fmt.Errorf("%s is not allocated", addr)}
	case !byHand && handle != of.Handle:
		return model.Change{}, fmt.Errorf("%s is allocated to handle %q now, and was to %q: check again", addr, handle, of.Handle)
	}
	return plan.Change(), nil
}
