// SPDX-License-Identifier: Apache-2.0

package classicd

import (
	"context"

	"github.com/calico-go/calico/pkg/daemon/run"
)

const usage = `usage: calico-classic felix | acl-manager | plugin [flags]; -help after one of them lists its flags
`

// Verbs returns calico-classic, whose first argument is a role. hostname is the operating system's.
func Verbs(version, hostname string, environ []string) run.Verbs {
	f, m, p := new(FelixConfig), new(ManagerConfig), new(PluginConfig)
	v := run.Verbs{Name: "calico-classic", Version: version, Usage: usage, Do: map[string]func([]string) int{}}
	for role, d := range map[string]run.Daemon{
		// Felix is an agent: its parameters configure health, metrics and the log.
		"felix": {Prefix: "calico_node", Options: felixOptions(f, hostname), Run: func(ctx context.Context, env run.Env) error { return felix(ctx, *f, env) }},
		"acl-manager": {
			Prefix: "calico_classic", Options: managerOptions(m), Health: "127.0.0.1:9096", Metrics: "127.0.0.1:9093",
			Run: func(ctx context.Context, env run.Env) error { return manager(ctx, *m, env) },
		},
		"plugin": {
			Prefix: "calico_classic", Options: pluginOptions(p), Health: "127.0.0.1:9097", Metrics: "127.0.0.1:9092",
			Run: func(ctx context.Context, env run.Env) error { return plugin(ctx, *p, env) },
		},
	} {
		d.Name = v.Name + " " + role
		v.Do[role] = func(args []string) int { return d.Main(version, args, environ) }
	}
	return v
}
