// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// batch is how many keys one transaction writes; etcd allows 128.
const batch = 100

// endpoints writes the status of each endpoint.
type endpoints struct {
	log    *slog.Logger
	store  *store.Client
	host   string
	health *health.Monitor
	naming *mailbox.Value[string]
	wake   mailbox.Signal
	named  mailbox.Signal
	// stored is what etcd holds, by path; nil = unknown, to be read. Only run uses it.
	stored map[string]model.EndpointStatus

	mu    sync.Mutex
	how   Settings
	want  map[string]endpoint // by the endpoint's path
	first bool                // the first update is done: want is complete
	doubt bool                // etcd may hold something else than was written
}

// endpoint is the status to write for one endpoint.
type endpoint struct {
	key    model.Key // of the status
	path   string    // the key's
	status model.EndpointStatus
}

func newEndpoints(cfg Config, client *store.Client, n *mailbox.Value[string]) *endpoints {
	return &endpoints{
		log: cfg.Logger, store: client, host: cfg.Node, health: cfg.Health, naming: n,
		wake: mailbox.NewSignal(), named: n.Subscribe(), want: map[string]endpoint{},
	}
}

func (e *endpoints) set(path string, key model.Key, status model.EndpointStatus) {
	if path != key.Path() {
		return // another spelling of a key: only the right one gets a report
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
	e.mu.Lock()
	changed := e.want[path].status != status
	e.want[path] = report
	e.mu.Unlock()
	if changed {
		e.wake.Send()
	}
}

func (e *endpoints) noted(path string) model.EndpointStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.want[path].status
}

func (e *endpoints) remove(path string) {
	e.mu.Lock()
	_, had := e.want[path]
	delete(e.want, path)
	e.mu.Unlock()
	if had {
		e.wake.Send()
	}
}

func (e *endpoints) firstUpdate() { e.note(func() { e.first = true }) }

// resync records that etcd may have been emptied or restored.
func (e *endpoints) resync() { e.note(func() { e.doubt = true }) }

func (e *endpoints) configure(s Settings) {
	e.mu.Lock()
	same := e.how.Endpoints == s.Endpoints
	e.how = s
	e.mu.Unlock()
	if !same {
		e.wake.Send()
	}
}

func (e *endpoints) note(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	e.wake.Send()
}

func (e *endpoints) delay() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.how.Delay
}

// run writes changes until the context ends, a burst of them at once.
func (e *endpoints) run(ctx context.Context) error {
	t := newTask(e.log.With("what", "the endpoints' status"), time.Hour)
	defer t.timer.Stop()
	gathering := false // the timer runs
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.named:
			e.resync() // another host with this name may have written meanwhile
		case <-e.wake:
			if !gathering {
				gathering = true
				t.timer.Reset(max(e.delay(), t.pause))
			}
		case <-t.timer.C:
			gathering = !t.done(ctx, e.report(ctx))
			t.tell(e.health, "status of endpoints")
		}
	}
}

// report writes the difference between the known status of endpoints and that in etcd.
func (e *endpoints) report(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			e.stored = nil // some of it may have been written
		}
	}()
	e.mu.Lock()
	if e.doubt {
		e.stored, e.doubt = nil, false
	}
	want := make(map[string]endpoint, len(e.want))
	if e.how.Endpoints {
		for _, report := range e.want {
			want[report.path] = report
		}
	}
	first := e.first
	e.mu.Unlock()
	if !first || e.naming.Get() != "" {
		return nil // what etcd holds may belong to another host with this name
	}
	if err := e.read(ctx); err != nil {
		return err
	}
	for _, change := range changes(want, e.stored) {
		limited, cancel := context.WithTimeout(ctx, timeout)
		_, err := e.store.Commit(limited, change)
		cancel()
		if err != nil {
			return fmt.Errorf("write the status of %d endpoints: %w", len(change.Puts)+len(change.Deletes), err)
		}
		for _, key := range change.Deletes {
			delete(e.stored, key.Path())
		}
		for _, put := range change.Puts {
			e.stored[put.Key.Path()] = want[put.Key.Path()].status
		}
	}
	return nil
}

// read reads what etcd holds, if unknown.
func (e *endpoints) read(ctx context.Context) error {
	if e.stored != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	snapshot, err := e.store.Read(ctx, model.PrefixRange(model.StatusPrefix(e.host)))
	if err != nil {
		return fmt.Errorf("read the status of endpoints: %w", err)
	}
	e.stored = map[string]model.EndpointStatus{}
	for _, entry := range snapshot.Entries() {
		switch entry.Key.(type) {
		case model.WorkloadStatusKey, model.HostEndpointStatusKey:
			if entry.Path == entry.Key.Path() {
				status, _ := entry.Value.(model.EndpointStatus)
				e.stored[entry.Path] = status // "" if it doesn't parse
			}
		}
	}
	return nil
}

// changes returns the writes that turn stored into want.
func changes(want map[string]endpoint, stored map[string]model.EndpointStatus) []model.Change {
	var changes []model.Change
	var c model.Change
	next := func() {
		if len(c.Puts)+len(c.Deletes) == batch {
			changes = append(changes, c)
			c = model.Change{}
		}
	}
	var puts, deletes []string // usually few of all: only these are sorted
	for path, e := range want {
		if stored[path] != e.status {
			puts = append(puts, path)
		}
	}
	for path := range stored {
		if _, stays := want[path]; !stays {
			deletes = append(deletes, path)
		}
	}
	slices.Sort(puts)
	slices.Sort(deletes)
	for _, path := range puts {
		c.Puts = append(c.Puts, model.Put{Key: want[path].key, Value: want[path].status})
		next()
	}
	for _, path := range deletes {
		if key, err := model.ParseKey(path); err == nil {
			c.Deletes = append(c.Deletes, key)
			next()
		}
	}
	if !c.Empty() {
		changes = append(changes, c)
	}
	return changes
}
