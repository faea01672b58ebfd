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

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
)

// compare shows what etcd and the kernel hold while the pods are there.
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
	right := append([]string{"host a:"}, indent(host.Lines())...)
	for _, p := range d.pods {
		k, err := p.Namespace().Kernel()
		if err != nil {
			return err
		}
		right = append(append(right, "", "pod "+p.Name()+":"), indent(k.Lines())...)
	}
	d.columns(fmt.Sprintf("etcd, below %s, at revision %d", model.Root, revision), "kernel", d.entryLines(entries), right)
	if err := invariants(entries); err != nil {
		return err
	}
	var errs []error
	for _, p := range d.pods {
		errs = append(errs, d.agrees(entries, host, p))
	}
	return errors.Join(errs...)
}

// agrees checks that etcd's endpoint of the pod and the host's kernel are about
// the same pod.
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
		errs = append(errs, fmt.Errorf("invariant %d is broken at %s: %s", v.Invariant, v.Key.Path(), v.Text))
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
	// The agent takes its routes and its report away on its own time.
	failed := lab.Until(ctx, "etcd and kernel to be empty", func() (err error) {
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
		if diff := cmp.Diff(d.before.Lines(), kernel.Lines()); diff != "" {
			return fmt.Errorf("the kernel of host a is not as it was before the pods (-), but (+):\n%s", diff)
		}
		return nil
	})
	d.columns(fmt.Sprintf("etcd, below %s, at revision %d", model.Root, revision), "kernel", d.entryLines(entries),
		append([]string{"host a:"}, indent(kernel.Lines())...))
	if failed != nil {
		return failed
	}
	d.line("No endpoint, no handle, no address in use; the host's kernel is as it was before the first pod.")
	d.line("The blocks stay with host a, which will take its next pods' addresses from them.")
	return invariants(entries)
}
