// SPDX-License-Identifier: Apache-2.0

package classicd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/classic/source"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/pkg/zmq"
)

// PluginConfig configures the plugin.
type PluginConfig struct {
	Store  store.Config
	Hosts  map[string]string // their addresses, by name
	Prefix string            // of endpoints' interfaces
	Bind   string
	Timing classic.PluginTiming
}

// pluginOptions returns the options that set c.
func pluginOptions(c *PluginConfig) []run.Option {
	return slices.Concat([]run.Option{
		{Flag: "hosts", Variable: "CALICO_CLASSIC_HOSTS", Help: "comma list of the hosts whose workload endpoints in etcd are told to their Felixes, by the names that these have, or <name>=<address> where the name doesn't resolve; required", Set: func(s string) error {
			c.Hosts = map[string]string{}
			for h := range strings.SplitSeq(s, ",") {
				name, address, given := strings.Cut(strings.TrimSpace(h), "=")
				if !given {
					address = name
				}
				if err := cmp.Or(model.CheckHost(name), checkPeer(address)); err != nil {
					return err
				}
				c.Hosts[name] = address
			}
			return nil
		}},
		{Flag: "interface-prefix", Variable: "CALICO_CLASSIC_INTERFACE_PREFIX", Initial: "tap", Help: "what the names of endpoints' interfaces begin with; other endpoints are not told", Set: func(s string) error {
			if c.Prefix = strings.TrimSpace(s); c.Prefix == "" || len(c.Prefix) > 14 {
				return fmt.Errorf("%q: want 1 to 14 characters", s)
			}
			return nil
		}},
		every("heartbeat-interval", "30s", "after which a Felix that was told nothing is asked for a sign of life", &c.Timing.Heartbeat),
		every("network-heartbeat-interval", "30s", "between two signs of life to the ACL manager", &c.Timing.NetworkHeartbeat),
		every("reply-timeout", "10s", "after which a Felix that doesn't answer is told nothing until it asks", &c.Timing.Late),
	}, common(&c.Bind), run.Etcd(&c.Store))
}

// refusedTimeout is when the log says that nothing listens at etcd's address.
const refusedTimeout = 3 * time.Second

// plugin passes the contents of etcd on to Felixes and the ACL manager, until the context ends.
func plugin(ctx context.Context, cfg PluginConfig, env run.Env) error {
	r := newRole(env, cfg.Bind)
	const resyncs, asked, published = "endpoint API, of the Felixes (port 9901)", "network API, of the ACL manager (port 9903)", "network API, publications (port 9904)"
	var listeners [3]net.Listener
	for i, name := range [...]string{resyncs, asked, published} {
		var err error
		if listeners[i], err = r.listen(name, [...]int{portPlugin, portGroups, portGroupNews}[i]); err != nil {
			return err
		}
	}
	cfg.Store.Logger, cfg.Store.RefusedTimeout = env.Logger, refusedTimeout
	client, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return fmt.Errorf("etcd (ETCD_ENDPOINTS and its like): %w", err)
	}
	defer func() { _ = client.Close() }() // the process is ending
	env.Health.Reads(client)
	s := source.New(slices.Collect(maps.Keys(cfg.Hosts)), cfg.Prefix)
	p := classic.NewPlugin(classic.PluginConfig{Prefix: cfg.Prefix, Serves: s.Serves, Timing: cfg.Timing})
	t := &teller{role: r, source: s, plugin: p, addresses: cfg.Hosts, hosts: map[string]host{}, groups: r.publisher(published, p.Subscribed)}
	if err := env.Serve(); err != nil {
		return err
	}
	return together(ctx, env.Pages.Run, func(ctx context.Context) error { return r.requests(resyncs, p.Request).Serve(ctx, listeners[0]) }, func(ctx context.Context) error {
		return r.requests(asked, p.NetworkRequest).Serve(ctx, listeners[1])
	}, func(ctx context.Context) error { return t.groups.Serve(ctx, listeners[2]) }, func(ctx context.Context) error { return t.watch(ctx, client) }, func(ctx context.Context) error {
		defer t.connected.Wait()
		return r.run(ctx, p, func(a classic.Action) { t.act(ctx, a) }, t.tell)
	})
}

// teller passes the contents of etcd on to the plugin, and carries out the plugin's actions.
type teller struct {
	role      *role
	source    *source.Source
	plugin    *classic.Plugin
	groups    *zmq.Publisher
	changed   time.Time        // first change in etcd since the plugin was told; zero = none
	untold    map[string]error // what of it can't be passed on, by subject
	addresses map[string]string
	hosts     map[string]host // the connections to hosts that asked for their endpoints
	connected sync.WaitGroup
}

// host is the connection to a Felix.
type host struct {
	*zmq.Requester
	end context.CancelFunc
}

func (t *teller) watch(ctx context.Context, client *store.Client) error {
	err := client.Watch(ctx, source.Prefixes(), func(u model.Update) error {
		t.role.happened(func(now time.Time) []classic.Action {
			t.source.Take(u)
			if t.changed.IsZero() {
				t.changed = now
			}
			return nil
		})
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// tellWithin bounds the delay until the plugin gets etcd's changes, whatever other events wait.
const tellWithin = time.Second

// tell passes the contents of etcd to the plugin if they changed, once no other event waits or tellWithin is over: many changes go at once.
func (t *teller) tell(now time.Time) []classic.Action {
	t.role.health.Turn()
	if t.changed.IsZero() || len(t.role.events) > 0 && now.Sub(t.changed) < tellWithin {
		return nil
	}
	t.changed = time.Time{}
	t.role.health.SetUnready("")
	w, untold := t.source.World()
	for about := range t.untold {
		if untold[about] == nil {
			t.role.list(about, nil)
		}
	}
	for about, err := range untold {
		t.role.list(about, err)
	}
	t.untold = untold
	return t.plugin.Set(now, w)
}

func (t *teller) act(ctx context.Context, a classic.Action) {
	switch a := a.(type) {
	case classic.Ask:
		t.hosts[a.Peer].Ask(a.Body)
	case classic.Connect:
		t.disconnect(a.Host)
		t.connect(ctx, a.Host)
	case classic.Disconnect:
		t.disconnect(a.Host)
		t.role.list("host "+a.Host, errors.New("it didn't answer, and is told nothing until it asks for its endpoints"))
	case classic.Publish:
		t.role.publish(t.groups, a)
	}
}

func (t *teller) connect(ctx context.Context, name string) {
	ctx, end := context.WithCancel(ctx)
	peer := t.role.peer("endpoint API, to host "+name, t.addresses[name], portFelix, func(err error) {
		if ctx.Err() == nil {
			t.role.list("host "+name, err)
		}
	})
	q := t.role.requester(peer, func(now time.Time, body []byte) []classic.Action { return t.plugin.HostReply(now, name, body) })
	t.hosts[name] = host{q, end}
	t.connected.Go(func() { _ = q.Run(ctx) }) // it ends with the context alone
}

func (t *teller) disconnect(name string) {
	if h, is := t.hosts[name]; is {
		h.Forget() // a reply that is queued answers an earlier connection's request
		h.end()
		delete(t.hosts, name)
	}
}
