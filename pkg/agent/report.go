// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// reportTimeout bounds one request to etcd.
	reportTimeout = 10 * time.Second
	// reportBatch is how many keys one transaction writes; etcd takes 128.
	reportBatch = 100
	// leastBackoff and mostBackoff are between tries while etcd does not serve.
	leastBackoff = 500 * time.Millisecond
	mostBackoff  = 10 * time.Second
)

// reporter writes to etcd what this agent has to say: that it lives, and how
// each endpoint is. It never holds up the loop, which only leaves it notes.
type reporter struct {
	log     *slog.Logger
	store   *store.Client
	host    string
	health  *health
	started time.Time

	lease      *store.Lease
	ttl        time.Duration // of the lease
	former     *store.Lease  // what is in etcd hangs on it still
	registered bool
	silent     bool // nothing in etcd says whether the host lives
	// stored is what etcd holds, by path; nil = unknown, to be read.
	stored map[string]model.EndpointStatus

	wake    chan struct{}
	changed chan struct{} // the settings were

	mu    sync.Mutex
	how   Params
	want  map[string]endpointReport // by the endpoint's path
	first bool                      // the first update is done: want is whole
	doubt bool                      // etcd may hold something else than was written
	// withheld is why nothing is said of the host, "" = it is; decided is closed, and
	// made anew, when that changes.
	withheld string
	decided  chan struct{}
}

// notNamed is why nothing is said of the host before etcd has told who else there is.
const notNamed = "it isn't known yet whether another host has this one's name"

// endpointReport is what is to be written of one endpoint.
type endpointReport struct {
	key    model.Key // of the status
	status model.EndpointStatus
}

func newReporter(log *slog.Logger, client *store.Client, host string, h *health) *reporter {
	return &reporter{
		log: log, store: client, host: host, health: h, started: time.Now(),
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), want: map[string]endpointReport{}, decided: make(chan struct{}),
	}
}

// set notes how an endpoint is.
func (r *reporter) set(path string, key model.Key, status model.EndpointStatus) {
	if path != key.Path() {
		return // another spelling of a key: the report is on the one spelled right
	}
	report := endpointReport{status: status}
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		report.key = model.WorkloadStatusKey(key)
	case model.HostEndpointKey:
		report.key = model.HostEndpointStatusKey(key)
	default:
		return
	}
	r.mu.Lock()
	changed := r.want[path].status != status
	r.want[path] = report
	r.mu.Unlock()
	if changed {
		r.ring()
	}
}

// remove notes that an endpoint is gone.
func (r *reporter) remove(path string) {
	r.mu.Lock()
	_, had := r.want[path]
	delete(r.want, path)
	r.mu.Unlock()
	if had {
		r.ring()
	}
}

// firstUpdate notes that every endpoint was looked at: other reports are stale.
func (r *reporter) firstUpdate() {
	r.mu.Lock()
	r.first = true
	r.mu.Unlock()
	r.ring()
}

// resync notes that etcd may have been emptied or restored.
func (r *reporter) resync() {
	r.mu.Lock()
	r.doubt = true
	r.mu.Unlock()
	r.ring()
}

