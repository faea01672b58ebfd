// SPDX-License-Identifier: Apache-2.0

// Package collector deletes what departed pods and nodes have left in etcd. pkg/garbage decides what that is.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/calico-go/calico/pkg/garbage"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// Etcd is etcd as the controllers write it: every change is fenced, so it fails once another process leads.
type Etcd interface {
	Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error)
	Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (int64, error)
}

// API asks the Kubernetes API server itself, never a cache. After an error nothing is known. The collector sets Look.At.
type API interface {
	Pod(ctx context.Context, pod garbage.Pod) (garbage.Look, error)
	Node(ctx context.Context, name string) (garbage.Look, error)
}

// Known is what the watches know. It only saves requests.
type Known interface {
	// Pod returns the UIDs of a pod, nil if it isn't known or is finished.
	Pod(pod garbage.Pod) []string
	// Node reports whether a Node exists.
	Node(name string) bool
}

// Config configures a Collector.
type Config struct {
	Etcd   Etcd
	API    API
	Known  Known
	Now    func() time.Time
	Logger *slog.Logger
	// DryRun makes passes report what they would do, and do nothing.
	DryRun bool
}

// Collector collects garbage, pass by pass, in one goroutine.
type Collector struct {
	Config
	memory garbage.Memory
}

// New returns a collector that has seen nothing yet: it deletes only what it has itself seen gone twice.
func New(cfg Config) *Collector { return &Collector{Config: cfg} }

// Report is what a pass found and did.
type Report struct {
	Usage      []garbage.Usage
	Candidates int    // addresses of pods that are gone or finished
	Released   int    // addresses
	Hosts      int    // hosts taken away, as they are gone
	Blocked    string // why nothing is deleted; "" = deletion goes on
	// Would lists what a dry run, or a blocked pass, would have done.
	Would []string
	Kept  []garbage.Kept
}

// Pass runs once and deletes what is known to be gone. The error covers what could not be read or done; the rest is done.
func (c *Collector) Pass(ctx context.Context) (Report, error) {
	var report Report
	brake, s, err := c.survey(ctx)
	if err != nil {
		return report, err
	}
	report.Usage = s.Usage()
	// An excess over this allowance sets the brake again, or is added to what a person will resume.
	stopped, braked := brake.Value.(model.GarbageBrake)
	allowed := garbage.Allowance{Addrs: stopped.Addresses, Hosts: stopped.Hosts}
	looks, err := c.look(ctx, s)
	if ctx.Err() != nil {
		return report, context.Cause(ctx)
	}
	var d garbage.Decision
	d, c.memory = garbage.Decide(s, c.memory, looks, c.Now(), allowed)
	report.Candidates, report.Kept = d.Candidates, d.Kept
	switch {
	case brake.Err != nil:
		report.Blocked = fmt.Sprintf("%s is invalid: %v", brake.Path, brake.Err)
	case d.Excess != nil:
		report.Blocked = d.Excess.Reason
		if !c.DryRun {
			err = errors.Join(err, c.stop(ctx, *d.Excess))
		}
	case braked && !stopped.Resumed:
		report.Blocked = stopped.Reason
	}
	if report.Blocked != "" || c.DryRun {
		report.Would = list(d)
		return report, err
	}
	err = errors.Join(err, c.take(ctx, d, &report))
	if stopped.Resumed && err == nil {
		err = c.release(ctx)
	}
	return report, err
}

// survey reads what etcd holds.
func (c *Collector) survey(ctx context.Context) (brake model.Entry, s *garbage.Survey, err error) {
	key := model.GarbageBrakeKey{}
	snapshot, err := c.Etcd.Read(ctx, append(garbage.FirstRead(), model.KeyRange(key))...)
	if err != nil {
		return brake, nil, fmt.Errorf("collect garbage: %w", err)
	}
	brake, _ = snapshot.Get(key)
	s = garbage.NewSurvey(snapshot.Entries())
	for _, name := range s.Hosts() {
		snapshot, err := c.Etcd.Read(ctx, garbage.ReadHost(name)...)
		if err != nil {
			return brake, nil, fmt.Errorf("collect garbage: host %s: %w", name, err)
		}
		s.AddHost(name, snapshot.Entries())
	}
	return brake, s, nil
}

