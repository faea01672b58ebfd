// SPDX-License-Identifier: Apache-2.0

// Package firewall reconciles the host's firewall: it computes policy for the endpoints
// of this host, applies it to the kernel's table, and knows which endpoints' rules are
// in place.
package firewall

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/pkg/retry"
)

const (
	// tamperPause is the least time between two audits because of tampering. It slows a fight with another program.
	tamperPause = 20 * time.Millisecond
	// retryPause is the first pause before what the kernel refused is tried again.
	retryPause    = time.Second
	maxRetryPause = 10 * time.Second
	// repairsPause is how long repairs are counted before the next log line: a fight with another program means dozens a second.
	repairsPause = time.Minute
)

// Table is the kernel's side: nft.Firewall.
type Table interface {
	Configure(policy.Settings)
	Update(policy.Changes)
	Tunnels(policy.Tunnels)
	Links(indexes map[string]int)
	Apply(context.Context) (nft.Report, error)
	Audit()
	Reached() ([]string, error)
	Subscribe(context.Context) (<-chan nft.Event, error)
	Close() error
	// Cut, Uncut and ReadCuts stop flows from beginning a connection, for the cutter of denied connections.
	Cut([]nft.Cut) error
	Uncut([]nft.Flow) error
	ReadCuts() ([]nft.Flow, error)
}

// Config configures a Reconciler.
type Config struct {
	Host string // this host's name in etcd
	// Open opens the kernel's table. It calls alive during a long Apply.
	Open    func(alive func()) (Table, error)
	Alive   func()
	Roles   func(prefixes []string) ([]hostnet.Role, error)
	Logger  *slog.Logger
	Metrics Metrics
}

// Reconciler keeps the firewall. Only Enforced is safe for concurrent use.
type Reconciler struct {
	cfg      Config
	engine   *policy.Engine
	table    Table
	tampered <-chan nft.Event

	// mu guards state, settings and interfaces, which are also read where connections are judged.
	mu sync.RWMutex
	// state is what the kernel should have: it lacks the endpoints without access, whose interfaces pass nothing, but has those whose
	// interface is closed.
	state      *policy.State
	settings   policy.Settings
	interfaces []policy.Interface // the host's own

	verdicts map[string]Verdict  // of workload endpoints that have access, by path
	decided  map[string]struct{} // paths decided on since the last turn
	closed   *closed
	found    map[string]*policy.Endpoint // every local endpoint, by path
	hosts    map[string]struct{}         // host endpoints to report on
	own      own
	counts   counts
	work     board.Doubts // to hand over once the firewall is applied

	applied bool             // it has been applied once
	more    bool             // part of the latest turn waits for another
	err     error            // why the latest turn was not applied
	failing map[string]error // why an endpoint's firewall isn't as it should be
	misfit  error            // why part of a change could not be used, the latest

	suspicious bool      // something else changed the table
	audited    time.Time // when it was last audited for that
	repairs    repairs
	due        time.Time
	backoff    retry.Backoff
}

// counts are for the metrics, and updated as policy changes.
type counts struct {
	rules   map[string]int // of each endpoint's policies and profiles
	users   users
	members int // of all sets
}

// repairs are those not logged yet, and the time of the last log line.
type repairs struct {
	changes int
	said    time.Time
}

// New returns a Reconciler without policy.
func New(cfg Config) *Reconciler {
	return &Reconciler{
		cfg: cfg, engine: policy.NewEngine(cfg.Host), state: &policy.State{}, verdicts: map[string]Verdict{}, decided: map[string]struct{}{}, closed: newClosed(),
		found: map[string]*policy.Endpoint{}, hosts: map[string]struct{}{}, failing: map[string]error{}, work: newWork(),
		counts: counts{rules: map[string]int{}, users: newUsers()}, backoff: retry.Backoff{First: retryPause, Longest: maxRetryPause, Exact: true},
	}
}

// Open opens the kernel's table and subscribes to others' changes of it.
func (r *Reconciler) Open(ctx context.Context, s policy.Settings) error {
	table, err := r.cfg.Open(r.cfg.Alive)
	if err != nil {
		return fmt.Errorf("open the firewall: %w", err)
	}
	r.table = table
	r.Configure(s)
	if r.tampered, err = table.Subscribe(ctx); err != nil {
		_ = table.Close() // nothing was written
		return fmt.Errorf("subscribe to changes of the firewall: %w", err)
	}
	return nil
}

// Table returns the kernel's side, once it is open.
func (r *Reconciler) Table() Table { return r.table }

// Tampered receives an event when something else changed the table; pass it to Note.
func (r *Reconciler) Tampered() <-chan nft.Event { return r.tampered }

