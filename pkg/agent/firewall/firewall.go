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
	// tamperPause is the least time between two audits because of tampering, so
	// that a fight with another program is not fought at full speed.
	tamperPause = 20 * time.Millisecond
	// retryPause is when what the kernel refused is tried again at first.
	retryPause    = time.Second
	maxRetryPause = 10 * time.Second
	// repairsPause is for how long repairs are counted before the next is logged: a
	// fight with another program is one of dozens a second.
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
	// Cut, Uncut and ReadCuts keep flows from beginning a connection, for who ends those that are denied.
	Cut([]nft.Cut) error
	Uncut([]nft.Flow) error
	ReadCuts() ([]nft.Flow, error)
}

// Config is what a Reconciler works with.
type Config struct {
	Host string // its name in etcd
	// Open opens the kernel's table. It calls alive while an Apply takes long.
	Open    func(alive func()) (Table, error)
	Alive   func()
	Roles   func(prefixes []string) ([]hostnet.Role, error)
	Logger  *slog.Logger
	Metrics Metrics
}

// Reconciler keeps the firewall. It is not for concurrent use, but for Enforced.
type Reconciler struct {
	cfg      Config
	engine   *policy.Engine
	table    Table
	tampered <-chan nft.Event

	// mu guards state, settings and interfaces, which are read where connections are judged.
	mu sync.RWMutex
	// state is what the kernel is asked for: without the endpoints that get no
	// access, whose interfaces pass nothing, but with those whose interface is closed.
	state      *policy.State
	settings   policy.Settings
	interfaces []policy.Interface // the host's own

	verdicts map[string]Verdict  // of workload endpoints that have access, by path
	decided  map[string]struct{} // paths of those on which was decided since the last turn
	closed   *closed
	found    map[string]*policy.Endpoint // every local endpoint, by path
	hosts    map[string]struct{}         // host endpoints on which is to be reported
	own      own
	counts   counts
	work     board.Doubts // for when the firewall stands

	applied bool             // it has been applied once
	err     error            // why the latest turn was not applied
	failing map[string]error // why an endpoint's firewall isn't as it should be
	misfit  error            // what of all changes could not be used, the latest

	suspicious bool      // somebody else changed the table
	audited    time.Time // because of that
	repairs    repairs
	due        time.Time
	backoff    retry.Backoff
}

// counts are for the metrics, and kept as policy changes.
type counts struct {
	rules   map[string]int // of each endpoint's policies and profiles
	users   users
	members int // of all sets
}

// repairs are those that are not logged yet, and when some were.
type repairs struct {
	changes int
	said    time.Time
}

// New makes a Reconciler that knows no policy yet.
func New(cfg Config) *Reconciler {
	return &Reconciler{
		cfg: cfg, engine: policy.NewEngine(cfg.Host), state: &policy.State{}, verdicts: map[string]Verdict{}, decided: map[string]struct{}{}, closed: newClosed(),
		found: map[string]*policy.Endpoint{}, hosts: map[string]struct{}{}, failing: map[string]error{}, work: newWork(),
		counts: counts{rules: map[string]int{}, users: newUsers()}, backoff: retry.Backoff{First: retryPause, Longest: maxRetryPause, Exact: true},
	}
}

// Open opens the kernel's table and subscribes to what others do to it.
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

// Table is the kernel's side, once it is open.
func (r *Reconciler) Table() Table { return r.table }

// Tampered tells that somebody else changed the table, which Note is to be told of.
func (r *Reconciler) Tampered() <-chan nft.Event { return r.tampered }

// Due is when Retry is to be called, the zero time: not.
func (r *Reconciler) Due() time.Time { return r.due }

// Retry is before another Apply.
func (r *Reconciler) Retry() { r.due = time.Time{} }

// Update takes in what changed in etcd.
func (r *Reconciler) Update(entries ...model.Entry) { r.engine.Update(entries...) }

// Configure takes the settings that bear on packets into use.
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

// SetInterfaces takes in the host's own interfaces, which host endpoints are found by.
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
	r.reportHosts() // one may be there now, or no longer
}

// Interfaces are the host's own.
func (r *Reconciler) Interfaces() []policy.Interface { return r.interfaces }

// SetTunnels says which packets are of tunnels, and from which hosts they come. One that a
// workload began before there was a tunnel may be what only tunnels may send now.
func (r *Reconciler) SetTunnels(t policy.Tunnels) {
	before := r.state.Tunnels
	r.work.All = r.work.All || t.VXLANPort != before.VXLANPort || t.IPIP != before.IPIP
	r.mu.Lock()
	r.state.Tunnels = t
	r.mu.Unlock()
	r.table.Tunnels(t)
}