// configure says how and how often to report.
func (r *reporter) configure(p Params) {
	r.mu.Lock()
	before := r.how
	r.how = p
	r.mu.Unlock()
	if before.ReportInterval != p.ReportInterval || before.ReportEndpoints != p.ReportEndpoints {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// withhold has nothing said of the host and its endpoints, and that it lives taken
// back, for a reason; "" has it said again.
func (r *reporter) withhold(reason string) {
	r.mu.Lock()
	changed := (r.withheld == "") != (reason == "")
	if r.withheld != reason {
		close(r.decided)
		r.decided = make(chan struct{})
	}
	r.withheld = reason
	r.mu.Unlock()
	if changed {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

func (r *reporter) isWithheld() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.withheld != ""
}

// named waits until it is known that the host's name is its own. Where it is another's,
// what etcd says of the name's workloads is that host's, and so are their addresses.
func (r *reporter) named(ctx context.Context) error {
	for {
		r.mu.Lock()
		reason, decided := r.withheld, r.decided
		r.mu.Unlock()
		switch reason {
		case "":
			return nil
		case notNamed:
		default:
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return &gate.RejectedError{Reason: reason, Retry: true}
		}
	}
}

func (r *reporter) params() Params {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.how
}

func (r *reporter) isFirst() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

func (r *reporter) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run reports until the context ends. The host's live status stays then until its
// lease is over: what the agent has programmed stays as well, and most often
// another agent comes at once.
func (r *reporter) run(ctx context.Context) error {
	defer r.leave()
	host := &task{log: r.log.With("what", "the host's status"), timer: time.NewTimer(0)}
	defer host.timer.Stop()
	endpoints := &task{log: r.log.With("what", "the endpoints' status"), timer: time.NewTimer(time.Hour)}
	defer endpoints.timer.Stop()
	told, gathering := false, false // that the first update is done; that the endpoints' timer runs
	for {
		var lost <-chan struct{}
		if r.lease != nil {
			lost = r.lease.Lost()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			if !gathering {
				gathering = true
				endpoints.timer.Reset(max(r.params().ReportDelay, endpoints.backoff))
			}
			if !told && r.isFirst() {
				told = true
				host.timer.Reset(host.backoff)
			}
		case <-r.changed:
			host.timer.Reset(host.backoff)
			r.ring()
		case <-lost:
			r.lease = nil
			host.timer.Reset(0)
		case <-host.timer.C:
			if interval := r.params().ReportInterval; host.done(ctx, r.reportHost(ctx)) && interval > 0 {
				host.timer.Reset(interval)
			}
			r.health.setEtcd(errors.Join(host.err, endpoints.err))
		case <-endpoints.timer.C:
			gathering = !endpoints.done(ctx, r.reportEndpoints(ctx))
			r.health.setEtcd(errors.Join(host.err, endpoints.err))
		}
	}
}

// reportHost writes that this agent lives.
func (r *reporter) reportHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	how := r.params()
	first := r.isFirst()
	if r.isWithheld() {
		r.takeBack()
		return nil
	}
	if how.ReportInterval == 0 {
		if err := r.fallSilent(ctx); err != nil {
			return err
		}
		return r.registerAfter(ctx, first)
	}
	r.silent = false
	if err := r.hold(ctx, how.ReportTTL); err != nil {
		return err
	}
	now := time.Now()
	status := model.Status{Time: now.UTC().Truncate(time.Second), Uptime: now.Sub(r.started), FirstUpdate: first}
	live := model.Change{Puts: []model.Put{{Key: model.StatusKey{Host: r.host}, Value: status}}}
	if _, err := r.store.Commit(ctx, live, store.WithLease(r.lease)); err != nil {
		return fmt.Errorf("write the host's status: %w", err)
	}
	if r.former != nil {
		r.drop(r.former)
		r.former = nil
	}
	last := model.Change{Puts: []model.Put{{Key: model.LastStatusKey{Host: r.host}, Value: status}}}
	if _, err := r.store.Commit(ctx, last); err != nil {
		return fmt.Errorf("write the host's last status: %w", err)
	}
	return r.registerAfter(ctx, first)
}

// hold takes a lease, another one where it shall be longer or shorter.
func (r *reporter) hold(ctx context.Context, ttl time.Duration) error {
	if r.lease != nil && r.ttl == ttl {
		return nil
	}
	lease, err := r.store.Lease(ctx, ttl)
	if err != nil {
		return fmt.Errorf("lease of the host's status: %w", err)
	}
	switch {
	case r.former == nil:
		r.former = r.lease
	case r.lease != nil:
		r.drop(r.lease)
	}
	r.lease, r.ttl = lease, ttl
	return nil
}

// registerAfter makes the object that says that the host exists, once, after the first update.
func (r *reporter) registerAfter(ctx context.Context, first bool) error {
	if !first || r.registered {
		return nil
	}
	key := model.HostMetadataKey{Host: r.host}
	_, err := r.store.Commit(ctx, model.Change{
		Compares: []model.Compare{{Key: key}},
		Puts:     []model.Put{{Key: key, Value: model.HostMetadata{}}},
	})
	var exists *store.ConflictError
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("write the host's metadata: %w", err)
	}
	r.registered = true
	return nil
}

// reportEndpoints writes the difference between what is known of the endpoints
// and what etcd holds of that.
func (r *reporter) reportEndpoints(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			r.stored = nil // some of it may have been written
		}
	}()
	r.mu.Lock()
	if r.doubt {
		r.stored, r.registered, r.silent, r.doubt = nil, false, false, false
	}
	want := make(map[string]endpointReport, len(r.want))
	if r.how.ReportEndpoints {
		for _, report := range r.want {
			want[report.key.Path()] = report
		}
	}
	speaks := r.first && r.withheld == ""
	r.mu.Unlock()
	if !speaks {
		return nil // what etcd holds may be of another host of this one's name
	}
	limited, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := r.readStored(limited); err != nil {
		return err
	}
	for _, change := range reportChanges(want, r.stored) {
		limited, cancel := context.WithTimeout(ctx, reportTimeout)
		_, err := r.store.Commit(limited, change)
		cancel()
		if err != nil {
			return fmt.Errorf("write the status of %d endpoints: %w", len(change.Puts)+len(change.Deletes), err)
		}
		for _, key := range change.Deletes {
			delete(r.stored, key.Path())
		}
		for _, put := range change.Puts {
			r.stored[put.Key.Path()] = want[put.Key.Path()].status
		}
	}
	return nil
}

