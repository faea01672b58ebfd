// SPDX-License-Identifier: Apache-2.0

package classicd

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/calico-go/calico/pkg/agent"
	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/zmq"
)

// FelixConfig configures Felix.
type FelixConfig struct {
	Agent           agent.Config
	Plugin, Manager string // their hosts
	Bind            string
	Strict, DHCP    bool
	Timing          classic.FelixTiming
}

// felixOptions returns the options that set c; hostname is the operating system's.
func felixOptions(c *FelixConfig, hostname string) []run.Option {
	return slices.Concat([]run.Option{
		{Flag: "hostname", Variable: "NODENAME", Help: "name by which the plugin knows this host, and which it connects to; default: the operating system's, lower case", Set: func(s string) error { return c.Agent.SetNode(s, hostname) }},
		hostOption("plugin", "CALICO_CLASSIC_PLUGIN", "host of the plugin, which serves ports 9901 and connects to 9902 here; required", &c.Plugin),
		hostOption("acl-manager", "CALICO_CLASSIC_ACL_MANAGER", "host of the ACL manager, which serves ports 9905 and 9906; required", &c.Manager),
		{Flag: "strict-interfaces", Variable: "CALICO_CLASSIC_STRICT_INTERFACES", Initial: "false", Help: "true answers ENDPOINTCREATED by ENOINTERFACE where the interface is missing or down, and false waits for it", Set: run.Bool(&c.Strict)},
		{Flag: "dhcp", Variable: "CALICO_CLASSIC_DHCP", Initial: "true", Help: "false has machines served by somebody else's DHCP", Set: run.Bool(&c.DHCP)},
		every("heartbeat-interval", "5s", "after which a peer that was asked nothing is asked for a sign of life", &c.Timing.Heartbeat),
		every("connection-timeout", "40s", "of silence after which a connection is lost, and a resynchronisation without progress is given up", &c.Timing.Lost),
		every("resync-interval", "30m", "after a resynchronisation, all is asked for again", &c.Timing.Resync),
		every("resync-retry-interval", "5s", "after an answer to RESYNCSTATE that was no success, it is sent again", &c.Timing.Retry),
		every("acl-retry-interval", "2s", "after which ACLs that did not come are asked for again", &c.Timing.Ask),
		every("interface-retry-interval", "500ms", "after which an interface that could not be programmed is tried again", &c.Agent.InterfaceRetry),
	}, common(&c.Bind), agent.HostOptions(&c.Agent))
}

// felix runs the agent of a host whose endpoints and ACLs come over ZeroMQ, until the context ends; what is programmed stays.
func felix(ctx context.Context, cfg FelixConfig, env run.Env) error {
	return agent.RunFrom(ctx, cfg.Agent, env, agent.Source{Name: "the plugin", Start: func(parts agent.Parts) (func(context.Context) error, error) {
		return startFelix(cfg, parts)
	}})
}

func startFelix(cfg FelixConfig, parts agent.Parts) (func(context.Context) error, error) {
	saved := saved(filepath.Join(cfg.Agent.VarDir, "classic"))
	config := classic.FelixConfig{Hostname: cfg.Agent.Node, NewID: uuid.NewString, DHCP: cfg.DHCP, Timing: cfg.Timing}
	if cfg.Strict {
		config.Present = func(name string) bool {
			l, err := link.Find(name)
			return err == nil && l.Up
		}
	}
	var err error
	if config.Saved, err = saved.read(); err != nil {
		return nil, err
	}
	r := newRole(parts.Env, cfg.Bind)
	const told = "endpoint API, from the plugin (port 9902)"
	l, err := r.listen(told, portFelix)
	if err != nil {
		return nil, err
	}
	f := classic.NewFelix(config)
	plugin := r.asks("endpoint API, to the plugin", cfg.Plugin, portPlugin, f.PluginReply)
	acl := r.asks("ACL API, to the ACL manager", cfg.Manager, portACLs, f.ACLReply)
	acls := r.subscriber("ACL API, publications of the ACL manager", cfg.Manager, portPublication, f.Subscribed, f.Published)
	parts.Health.Away = func() string {
		return cmp.Or(parts.Problems.Of(listed, classic.AboutResync).Reason, "no answer to RESYNCSTATE yet")
	}
	return func(ctx context.Context) error {
		return together(ctx, plugin.Run, acl.Run, acls.Run, func(ctx context.Context) error { return r.requests(told, f.Request).Serve(ctx, l) }, func(ctx context.Context) error {
			return r.run(ctx, f, func(a classic.Action) {
				switch a := a.(type) {
				case classic.Ask:
					map[string]*zmq.Requester{classic.PeerPlugin: plugin, classic.PeerACL: acl}[a.Peer].Ask(a.Body)
				case classic.Subscribe:
					acls.Subscribe(a.Topic)
				case classic.Unsubscribe:
					acls.Unsubscribe(a.Topic)
				case classic.Reconnect:
					if a.Peer == classic.PeerPlugin {
						plugin.Forget()
					} else {
						acl.Forget()
						acls.Reconnect()
					}
				case classic.Save:
					r.list("what is kept for the next run", saved.write(a.Name, a.Data))
				case classic.Apply:
					parts.Update(ctx, a.Update)
				}
			}, func(time.Time) []classic.Action { return nil }) // the agent's loop shows that the program is alive
		})
	}, nil
}