// look asks the API about pods and nodes that the watches don't know. What it can't ask about stays.
func (c *Collector) look(ctx context.Context, s *garbage.Survey) (garbage.Looks, error) {
	looks := garbage.Looks{Pods: map[garbage.Pod]garbage.Look{}, Nodes: map[string]garbage.Look{}}
	pods, nodes := s.Questions(c.Known.Pod, c.Known.Node)
	var last error // of many similar errors
	failed := 0
	note := func(err error) bool {
		if err != nil {
			last, failed = err, failed+1
		}
		return err == nil
	}
	for _, name := range nodes {
		at := c.Now()
		if look, err := c.API.Node(ctx, name); note(err) {
			look.At = at
			looks.Nodes[name] = look
		}
	}
	for _, pod := range pods {
		if ctx.Err() != nil {
			break
		}
		at := c.Now()
		if look, err := c.API.Pod(ctx, pod); note(err) {
			look.At = at
			looks.Pods[pod] = look
		}
	}
	if failed > 0 {
		return looks, fmt.Errorf("collect garbage: %d of %d pods and nodes could not be asked for, and stay: %w", failed, len(pods)+len(nodes), last)
	}
	return looks, nil
}

// take carries out a decision. The next pass retries what fails; the rest is done.
func (c *Collector) take(ctx context.Context, d garbage.Decision, report *Report) error {
	var errs []error
	for _, step := range append(d.Free, d.Spare...) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, err := c.do(ctx, step, report)
		errs = append(errs, err)
	}
	for _, host := range d.Hosts {
		errs = append(errs, c.takeHost(ctx, host, report))
	}
	return errors.Join(errs...)
}

// takeHost deletes what a host has, checking before each step that its Node is still gone.
func (c *Collector) takeHost(ctx context.Context, host garbage.Departure, report *Report) error {
	for _, step := range host.Steps {
		for _, name := range host.Names() {
			look, err := c.API.Node(ctx, name)
			if err != nil {
				return fmt.Errorf("take away host %s: %w", host.Host, err)
			}
			if !look.Absent {
				c.memory.Returned(host.Host)
				c.Logger.Info("a host stays, its Node has returned", "host", host.Host, "node", name)
				return nil
			}
		}
		if done, err := c.do(ctx, step, report); err != nil || !done {
			return err
		}
	}
	if host.Whole {
		report.Hosts++
		c.Logger.Info("a host is taken away, its Node is gone", "host", host.Host, "node", host.Node.Name, "uid", host.Node.UID)
	}
	return nil
}

// do commits one step. done means that what the step deletes is gone.
func (c *Collector) do(ctx context.Context, step garbage.Step, report *Report) (done bool, err error) {
	took := false
	_, err = c.Etcd.Transact(ctx, step.Reads, func(v *model.View) (model.Change, error) {
		change, err := step.Decide(v)
		took = !change.Empty()
		return change, err
	})
	switch {
	case errors.Is(err, garbage.ErrLives):
		c.Logger.Info("garbage stays", "what", step.What, "reason", err)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", step.What, err)
	case took:
		report.Released += len(step.Addrs)
		c.Logger.Info("garbage is collected", "what", step.What, "addresses", step.Addrs)
	}
	return true, nil
}

// list describes what a decision would do.
func list(d garbage.Decision) (all []string) {
	for _, step := range append(d.Free, d.Spare...) {
		all = append(all, step.String())
	}
	for _, host := range d.Hosts {
		for _, step := range host.Steps {
			all = append(all, "host "+host.Host+": "+step.String())
		}
	}
	return all
}
