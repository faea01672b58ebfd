// SPDX-License-Identifier: Apache-2.0

package classicd

import (
	"context"
	"slices"

	"github.com/calico-go/calico/pkg/classic"
	"github.com/calico-go/calico/pkg/daemon/run"
)

// ManagerConfig configures the ACL manager.
type ManagerConfig struct {
	Plugin string // its host
	Bind   string
	Timing classic.ManagerTiming
}

// managerOptions returns the options that set c.
func managerOptions(c *ManagerConfig) []run.Option {
	return slices.Concat([]run.Option{
		hostOption("plugin", "CALICO_CLASSIC_PLUGIN", "host of the plugin, which serves ports 9903 and 9904; required", &c.Plugin),
		every("acl-heartbeat-interval", "30s", "between two signs of life to the Felixes", &c.Timing.Heartbeat),
		every("connection-timeout", "65s", "of silence after which the connection to the plugin is lost", &c.Timing.Lost),
	}, common(&c.Bind))
}

// manager derives ACLs from the security groups that the plugin publishes, until the context ends.
func manager(ctx context.Context, cfg ManagerConfig, env run.Env) error {
	r := newRole(env, cfg.Bind)
	const asked, published = "ACL API, of the Felixes (port 9905)", "ACL API, publications (port 9906)"
	requests, err := r.listen(asked, portACLs)
	if err != nil {
		return err
	}
	publications, err := r.listen(published, portPublication)
	if err != nil {
		return err
	}
	m := classic.NewManager(cfg.Timing)
	plugin := r.asks("network API, to the plugin", cfg.Plugin, portGroups, m.PluginReply)
	groups := r.subscriber("network API, publications of the plugin", cfg.Plugin, portGroupNews, m.Connected, m.Published)
	acls := r.publisher(published, m.Subscribed)
	r.health.SetUnready("") // except for its peers
	if err := env.Serve(); err != nil {
		return err
	}
	return together(ctx, env.Pages.Run, plugin.Run, groups.Run, func(ctx context.Context) error { return acls.Serve(ctx, publications) }, func(ctx context.Context) error {
		return r.requests(asked, m.Request).Serve(ctx, requests)
	}, func(ctx context.Context) error {
		return r.run(ctx, m, func(a classic.Action) {
			switch a := a.(type) {
			case classic.Ask:
				plugin.Ask(a.Body)
			case classic.Subscribe:
				groups.Subscribe(a.Topic)
			case classic.Reconnect:
				plugin.Forget()
				groups.Reconnect()
			case classic.Publish:
				r.publish(acls, a)
			}
		}, r.lives)
	})
}
