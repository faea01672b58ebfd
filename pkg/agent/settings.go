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
	before := l.params
	l.params = l.adoption.Adopt(l.state.settings, l.state.unreadSettings())
	if !before.MTULiveUpdate && l.params.MTULiveUpdate {
		l.measure() // it may have shrunk before
	}
	l.report.Configure(l.params)
	l.serving.Configure(l.params.Health, l.params.Metrics)
}

// unreadSettings are the settings in etcd that cannot be read, by path.
func (s *state) unreadSettings() map[string]params.Unread {
	unread := map[string]params.Unread{}
	for path, o := range s.objects {
		if !params.IsSetting(o.key) || !s.concerns(o.key) {
			continue
		}
		if u, bad := params.UnreadOf(o.key, path, o.invalid); bad {
			unread[path] = u
		}
	}
	return unread
}