// Due is when Retry must be called; zero = not.
func (r *Reconciler) Due() time.Time { return r.due }

// Retry must precede another Apply when Due has come.
func (r *Reconciler) Retry() { r.due = time.Time{} }

// Update takes in what changed in etcd.
func (r *Reconciler) Update(entries ...model.Entry) { r.engine.Update(entries...) }

// Configure applies the settings that concern packets.
func (r *Reconciler) Configure(s policy.Settings) {
	if reflect.DeepEqual(s, r.settings) {
		return
	}
	r.mu.Lock()
	r.settings = s
	r.mu.Unlock()
	r.work.All = true
	r.engine.SetPrefixes(s.Prefixes)
	r.engine.CloseMetrics(len(s.MetricsPorts) > 0)
	r.table.Configure(s)
}

// SetInterfaces sets the host's own interfaces, which place host endpoints.
func (r *Reconciler) SetInterfaces(interfaces []policy.Interface) {
	if slices.EqualFunc(interfaces, r.interfaces, func(a, b policy.Interface) bool {
		return a.Name == b.Name && slices.Equal(a.Addrs, b.Addrs)
	}) {
		return
	}
	r.mu.Lock()
	r.interfaces = interfaces
	r.mu.Unlock()
	r.engine.SetInterfaces(interfaces)
	r.reportHosts() // one may have appeared or disappeared
}

// Interfaces returns the host's own.
func (r *Reconciler) Interfaces() []policy.Interface { return r.interfaces }

// SetTunnels sets which packets are tunnels', and which hosts they may come from. A connection that a workload began before there was a
// tunnel may be one that only tunnels are allowed now.
func (r *Reconciler) SetTunnels(t policy.Tunnels) {
	before := r.state.Tunnels
	r.work.All = r.work.All || t.VXLANPort != before.VXLANPort || t.IPIP != before.IPIP
	r.mu.Lock()
	r.state.Tunnels = t
	r.mu.Unlock()
	r.table.Tunnels(t)
}

// SetIndexes sets the current indexes of workloads' links. The table matches packets by them, so it needs each change at once.
func (r *Reconciler) SetIndexes(indexes map[string]int) {
	if len(indexes) > 0 {
		r.table.Links(indexes)
	}
}

// LinksChanged makes the next Take read again which of the interfaces that endpoints name are the host's own.
func (r *Reconciler) LinksChanged() { r.closed.stale = true }

// Note records that something else changed the table; ok is false if there are no more events.
func (r *Reconciler) Note(ok bool) {
	if !ok {
		r.tampered = nil // the audit remains
		return
	}
	r.suspicious = true
}

// Suspicious reports whether the table may have been changed.
func (r *Reconciler) Suspicious() bool { return r.suspicious }

// Audit makes the next Apply compare everything.
func (r *Reconciler) Audit() { r.table.Audit() }

// Reached returns the workload endpoints that lately reached their limit of connections, and the limit of each.
func (r *Reconciler) Reached() (map[string]int, error) {
	names, err := r.table.Reached()
	if err != nil {
		return nil, fmt.Errorf("which workloads have too many connections: %w", err)
	}
	bounds := map[string]int{}
	for path, ep := range r.state.Endpoints {
		if ep.Workload && slices.Contains(names, ep.Interface) {
			bounds[path] = ep.Bound(r.settings.MaxConnections)
		}
	}
	r.cfg.Metrics.reached.Set(float64(len(bounds)))
	return bounds, nil
}

// auditTampered audits the whole table after something else changed it, but not as often as a fight with another program would require.
func (r *Reconciler) auditTampered(now time.Time) {
	if !r.suspicious {
		return
	}
	if since := now.Sub(r.audited); since < tamperPause {
		r.due = now.Add(tamperPause - since)
		return
	}
	r.suspicious, r.audited = false, now
	r.table.Audit()
}

// Outcome is what an Apply changed.
type Outcome struct {
	// Changed are the workload endpoints whose firewall is in place now, or no longer is; All says that any may be.
	Changed []string
	All     bool
}

