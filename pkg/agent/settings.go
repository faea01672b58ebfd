// SPDX-License-Identifier: Apache-2.0

package agent

import "github.com/calico-go/calico/pkg/agent/params"

// settings are what is known of the parameters without etcd.
func (c Config) settings() params.Sources {
	return params.Sources{
		Node: c.Node, ConfigFile: c.ConfigFile, File: c.file, Felix: c.Felix, Health: c.Health, Metrics: c.Metrics,
		Logger: c.Logger, Level: c.Level, LogFile: c.LogFile.Set,
	}
}

// adopt takes the settings into use, all but those whose change the loop has to
// act on itself.
func (l *loop) adopt() {
	l.params = l.adoption.Adopt(l.etcd.settings, l.etcd.unreadSettings())
	l.mtu.Enable(l.params.MTULiveUpdate)
	l.report.Configure(l.params)
	l.serving.Configure(l.params.Health, l.params.Metrics)
}
