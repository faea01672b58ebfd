// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	ipam "github.com/calico-go/calico/pkg/ipam/invariants"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// compare shows the content of etcd and of the kernel while the pods exist.
func (d *demo) compare(ctx context.Context) error {
	d.heading("What etcd holds, and what the kernel holds")
	entries, revision, err := d.lab.Dump(ctx)
	if err != nil {
		return err
	}
	host, err := d.host.Namespace().Kernel()
	if err != nil {
		return err
	}
	d.line("etcd: below %s, at revision %d. The kernel: as the lab reads it over netlink.", model.Root, revision)
	restEntries, restLines := entries, host.Lines()
	for _, p := range d.pods {
		in, err := p.Namespace().Kernel()
		if err != nil {
			return err
		}
		iface := " " + p.Result().Interfaces[0].Name
		var mine []model.Entry
		var lines []string
		mine, restEntries = split(restEntries, func(e model.Entry) bool {
			return slices.Contains(strings.FieldsFunc(e.Path, isSeparator), p.ContainerID())
		})
		lines, restLines = split(restLines, func(line string) bool { return strings.Contains(line+" ", iface+" ") })
		right := append([]string{"on host a"}, indent(lines)...)
		right = append(append(right, "in the pod"), indent(in.Lines())...)
		d.line("")
		d.columns("pod "+p.Name()+" in etcd", "pod "+p.Name()+" in the kernel", d.entryLines(mine), right)
	}
	d.line("")
	d.columns("the rest of etcd", "the rest of host a", d.entryLines(restEntries), restLines)
	if err := invariants(entries); err != nil {
		return err
	}
	var errs []error
	for _, p := range d.pods {
		errs = append(errs, d.agrees(entries, host, p))
	}
	return errors.Join(errs...)
}

// split divides a list in two, preserving the order.
func split[T any](list []T, pick func(T) bool) (picked, rest []T) {
	for _, v := range list {
		if pick(v) {
			picked = append(picked, v)
		} else {
			rest = append(rest, v)
		}
	}
	return picked, rest
}

func isSeparator(r rune) bool { return r == '/' || r == '.' }

// agrees checks that etcd's endpoint of the pod and the host's kernel agree about the pod.
func (d *demo) agrees(entries []model.Entry, host lab.Kernel, p *lab.Pod) error {
	key := model.WorkloadEndpointKey{Host: d.host.Name(), Orchestrator: "cni", Workload: p.ContainerID(), Endpoint: "eth0"}
	at := slices.IndexFunc(entries, func(e model.Entry) bool { return e.Key == model.Key(key) })
	if at < 0 {
		return fmt.Errorf("etcd has no endpoint %s", key.Path())
	}
	ep, ok := entries[at].Value.(model.WorkloadEndpoint)
	if !ok {
		return fmt.Errorf("endpoint %s: %w", key.Path(), entries[at].Err)
	}
	if diff := cmp.Diff(texts(p), texts(ep)); diff != "" {
		return fmt.Errorf("pod %s: the addresses that ADD returned (-) and those in etcd (+) differ:\n%s", p.Name(), diff)
	}
	for _, addr := range ep.Addrs() {
		want := fmt.Sprintf(" %s/%d dev %s ", addr, addr.BitLen(), ep.Name)
		if !slices.ContainsFunc(host.Routes, func(line string) bool { return strings.Contains(line+" ", want) }) {
			return fmt.Errorf("pod %s: the host has no route%s", p.Name(), want)
		}
	}
	return nil
}

func texts(t lab.Target) []string {
	var list []string
	for _, a := range t.Addrs() {
		list = append(list, a.String())
	}
	return list
}

func invariants(entries []model.Entry) error {
	var errs []error
	for _, v := range ipam.Check(entries) {
		if !v.Note {
			errs = append(errs, errors.New(v.String()))
		}
	}
	return errors.Join(errs...)
}

func (d *demo) entryLines(entries []model.Entry) []string {
	var lines []string
	for _, e := range entries {
		lines = append(lines, strings.TrimPrefix(e.Path, model.Root))
		lines = append(lines, indent(describe(e))...)
	}
	return lines
}

func indent(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = "  " + line
	}
	return out
}

func (d *demo) deletePods(ctx context.Context) error {
	for _, p := range d.pods {
		d.heading("Pod %s is deleted", p.Name())
		if err := p.Delete(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compareEmpty shows that nothing of the pods is left, and what stays and why.
func (d *demo) compareEmpty(ctx context.Context) error {
	d.heading("What etcd and the kernel hold now")
	var entries []model.Entry
	var revision int64
	var kernel lab.Kernel
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// The agent removes its routes and its report in its own time.
	failed := eventually.Wait(ctx, "etcd and kernel to be empty", func() (err error) {
		if entries, revision, err = d.lab.Dump(ctx); err != nil {
			return err
		}
		if kernel, err = d.host.Namespace().Kernel(); err != nil {
			return err
		}
		for _, e := range entries {
			if holdsPods(e) {
				return fmt.Errorf("etcd still has %s: %s", e.Path, strings.Join(describe(e), "; "))
			}
		}
		_, others := split(kernel.Lines(), func(line string) bool { return strings.HasPrefix(line, "route blackhole ") })
		if diff := cmp.Diff(d.before.Lines(), others); diff != "" {
			return fmt.Errorf("the kernel of host a is not as it was before the pods (-), but (+):\n%s", diff)
		}
		return nil
	})
	d.line("etcd: below %s, at revision %d.", model.Root, revision)
	d.columns("etcd", "host a", d.entryLines(entries), kernel.Lines())
	if failed != nil {
		return failed
	}
	d.line("No endpoint, no handle, no address in use; the host's kernel is as it was before the first pod, but for the blocks.")
	d.line("They stay with host a, which will take its next pods' addresses from them; what no pod has goes into a black hole.")
	return invariants(entries)
}
