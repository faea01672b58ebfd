// SPDX-License-Identifier: Apache-2.0

// Package report writes to etcd what an agent has to say of itself: that its host lives, where that is permitted, and how
// each endpoint is.
package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// timeout bounds one request to etcd.
	timeout = 10 * time.Second
	// batch is how many keys one transaction writes; etcd takes 128.
	batch = 100
	// leastBackoff and mostBackoff are between tries while etcd does not serve.
	leastBackoff = 500 * time.Millisecond
	mostBackoff  = 10 * time.Second
)

// Reporter writes to etcd what this agent has to say: that it lives, and how
// each endpoint is. It never holds up the loop, which only leaves it notes.
type Reporter struct {
	log     *slog.Logger
	store   *store.Client
	host    string
	health  *health.Monitor
	started time.Time

	lease      *store.Lease
	ttl        time.Duration // of the lease
	former     *store.Lease  // what is in etcd hangs on it still
	registered bool          // the object that says that the host exists was made
	silent     bool          // nothing in etcd says whether the host lives
	// stored is what etcd holds, by path; nil = unknown, to be read.
	stored map[string]model.EndpointStatus

	wake    mailbox.Signal
	changed mailbox.Signal                  // the settings were, or what may be said
	keeps   func(lease, beside int64) error // of Ask; nil = nobody does
	// Naming says whether it may be said in the host's name; all of the agent goes by it.
	Naming *Naming

	mu    sync.Mutex
	how   params.Params
	want  map[string]endpoint // by the endpoint's path
	first bool                // the first update is done: want is whole
	doubt bool                // etcd may hold something else than was written
	// unlisted: somebody has deleted what says that the host exists.
	unlisted bool
	// asks is told where what was permitted is not any more; nil = nobody needs to permit
	// that the host's status is written.
	asks     func()
	withheld bool        // the host's status is taken back
	may      *Permission // nil = the status stays as it is
	due      bool        // the status is to be written as soon as that is permitted
	heard    int64       // what etcd was known of when may was given
	fresh    int64       // a permission that knows less than this revision is stale
	snapshot int         // and one of another snapshot of etcd
	wrote    int64       // revision of the last status
	alive    int64       // the lease that it hangs on, 0 = none that holds
}

// endpoint is what is to be written of one endpoint.
type endpoint struct {
	key    model.Key // of the status
	path   string    // the key's
	status model.EndpointStatus
}

// New has nothing to say yet, and says nothing until Run. Without Ask, nobody needs to permit that it does.
func New(log *slog.Logger, client *store.Client, host string, h *health.Monitor) *Reporter {
	return &Reporter{
		log: log, store: client, host: host, health: h, started: time.Now(),
		wake: mailbox.NewSignal(), changed: mailbox.NewSignal(), want: map[string]endpoint{}, Naming: newNaming(),
	}
}

// Set notes how an endpoint is, by the path that its key has in etcd.
func (r *Reporter) Set(path string, key model.Key, status model.EndpointStatus) {
	if path != key.Path() {
		return // another spelling of a key: the report is on the one spelled right
	}
	report := endpoint{status: status}
	switch key := key.(type) {
	case model.WorkloadEndpointKey:
		report.key = model.WorkloadStatusKey(key)
	case model.HostEndpointKey:
		report.key = model.HostEndpointStatusKey(key)
	default:
		return
	}
	report.path = report.key.Path()
	r.mu.Lock()
	changed := r.want[path].status != status
	r.want[path] = report
	r.mu.Unlock()
	if changed {
		r.wake.Send()
	}
}

// Noted is how an endpoint is by what Set was told last, "" = nothing is noted of it.
func (r *Reporter) Noted(path string) model.EndpointStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want[path].status
}

// Remove notes that an endpoint is gone.
func (r *Reporter) Remove(path string) {
	r.mu.Lock()
	_, had := r.want[path]
	delete(r.want, path)
	r.mu.Unlock()
	if had {
		r.wake.Send()
	}
}

// FirstUpdate notes that every endpoint was looked at: other reports are stale.
func (r *Reporter) FirstUpdate() {
	r.mu.Lock()
	r.first = true
	r.mu.Unlock()
	r.wake.Send()
}

