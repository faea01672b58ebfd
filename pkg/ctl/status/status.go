// SPDX-License-Identifier: Apache-2.0

// Package status implements the command of calicoctl that says whether the cluster is well.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/output"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// host is what etcd holds about one host.
type host struct {
	name                     string
	live                     bool
	last                     time.Time // its agent's last report
	total, up, bad, reported int       // workload endpoints
}

// cluster is what etcd holds about the whole cluster.
type cluster struct {
	hosts    map[string]*host
	ready    bool
	brake    *model.GarbageBrake
	invalid  []string
	problems []string
}

func clusterOf(entries []model.Entry) *cluster {
	c := &cluster{hosts: map[string]*host{}}
	at := func(name string) *host {
		if c.hosts[name] == nil {
			c.hosts[name] = &host{name: name}
		}
		return c.hosts[name]
	}
	for _, e := range entries {
		if e.Err != nil {
			c.invalid = append(c.invalid, fmt.Sprintf("%s: %v", e.Path, e.Err))
		}
		switch k := e.Key.(type) {
		case model.ReadyKey:
			c.ready = e.Value == model.Ready(true)
		case model.GarbageBrakeKey:
			if brake, ok := e.Value.(model.GarbageBrake); ok && !brake.Resumed {
				c.brake = &brake
			}
		case model.HostMetadataKey:
			at(k.Host)
		case model.WorkloadEndpointKey:
			at(k.Host).total++
		case model.StatusKey:
			at(k.Host).live = true
		case model.LastStatusKey:
			status, _ := e.Value.(model.Status)
			at(k.Host).last = status.Time
		case model.WorkloadStatusKey:
			h := at(k.Host)
			h.reported++
			switch e.Value {
			case model.EndpointUp:
				h.up++
			case model.EndpointError:
				h.bad++
			}
		}
	}
	c.judge()
	return c
}

// judge lists what isn't as it should be.
func (c *cluster) judge() {
	problem := func(format string, args ...any) { c.problems = append(c.problems, fmt.Sprintf(format, args...)) }
	if !c.ready {
		problem("%s is not true: nothing is changed until calicoctl datastore unlock", model.ReadyKey{}.Path())
	}
	if c.brake != nil {
		problem("garbage collection stands still (%s): see calicoctl ipam gc", c.brake.Reason)
	}
	for _, h := range c.sorted() {
		switch {
		case !h.live && h.last.IsZero():
			problem("node %s: no agent has reported: none runs there, or ReportingIntervalSecs is 0", h.name)
		case !h.live:
			problem("node %s: its agent is away since %s", h.name, h.last.Format(time.DateTime))
		case h.bad > 0:
			problem("node %s: %s can't be connected: see calicoctl node status there", h.name, resource.Count(h.bad, "workload"))
		}
	}
	for _, text := range c.invalid {
		problem("can't be read: %s", text)
	}
}

// Problems returns everything that isn't as it should be, given all that etcd holds.
func Problems(entries []model.Entry) []string { return clusterOf(entries).problems }

func (c *cluster) sorted() []*host {
	return slices.SortedFunc(maps.Values(c.hosts), func(a, b *host) int { return cmp.Compare(a.name, b.name) })
}

func (h *host) row() []string {
	agent := "alive"
	if !h.live {
		agent = "away"
	}
	up := "-"
	if h.live && h.reported > 0 {
		up = fmt.Sprint(h.up)
	}
	last := "-"
	if !h.last.IsZero() {
		last = h.last.Format(time.DateTime)
	}
	return []string{h.name, agent, last, fmt.Sprint(h.total), up}
}

// New returns the command status.
func New(env *session.Env) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether the cluster is well", Args: cobra.NoArgs,
		Long: `Say whether the cluster is well, by what etcd holds: nodes and their agents' reports, workloads, the lock, garbage collection, and
objects that can't be read. The exit status is 1 where something is wrong.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			for {
				c, err := readCluster(cmd.Context(), env)
				if err == nil && len(c.problems) == 0 || ctx.Err() != nil || wait == 0 {
					if err != nil {
						return err
					}
					return c.print(env)
				}
				env.Progress("waiting: %s", waitsFor(c, err))
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait this long until the cluster is well, as 2m")
	return cmd
}

func waitsFor(c *cluster, err error) string {
	if err != nil {
		return err.Error()
	}
	return c.problems[0]
}

func readCluster(ctx context.Context, env *session.Env) (*cluster, error) {
	snapshot, err := env.Read(ctx, model.PrefixRange(model.Root))
	if err != nil {
		return nil, err
	}
	return clusterOf(snapshot.Entries()), nil
}

func (c *cluster) print(env *session.Env) error {
	var rows [][]string
	for _, h := range c.sorted() {
		rows = append(rows, h.row())
	}
	if err := output.Table(env.Stdout, []string{"NODE", "AGENT", "LAST REPORT", "WORKLOADS", "UP"}, rows); err != nil {
		return err
	}
	if len(c.problems) == 0 {
		return nil
	}
	return session.Found(errors.New(strings.Join(c.problems, "\n")))
}
