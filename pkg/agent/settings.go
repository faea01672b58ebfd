// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"

	"github.com/calico-go/calico/pkg/agent/conflist"
	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/router"
	"github.com/calico-go/calico/pkg/agent/status"
	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/kernel/hostnet"
)

// settings returns the sources of parameters other than etcd.
func (c Config) settings(env run.Env) params.Sources {
	return params.Sources{
		Node: c.Node, ConfigFile: c.ConfigFile, File: c.file, Felix: c.felix, Health: c.Health, Metrics: c.Metrics,
		Logger: env.Logger, Level: env.Level, LogFile: env.LogFile.Set, Roles: hostnet.Roles,
	}
}

// conflist returns the settings of the runtime's network configuration. The plugins reach etcd as the agent does, unless they have files of
// their own.
func (c Config) conflist() conflist.Config {
	out, own := c.CNI, c.Store
	out.CAFile, out.CertFile, out.KeyFile = cmp.Or(out.CAFile, own.CAFile), cmp.Or(out.CertFile, own.CertFile), cmp.Or(out.KeyFile, own.KeyFile)
	out.VarDir = c.VarDir
	return out
}

// adopt applies the settings, except those whose change the loop must act on itself.
func (l *loop) adopt() {
	l.params = l.adoption.Adopt(l.etcd.settings, l.etcd.unreadSettings())
	l.mtu.Enable(l.params.MTULiveUpdate)
	l.report.Configure(status.Settings{
		Interval: l.params.ReportInterval, TTL: l.params.ReportTTL, Endpoints: l.params.ReportEndpoints, Delay: l.params.ReportDelay,
	})
	l.serving.Configure(l.params.Health, l.params.Metrics)
}

// routerSettings returns the parameters that concern the router.
func routerSettings(p params.Params) router.Settings {
	return router.Settings{Prefixes: p.InterfacePrefixes, Refresh: p.RefreshInterval, Routing: p.Routing()}
}