// Resync notes that etcd may have been emptied or restored.
func (r *Reporter) Resync() {
	r.mu.Lock()
	r.doubt = true
	r.mu.Unlock()
	r.wake.Send()
}

// Unlist notes that somebody has deleted what says that the host exists.
func (r *Reporter) Unlist() {
	r.mu.Lock()
	r.unlisted = true
	r.mu.Unlock()
	r.changed.Send()
}

// Configure says how and how often to report.
func (r *Reporter) Configure(p params.Params) {
	r.mu.Lock()
	before := r.how
	r.how = p
	r.mu.Unlock()
	if before.ReportInterval != p.ReportInterval || before.ReportEndpoints != p.ReportEndpoints {
		r.changed.Send()
	}
}

// Params are those that Configure was told last.
func (r *Reporter) Params() params.Params {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.how
}

func (r *Reporter) isFirst() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// Run reports until the context ends; the error is always nil. The host's live status stays then until its
// lease is over: what the agent has programmed stays as well, and most often
// another agent comes at once.
func (r *Reporter) Run(ctx context.Context) error {
	defer r.leave()
	host := &task{log: r.log.With("what", "the host's status"), timer: time.NewTimer(0)}
	defer host.timer.Stop()
	endpoints := &task{log: r.log.With("what", "the endpoints' status"), timer: time.NewTimer(time.Hour)}
	defer endpoints.timer.Stop()
	told, gathering := false, false // that the first update is done; that the endpoints' timer runs
	for {
		var lost, formerLost <-chan struct{}
		if r.lease != nil {
			lost = r.lease.Lost()
		}
		if r.former != nil {
			formerLost = r.former.Lost()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			if !gathering {
				gathering = true
				endpoints.timer.Reset(max(r.Params().ReportDelay, endpoints.backoff))
			}
			if !told && r.isFirst() {
				told = true
				host.timer.Reset(host.backoff)
			}
		case <-r.changed: // by what etcd says: it is back, however often it was tried in vain
			host.backoff = min(host.backoff, leastBackoff)
			host.timer.Reset(host.backoff)
			r.wake.Send()
		case <-r.Naming.forReport:
			host.timer.Reset(host.backoff)
			r.wake.Send()
		case <-lost:
			r.lease = nil
			if r.former == nil {
				r.lapsed()
			}
			host.timer.Reset(0)
		case <-formerLost:
			r.former = nil
			r.lapsed()
		case <-host.timer.C:
			if interval := r.Params().ReportInterval; host.done(ctx, r.lapses(r.reportHost(ctx))) && interval > 0 {
				host.timer.Reset(interval)
			}
			r.noteFailure(errors.Join(host.err, endpoints.err))
		case <-endpoints.timer.C:
			gathering = !endpoints.done(ctx, r.reportEndpoints(ctx))
			r.noteFailure(errors.Join(host.err, endpoints.err))
		}
	}
}

// noteFailure says in the health page that reports don't reach etcd.
func (r *Reporter) noteFailure(err error) {
	reason := ""
	if err != nil {
		reason = "reports to etcd fail: " + err.Error()
	}
	r.health.Set("reports", reason)
}

// reportEndpoints writes the difference between what is known of the endpoints
// and what etcd holds of that.
func (r *Reporter) reportEndpoints(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			r.stored = nil // some of it may have been written
		}
	}()
	r.mu.Lock()
	if r.doubt {
		if r.silent {
			r.changed.Send() // etcd may say again whether the host lives
		}
		r.stored, r.registered, r.silent, r.doubt = nil, false, false, false
	}
	want := make(map[string]endpoint, len(r.want))
	if r.how.ReportEndpoints {
		for _, report := range r.want {
			want[report.path] = report
		}
	}
	speaks := r.first
	r.mu.Unlock()
	if !speaks || r.Naming.Waits() != "" {
		return nil // what etcd holds may be of another host of this one's name
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.readStored(limited); err != nil {
		return err
	}
	for _, change := range changes(want, r.stored) {
		limited, cancel := context.WithTimeout(ctx, timeout)
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
func (r *Reporter) readStored(ctx context.Context) error {
	if r.stored != nil {
		return nil
	}
	snapshot, err := r.store.Read(ctx, model.PrefixRange(model.StatusPrefix(r.host)))
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