// Apply brings the kernel's table in line and reads it back. Failures are tried again: see Due and Stands.
func (r *Reconciler) Apply(ctx context.Context) Outcome {
	now := time.Now()
	r.auditTampered(now)
	report, err := r.table.Apply(ctx)
	if err != nil && ctx.Err() != nil {
		return Outcome{} // the agent stops
	}
	if err != nil {
		err = fmt.Errorf("firewall: %w", err)
	}
	out := Outcome{All: problems.Reason(r.err) != problems.Reason(err)}
	if r.err = err; out.All {
		r.reportHosts()
		if err == nil {
			r.cfg.Logger.Info("the firewall is in order again")
		} else {
			r.cfg.Logger.Error("the firewall could not be brought in line, trying again", "err", err)
		}
	}
	if err != nil {
		r.again()
	} else {
		r.backoff.Reset()
	}
	if r.more = report.More; r.more {
		r.due = now // after what has come meanwhile
	}
	for _, path := range report.InForce { // it wasn't when connections were judged
		if ep := r.state.Endpoints[path]; ep != nil {
			r.work.All = r.work.All || !ep.Workload
			r.suspectAddrs(ep.Addrs, nil)
		}
	}
	if report.Writes > 0 || report.Whole || err != nil {
		scope := "some"
		if report.Whole {
			scope = "whole"
		}
		r.cfg.Metrics.Seconds.WithLabelValues(scope).Observe(time.Since(now).Seconds())
		r.cfg.Metrics.read(report, r)
	}
	if report.Repairs > 0 {
		r.work.Hole = true // connections that began while the firewall had a hole count as established
		r.logRepairs(report.Repairs, now)
	}
	out.Changed = r.read(report.Programmed)
	if err == nil && !r.applied {
		r.applied, r.work.Hole = true, true
		r.cfg.Logger.Info("the firewall stands", "endpoints", len(r.state.Endpoints), "rules", report.Rules, "members", report.Members, "changes", report.Writes, "took", time.Since(now))
	}
	return out
}

// read records why the firewall of endpoints isn't in place, and returns the workloads for which that changed.
func (r *Reconciler) read(programmed map[string]error) (changed []string) {
	for path, problem := range programmed {
		if r.isOwn(path) {
			continue // the prober itself tries whether they are connected
		}
		if problem == nil {
			problem = r.Denies(path)
		}
		if problems.Reason(problem) == problems.Reason(r.failing[path]) {
			continue
		}
		if problem == nil {
			delete(r.failing, path)
		} else {
			r.failing[path] = fmt.Errorf("firewall: %w", problem)
		}
		if ep := r.found[path]; ep != nil && !ep.Workload {
			r.ReportHost(path)
		} else {
			changed = append(changed, path)
		}
	}
	return changed
}

// again schedules a retry, with growing pauses.
func (r *Reconciler) again() {
	r.due = time.Now().Add(r.backoff.Next())
}

// logRepairs logs that the table differed from what was written: something else changed it, or a failed change took effect in part.
func (r *Reconciler) logRepairs(changes int, now time.Time) {
	if now.Sub(r.repairs.said) >= 2*repairsPause {
		r.repairs.changes = 0 // they belong to a fight that ended
	}
	if r.repairs.changes += changes; now.Sub(r.repairs.said) < repairsPause {
		return
	}
	r.cfg.Logger.Warn("repaired the firewall, which was not as it was left; connections that began meanwhile are judged again", "table", "inet "+nft.TableName, "changes", r.repairs.changes)
	r.repairs = repairs{said: now}
}

// Applied reports whether the firewall has been applied once: until then, nothing may be connected.
func (r *Reconciler) Applied() bool { return r.applied }

// Err returns why the firewall isn't as it should be, nil if it is.
func (r *Reconciler) Err() error { return r.err }

// Invalid returns the objects that only policy finds wrong, such as an endpoint that names a missing profile; Misfit returns a bug of this
// program.
func (r *Reconciler) Invalid() map[string]error { return r.engine.Invalid() }
func (r *Reconciler) Misfit() error             { return r.misfit }

// Settled reports whether the kernel has everything that was decided.
func (r *Reconciler) Settled() bool { return r.applied && r.err == nil && r.misfit == nil && !r.more }

// Unmade is policy.Engine.Unmade.
func (r *Reconciler) Unmade(path string, needed func(profile string) []model.Key) string {
	return r.engine.Unmade(path, needed)
}

// Host returns a host endpoint as policy resolved it, nil if it didn't.
func (r *Reconciler) Host(path string) *policy.Endpoint { return r.found[path] }

// ReportHost makes TakeHosts return a host endpoint.
func (r *Reconciler) ReportHost(path string) {
	if path != policy.MetricsPath {
		r.hosts[path] = struct{}{}
	}
}

func (r *Reconciler) reportHosts() {
	for path, ep := range r.found {
		if !ep.Workload {
			r.ReportHost(path)
		}
	}
}

// TakeHosts returns, once, the host endpoints that changed, or whose interface or firewall did.
func (r *Reconciler) TakeHosts() map[string]struct{} {
	hosts := r.hosts
	r.hosts = map[string]struct{}{}
	return hosts
}

// Close closes the table's socket; what is programmed stays.
func (r *Reconciler) Close() error { return r.table.Close() }
