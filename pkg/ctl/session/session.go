// SPDX-License-Identifier: Apache-2.0

// Package session holds what all commands of calicoctl share: the standard streams, the configuration, the connection to
// etcd, and the exit statuses.
package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// refusedTimeout is how long a command waits if nothing listens at etcd's endpoints.
const refusedTimeout = 2 * time.Second

// Env is the environment of a command.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string // as os.Environ
	Version        string
	// After is time.After for progress reports; nil = none.
	After func(time.Duration) <-chan time.Time
	// DryRun is --dry-run of the commands that have it: they say what they would do, and change nothing.
	DryRun bool
	// TakeOver is --take-over of the commands that write resources: they write also what an object of the Kubernetes API makes.
	TakeOver bool

	configFile string
	etcd       map[string]*string // flags that say where etcd is
	timeout    time.Duration
	client     *store.Client

	mu    sync.Mutex
	doing string // the last text of Progress
}

// AddFlags adds the flags that say where etcd is to a command and its subcommands.
func (e *Env) AddFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&e.configFile, "config", "c", "", "file of the kind CalicoAPIConfig (default "+DefaultConfigFile+", if it is there)")
	f.DurationVar(&e.timeout, "timeout", 10*time.Second, "how long a request to etcd may take")
	e.etcd = map[string]*string{}
	for _, o := range run.Etcd(new(store.Config)) {
		e.etcd[o.Flag] = f.String(o.Flag, "", o.Help)
	}
	f.Bool("allow-version-mismatch", false, "without effect: no version is refused")
}

// Store returns the client of etcd, which the first call makes. The first request finds out whether etcd is there.
func (e *Env) Store(ctx context.Context) (*store.Client, error) {
	if e.client != nil {
		return e.client, nil
	}
	cfg, err := e.storeConfig()
	if err != nil {
		return nil, err
	}
	client, err := store.Open(ctx, cfg)
	if err != nil {
		return nil, Usagef("%w", err)
	}
	e.client = client
	e.Progress("waiting for etcd at %s", cmp.Or(strings.Join(cfg.Endpoints, ", "), cfg.DiscoverySRV))
	return client, nil
}

// Members returns a client for each of etcd's endpoints, and the files of the certificates that they use. The caller closes the
// clients.
func (e *Env) Members(ctx context.Context) (members map[string]*store.Client, certificates []string, err error) {
	cfg, err := e.storeConfig()
	if err != nil {
		return nil, nil, err
	}
	for _, file := range []string{cfg.CAFile, cfg.CertFile} {
		if file != "" {
			certificates = append(certificates, file)
		}
	}
	members = map[string]*store.Client{}
	for _, endpoint := range cfg.Endpoints {
		one := cfg
		one.Endpoints = []string{endpoint}
		client, err := store.Open(ctx, one)
		if err != nil {
			return members, certificates, Usagef("%w", err)
		}
		members[endpoint] = client
	}
	return members, certificates, nil
}

// Read reads ranges of etcd at one revision.
func (e *Env) Read(ctx context.Context, ranges ...model.Range) (model.Snapshot, error) {
	s, err := e.Store(ctx)
	if err != nil {
		return model.Snapshot{}, err
	}
	ctx, cancel := e.Bound(ctx)
	defer cancel()
	snapshot, err := s.Read(ctx, ranges...)
	if err != nil {
		return snapshot, fmt.Errorf("read what etcd holds: %w", err)
	}
	return snapshot, nil
}

// Transact runs a transaction of the store. With --dry-run it decides, and changes nothing.
func (e *Env) Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error)) error {
	s, err := e.Store(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := e.Bound(ctx)
	defer cancel()
	var opts []store.TransactOption
	if e.DryRun {
		opts = append(opts, store.DryRun(new([]model.Change)))
	}
	_, err = s.Transact(ctx, wants, decide, opts...)
	return err
}

// DryRunNote returns what ends a line about something that --dry-run doesn't do.
func (e *Env) DryRunNote() string {
	if e.DryRun {
		return " (dry run)"
	}
	return ""
}

// Bound limits one request to etcd to --timeout.
func (e *Env) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, e.timeout)
}

// Close closes the connection to etcd.
func (e *Env) Close() {
	if e.client != nil {
		_ = e.client.Close() // all requests have been answered
		e.client = nil
	}
}

// silence is how long a command may take before it reports its progress, and the time between two reports.
const silence = 2 * time.Second

// Progress sets the text of progress reports, "" = none.
func (e *Env) Progress(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doing = fmt.Sprintf(format, args...)
}

// answer is standard output. Once a command writes there its progress is no longer reported: it may be waiting for a pager.
type answer struct {
	env *Env
	io.Writer
}

func (a answer) Write(text []byte) (int, error) {
	a.env.Progress("")
	return a.Writer.Write(text)
}

// ReportProgress reports the command's progress on stderr every two seconds. It ends when stop is called, and pauses once the command
// has written to Stdout, until the next Progress.
func (e *Env) ReportProgress() (stop func()) {
	if e.After == nil {
		return func() {}
	}
	e.Stdout = answer{e, e.Stdout}
	stderr, done, ended := e.Stderr, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-e.After(silence):
			}
			e.mu.Lock()
			if e.doing != "" {
				fmt.Fprintln(stderr, "calicoctl:", e.doing)
			}
			e.mu.Unlock()
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// Getenv returns the value of a variable of Environ, "" = not set; the last one counts.
func (e *Env) Getenv(name string) string {
	for _, entry := range slices.Backward(e.Environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// SetConfigFile names the configuration file, as --config does.
func (e *Env) SetConfigFile(path string) { e.configFile = path }