// readStored reads what etcd holds, where that isn't known.
func (r *reporter) readStored(ctx context.Context) error {
	if r.stored != nil {
		return nil
	}
	snapshot, err := r.store.Read(ctx, store.Prefix(model.StatusPrefix(r.host)))
	if err != nil {
		return fmt.Errorf("read the status of endpoints: %w", err)
	}
	r.stored = map[string]model.EndpointStatus{}
	for _, entry := range snapshot.Entries() {
		switch entry.Key.(type) {
		case model.WorkloadStatusKey, model.HostEndpointStatusKey:
			if entry.Path == entry.Key.Path() {
				status, _ := entry.Value.(model.EndpointStatus)
				r.stored[entry.Path] = status // "" where it makes no sense
			}
		}
	}
	return nil
}

// fallSilent has etcd say nothing about whether the host lives: it is taken to
// live then. Both keys go at once, as one without the other is of a dead host.
func (r *reporter) fallSilent(ctx context.Context) error {
	if r.silent {
		return nil
	}
	change := model.Change{Deletes: []model.Key{model.StatusKey{Host: r.host}, model.LastStatusKey{Host: r.host}}}
	if _, err := r.store.Commit(ctx, change); err != nil {
		return fmt.Errorf("delete the host's status: %w", err)
	}
	r.silent = true
	r.takeBack()
	return nil
}

// leave has the host's live status stay until its lease is over.
func (r *reporter) leave() {
	for _, lease := range []*store.Lease{r.lease, r.former} {
		if lease != nil {
			lease.Leave()
		}
	}
	r.lease, r.former = nil, nil
}

// takeBack has etcd delete the host's live status.
func (r *reporter) takeBack() {
	for _, lease := range []*store.Lease{r.lease, r.former} {
		if lease != nil {
			r.drop(lease)
		}
	}
	r.lease, r.former = nil, nil
}

// drop has etcd delete what hangs on the lease.
func (r *reporter) drop(lease *store.Lease) {
	if err := lease.Close(); err != nil {
		r.log.Warn("the host's status stays in etcd until its lease ends", "err", err)
	}
}
