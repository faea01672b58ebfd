// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/etcd"
)

// person is a host's identity with its surroundings in an agent, except for the kernel: the test sets its links.
type person struct {
	testing.TB
	name     string
	id       *Host
	report   *status.Reporter
	health   *health.Monitor
	problems *problems.Ledger
	poke     mailbox.Signal

	mu    sync.Mutex
	links plan.Links
	state plan.State

	stop func()
	over chan struct{} // closed when the identity has ended
}

// ended reports whether the identity has ended.
func (p *person) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// fleet is an etcd with any number of persons.
type fleet struct {
	*etcd.Server
	disk string // of all persons: one that starts again knows the lease that it had
}

// newFleet starts an etcd with pools.
func newFleet(t *testing.T, pools ...model.Pool) fleet {
	t.Helper()
	c := fleet{etcd.New(t), t.TempDir()}
	for _, p := range pools {
		c.Put(model.PoolKey{CIDR: p.CIDR}, p)
	}
	c.Put(model.ReadyKey{}, model.Ready(true))
	return c
}

// eth0 returns the links of a host that has just this one.
func eth0(addrs ...string) plan.Links {
	l := plan.Link{Name: "eth0", Up: true, MTU: 1500, Uplink: true}
	for _, a := range addrs {
		l.Addrs = append(l.Addrs, netip.MustParsePrefix(a))
	}
	return plan.Links{Links: []plan.Link{l}}
}

// person starts a person; change may alter its Config.
func (c fleet) person(name string, links plan.Links, change func(*Config, *Host)) *person {
	c.Helper()
	cfg := Config{Node: name, Logger: slog.New(slog.NewTextHandler(c.Output(), nil)).With("host", name)}
	if change != nil {
		change(&cfg, nil)
	}
	client, err := store.Open(c.Context(), store.Config{Endpoints: []string{"http://" + c.Addr()}, RefusedTimeout: time.Second})
	if err != nil {
		c.Fatal(err)
	}
	health := health.New("calico-test")
	health.SetUnready("")
	ledger := problems.New(cfg.Logger)
	report := status.New(status.Config{Node: name, VarDir: filepath.Join(c.disk, name), Place: "here", Logger: cfg.Logger, Health: health, Problems: ledger}, client)
	cfg.Naming, cfg.Health, cfg.Problems = report.Naming, health, ledger
	p := &person{
		TB: c, name: name, poke: mailbox.NewSignal(), links: links, over: make(chan struct{}),
		report: report, health: health, problems: ledger,
	}
	p.id = New(cfg, client)
	if change != nil {
		change(&cfg, p.id)
	}
	report.Configure(status.Settings{Interval: 30 * time.Second, TTL: 90 * time.Second})
	report.FirstUpdate()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	watched := append([]string{model.BGPPrefix(), model.BlockPrefix(false), model.BlockPrefix(true), model.StatusPrefix("")}, model.ReadyKey{}.Path(), model.ConfigPrefix(), model.HostPrefix(""), model.PolicyPrefix(), model.PoolPrefix())
	updates := make(chan model.Update)
	for _, run := range []func(context.Context) error{
		report.Run,
		func(ctx context.Context) error {
			defer close(p.over)
			return p.id.Run(ctx)
		},
		func(ctx context.Context) error { return p.route(ctx, updates) },
		func(ctx context.Context) error {
			return client.Watch(ctx, watched, func(u model.Update) error {
				select {
				case updates <- u:
				case <-ctx.Done():
				}
				return nil
			})
		},
	} {
		work.Go(func() {
			if err := run(ctx); err != nil {
				c.Errorf("%s: %v", name, err)
			}
		})
	}
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			work.Wait()
			_ = client.Close()
		})
	}
	c.Cleanup(p.stop)
	return p
}

// route does the part of the router's work that the identity needs.
func (p *person) route(ctx context.Context, updates <-chan model.Update) error {
	planner, ready, revision := plan.NewPlanner(p.name, plan.Settings{}), false, int64(0)
	for {
		var due <-chan time.Time
		if next := planner.Next(); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case u := <-updates:
			p.report.Update(u)
			p.id.Update(u)
			planner.Take(u, time.Now())
			revision, ready = u.Revision, ready && !u.Resync
			for _, e := range u.Entries {
				if _, ok := e.Key.(model.ReadyKey); ok {
					ready = e.Value == model.Ready(true)
				}
			}
		case <-due:
		case <-p.poke:
		case <-p.id.Found():
		}
		p.mu.Lock()
		if !ready {
			p.mu.Unlock()
			continue
		}
		planner.SetLinks(p.links)
		p.state.Apply(planner.Plan(time.Now()))
		p.id.Want(board.HostView{
			Revision: revision, Links: p.links, Conflict: planner.Conflict,
			Devices: planner.Devices(),
		})
		p.mu.Unlock()
	}
}

// move gives the host other links.
func (p *person) move(links plan.Links) {
	p.mu.Lock()
	p.links = links
	p.mu.Unlock()
	p.poke.Send()
}

// tunnel returns the plan's tunnel of a kind, nil for none.
func (p *person) tunnel(kind plan.TunnelKind) *plan.Tunnel {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.state.Tunnels {
		if t.Kind == kind {
			return &t
		}
	}
	return nil
}

// problem returns the reason among the problems, "" = none.
func (p *person) problem(path string) string {
	for _, o := range p.problems.All() {
		if o.Path == path {
			return o.Reason
		}
	}
	return ""
}

// revisions returns the revisions of what is written about the host, by path.
func (c fleet) revisions(name string) map[string]int64 {
	c.Helper()
	s, err := c.Store.Read(context.Background(), model.PrefixRange(model.BGPPrefix()+"host/"+name+"/"), model.PrefixRange(model.HostPrefix(name)+"config/"))
	if err != nil {
		c.Fatal(err)
	}
	all := map[string]int64{}
	for _, e := range s.Entries() {
		all[e.Path] = e.Revision
	}
	return all
}

// named reports whether the name is the host's own, as far as it knows.
func (p *person) named() bool { return p.report.Naming.Get() == "" }

// unready says why the agent can't serve, "" = it can. There is no main loop here that could be stuck.
func (p *person) unready() string {
	p.health.Turn()
	return p.health.Unready()
}