// SetIndexes says which indexes links of workloads have now. The table compares packets by
// them, so it is to be told of each that is another at once.
func (r *Reconciler) SetIndexes(indexes map[string]int) {
	if len(indexes) > 0 {
		r.table.Links(indexes)
	}
}

// LinksChanged has it told anew which of the interfaces that endpoints name are the host's own.
func (r *Reconciler) LinksChanged() { r.closed.stale = true }

// Note takes in that somebody else changed the table; ok is false where that won't be told any more.
func (r *Reconciler) Note(ok bool) {
	if !ok {
		r.tampered = nil // the audit remains
		return
	}
	r.suspicious = true
}

// Suspicious says that the table may not be as it was left.
func (r *Reconciler) Suspicious() bool { return r.suspicious }

// Audit has the next Apply compare all.
func (r *Reconciler) Audit() { r.table.Audit() }

// Reached are the workload endpoints that came to as many connections of late as they may have, with the bound of each.
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

// auditTampered has the whole table read where somebody else changed it, but not as
// often as a fight with another program would want.
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
	// Changed are the workload endpoints whose firewall stands now, or doesn't any
	// more; All says that it may be all.
	Changed []string
	All     bool
}

// Apply brings the kernel's table in line and reads it back. What fails is tried again: see
// Due and Stands.
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
	if report.More {
		r.due = now // after what has come meanwhile
	}
	for _, path := range report.InForce { // it wasn't yet when connections were looked at
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
		r.work.Hole = true // what began while the firewall had a hole runs on as established
		r.logRepairs(report.Repairs, now)
	}
	out.Changed = r.read(report.Programmed)
	if err == nil && !r.applied {
		r.applied, r.work.Hole = true, true
		r.cfg.Logger.Info("the firewall stands", "endpoints", len(r.state.Endpoints), "rules", report.Rules, "members", report.Members, "changes", report.Writes, "took", time.Since(now))
	}
	return out
}

// read takes in why the firewall of endpoints isn't up, and returns the workloads for which that changed.
func (r *Reconciler) read(programmed map[string]error) (changed []string) {
	for path, problem := range programmed {
		if r.isOwn(path) {
			continue // whether probes are connected is tried
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

// again has it tried again after a while, longer each time.
func (r *Reconciler) again() {
	r.due = time.Now().Add(r.backoff.Next())
}

// logRepairs logs that the table was found other than it was left: somebody else has changed it,
// or a change that failed took effect in part.
func (r *Reconciler) logRepairs(changes int, now time.Time) {
	if now.Sub(r.repairs.said) >= 2*repairsPause {
		r.repairs.changes = 0 // they are of a fight that ended
	}
	if r.repairs.changes += changes; now.Sub(r.repairs.said) < repairsPause {
		return
	}
	r.cfg.Logger.Warn("repaired the firewall, which was not as it was left; connections that began meanwhile are judged again", "table", "inet "+nft.TableName, "changes", r.repairs.changes)
	r.repairs = repairs{said: now}
}

// Applied says that the firewall stood once: until then, nothing may be connected.
func (r *Reconciler) Applied() bool { return r.applied }

// Err says why the firewall isn't as it should be, nil = it stands.
func (r *Reconciler) Err() error { return r.err }

// Invalid are the objects that only policy finds wrong, such as a profile that an endpoint names
// and that isn't there; Misfit is a mistake of this program.
func (r *Reconciler) Invalid() map[string]error { return r.engine.Invalid() }
func (r *Reconciler) Misfit() error             { return r.misfit }

// Unmade is policy.Engine's.
func (r *Reconciler) Unmade(path string, needed func(profile string) []model.Key) string {
	return r.engine.Unmade(path, needed)
}

// Host returns a host endpoint as policy has it, nil = it has none.
func (r *Reconciler) Host(path string) *policy.Endpoint { return r.found[path] }

// ReportHost has TakeHosts return a host endpoint, if etcd has it.
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

// TakeHosts returns the host endpoints that changed, or whose interface or firewall did, once.
func (r *Reconciler) TakeHosts() map[string]struct{} {
	hosts := r.hosts
	r.hosts = map[string]struct{}{}
	return hosts
}

// Close closes the table's socket; what is programmed stays.
func (r *Reconciler) Close() error { return r.table.Close() }
