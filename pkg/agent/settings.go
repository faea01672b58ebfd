// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/agent/problems"
	"github.com/calico-go/calico/pkg/model"
)

// settings are what etcd says about the agent itself, by name.
type settings struct {
	global, local map[string]string
}

// takeText keeps a setting. One whose key isn't spelled right counts as not set: it
// would stand beside the one that is. One that cannot be read is told by unreadSettings.
func takeText(m map[string]string, name string, entry model.Entry) {
	if entry.Path != entry.Key.Path() {
		return
	}
	if text, ok := entry.Value.(model.Text); ok {
		m[name] = string(text)
		return
	}
	delete(m, name)
}

// The layers of settings in the order in which they win.
const (
	layerFlag = iota
	layerEnviron
	layerFile
	layerHost
	layerGlobal
	layerCount
)

// layers are the settings of the process, and those in etcd, s.
func (c Config) layers(s settings) []map[string]string {
	all := make([]map[string]string, layerCount)
	all[layerFlag] = c.flagLayer()
	all[layerEnviron] = c.Felix
	all[layerFile] = c.file
	all[layerHost] = s.local
	all[layerGlobal] = s.global
	return all
}

// flagLayer are the flags that say what parameters say.
func (c Config) flagLayer() map[string]string {
	layer := map[string]string{}
	for _, f := range []struct{ name, address string }{{"Health", c.Health}, {"PrometheusMetrics", c.Metrics}} {
		switch f.address {
		case "":
		case "0":
			layer[f.name+"Enabled"] = "false"
		default:
			host, port, _ := net.SplitHostPort(f.address) // params.ParseListen has looked
			layer[f.name+"Enabled"], layer[f.name+"Host"], layer[f.name+"Port"] = "true", host, port
		}
	}
	return layer
}

// source names where a value comes from, for people.
func (c Config) source(from params.Choice) string {
	if from.Bad {
		return "default"
	}
	return c.layerName(from.Layer)
}

// layerName names a layer, for people.
func (c Config) layerName(layer int) string {
	switch layer {
	case layerFlag:
		return "flag"
	case layerEnviron:
		return "environment"
	case layerFile:
		return c.ConfigFile
	case layerHost:
		return model.HostPrefix(c.Node) + "config/"
	case layerGlobal:
		return model.ConfigPrefix()
	}
	return "default"
}

// settingPath is what a setting is called in reports.
func (c Config) settingPath(layer int, given string) string {
	switch layer {
	case layerFlag:
		return "flag " + given
	case layerEnviron:
		return "FELIX_" + given
	case layerFile:
		return c.ConfigFile + ": " + given
	case layerHost:
		return model.HostConfigKey{Host: c.Node, Name: given}.Path()
	}
	return model.GlobalConfigKey{Name: given}.Path()
}

// adoption takes settings into use and says what it did, each thing once.
type adoption struct {
	cfg      Config
	problems *problems.Ledger
	last     params.Resolution
	wrong    map[string]struct{} // paths reported
	told     map[string]struct{} // said of settings that are not used
	prefixes *judge
	listens  *judge
}

func newAdoption(cfg Config, p *problems.Ledger) *adoption {
	return &adoption{cfg: cfg, problems: p, last: params.Resolve(), wrong: map[string]struct{}{}, told: map[string]struct{}{}, prefixes: newPrefixJudge(), listens: newListenJudge()}
}

// adopt works the parameters out, with what is in etcd, and says what is new.
// unread are settings in etcd that cannot be read, by path.
func (a *adoption) adopt(s settings, unread map[string]unreadSetting) params.Params {
	layers := a.cfg.layers(s)
	r := a.resolver(layers, unread).Resolve()
	a.prefixes.rest()
	a.listens.rest()
	a.reportWrong(r, unread)
	a.sayChanges(r)
	a.sayUnused(r, layers)
	a.last = r
	err := a.cfg.LogFile.set(r.Params.LogFile, r.Params.LogFileLevel)
	a.problems.ReportSetting("LogFilePath", err, "no log file")
	return r.Params
}

// refuse says why a value that parses can't be used on this host.
func (a *adoption) refuse(name string, p *params.Params) error {
	return cmp.Or(a.prefixes.refuse(name, p), a.listens.refuse(name, p))
}

// review looks whether the host is another by now than those values were judged by.
func (a *adoption) review() bool {
	prefixes, listens := a.prefixes.review(), a.listens.review()
	return prefixes || listens
}

// resolver works out of the layers. A value in etcd that cannot be read is there
// all the same, and a bad one.
func (a *adoption) resolver(layers []map[string]string, unread map[string]unreadSetting) params.Resolver {
	x := params.Resolver{Layers: slices.Clone(layers), Unread: map[params.UnreadValue]error{}, Refuse: a.refuse}
	for _, u := range unread {
		if u.name == "" {
			continue
		}
		layer := maps.Clone(x.Layers[u.layer])
		layer[u.name] = ""
		x.Layers[u.layer] = layer
		x.Unread[params.UnreadValue{Layer: u.layer, Given: u.name}] = u.err
	}
	return x
}

// adopt takes the settings into use, all but those whose change the loop has to
// act on itself.
func (l *loop) adopt() {
	before := l.params
	l.params = l.adoption.adopt(l.state.settings, l.state.unreadSettings())
	if !before.MTULiveUpdate && l.params.MTULiveUpdate {
		l.measure() // it may have shrunk before
	}
	l.level.Set(l.params.LogLevel)
	l.report.Configure(l.params)
	l.serving.Configure(l.params)
}

// paramNames finds a parameter by any of its names, in lower case.
func paramNames() map[string]string {
	names := map[string]string{}
	for _, p := range params.Table() {
		for _, n := range p.Names() {
			names[strings.ToLower(n)] = p.Name
		}
	}
	return names
}

// isSetting reports whether a key is one of the agent's settings.
func isSetting(key model.Key) bool {
	switch key.(type) {
	case model.GlobalConfigKey, model.HostConfigKey:
		return true
	}
	return false
}

var errSpelling = errors.New("the key isn't spelled as it should be")

// unreadSetting is a setting in etcd that cannot be read.
type unreadSetting struct {
	layer int
	name  string // "" = it counts as not set, as the key isn't spelled right
	err   error
}

// unreadSettings are the settings in etcd that cannot be read, by path.
func (s *state) unreadSettings() map[string]unreadSetting {
	unread := map[string]unreadSetting{}
	for path, o := range s.objects {
		if !isSetting(o.key) || !s.concerns(o.key) {
			continue
		}
		u := unreadSetting{layer: layerGlobal, err: o.invalid}
		switch key := o.key.(type) {
		case model.GlobalConfigKey:
			u.name = key.Name
		case model.HostConfigKey:
			u.layer, u.name = layerHost, key.Name
		}
		if path != o.key.Path() {
			u.name = ""
			if u.err == nil {
				u.err = errSpelling
			}
		}
		if u.err != nil {
			unread[path] = u
		}
	}
	return unread
}
