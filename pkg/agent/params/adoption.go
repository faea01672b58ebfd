// SPDX-License-Identifier: Apache-2.0

package params

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// Stored are the agent's settings in etcd, by name.
type Stored struct {
	Global, Local map[string]string
}

// Take keeps a setting. One whose key is misspelt counts as not set: it would compete with the right one. UnreadOf reports those that
// cannot be read.
func Take(m map[string]string, name string, entry model.Entry) {
	if entry.Path != entry.Key.Path() {
		return
	}
	if text, ok := entry.Value.(model.Text); ok {
		m[name] = string(text)
		return
	}
	delete(m, name)
}

// The layers of settings, strongest first.
const (
	layerFlag = iota
	layerEnviron
	layerFile
	layerHost
	layerGlobal
	layerCount
)

// Sources are where parameters come from other than etcd, and whom the adoption reports to.
type Sources struct {
	Node string // this host's name in the data model
	// ConfigFile is the file of parameters; File is its content, by name.
	ConfigFile string
	File       map[string]string
	// Felix are the parameters in the environment, by name without FELIX_.
	Felix map[string]string
	// Health and Metrics are the addresses, host:port, to serve these on, whatever the parameters say; "0" = off, "" = as the parameters
	// say.
	Health, Metrics string
	Logger          *slog.Logger
	// Level is the level of the log on the screen; nil = not set here.
	Level *slog.LevelVar
	// LogFile switches the log to another file, "" = none, and its level.
	LogFile func(path string, level slog.Level) error
	// Roles reads the host's links; nil = no value is refused because of them.
	Roles LinkRoles
}

// Layers returns the process's settings and those in etcd, s, as maps for Resolve, strongest first.
func (c Sources) Layers(s Stored) []map[string]string {
	all := make([]map[string]string, layerCount)
	all[layerFlag] = c.flagLayer()
	all[layerEnviron] = c.Felix
	all[layerFile] = c.File
	all[layerHost] = s.Local
	all[layerGlobal] = s.Global
	return all
}

// flagLayer returns the flags that stand for parameters.
func (c Sources) flagLayer() map[string]string {
	layer := map[string]string{}
	for _, f := range []struct{ name, address string }{{"Health", c.Health}, {"PrometheusMetrics", c.Metrics}} {
		switch f.address {
		case "":
		case "0":
			layer[f.name+"Enabled"] = "false"
		default:
			host, port, _ := net.SplitHostPort(f.address) // serving.ParseAddress has checked it
			layer[f.name+"Enabled"], layer[f.name+"Host"], layer[f.name+"Port"] = "true", host, port
		}
	}
	return layer
}

// source names a value's source, for people.
func (c Sources) source(from choice) string {
	if from.Bad {
		return "default"
	}
	return c.layerName(from.Layer)
}

// layerName names a layer, for people.
func (c Sources) layerName(layer int) string {
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

// settingPath names a setting in reports.
func (c Sources) settingPath(layer int, given string) string {
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

// Adoption applies settings and logs what it did, each thing once.
type Adoption struct {
	cfg      Sources
	problems *problems.Ledger
	last     resolution
	wrong    map[string]struct{} // reported paths
	told     map[string]struct{} // reported settings without effect
	listed   map[string]error    // those that are most likely mistakes, by path
	prefixes *judge
	listens  *judge
}

// NewAdoption returns an Adoption with the defaults. It reports problems to the ledger.
func NewAdoption(cfg Sources, p *problems.Ledger) *Adoption {
	a := &Adoption{cfg: cfg, problems: p, last: Resolve(), wrong: map[string]struct{}{}, told: map[string]struct{}{}, prefixes: newPrefixJudge(), listens: newListenJudge()}
	a.prefixes.roles, a.listens.roles = cfg.Roles, cfg.Roles
	return a
}

// Adopt computes the parameters, including those in etcd, and reports what is new. unread are settings in etcd that cannot be read, by
// path.
func (a *Adoption) Adopt(s Stored, unread map[string]Unread) Params {
	layers := a.cfg.Layers(s)
	r := a.resolver(layers, unread).resolve()
	a.prefixes.rest()
	a.listens.rest()
	// Changes of the level, and mistakes in it, are logged at the lower of the former and the new level.
	a.setLevel(min(a.last.Params.LogLevel, r.Params.LogLevel))
	defer a.setLevel(r.Params.LogLevel)
	a.reportWrong(r, unread)
	a.sayChanges(r)
	a.sayUnused(r, layers)
	a.last = r
	err := a.cfg.LogFile(r.Params.LogFile, r.Params.LogFileLevel)
	a.problems.ReportSetting("LogFilePath", err, "no log file")
	return r.Params
}

func (a *Adoption) setLevel(level slog.Level) {
	if a.cfg.Level != nil {
		a.cfg.Level.Set(level)
	}
}

// refuse returns why a value that parses can't be used on this host.
func (a *Adoption) refuse(name string, p *Params) error {
	return cmp.Or(a.prefixes.refuse(name, p), a.listens.refuse(name, p))
}

// Review judges values again by the host's present links, and reports whether that makes a difference.
func (a *Adoption) Review() bool {
	prefixes, listens := a.prefixes.review(), a.listens.review()
	return prefixes || listens
}

// resolver returns a resolver of the layers. An unreadable value in etcd counts as a bad one, not as missing.
func (a *Adoption) resolver(layers []map[string]string, unread map[string]Unread) resolver {
	x := resolver{Layers: slices.Clone(layers), Unread: map[unreadValue]error{}, Refuse: a.refuse}
	for _, u := range unread {
		if u.name == "" {
			continue
		}
		layer := maps.Clone(x.Layers[u.layer])
		layer[u.name] = ""
		x.Layers[u.layer] = layer
		x.Unread[unreadValue{Layer: u.layer, Given: u.name}] = u.err
	}
	return x
}

// paramNames maps each name of a parameter, in lower case, to the parameter's.
func paramNames() map[string]string {
	names := map[string]string{}
	for _, p := range Table() {
		for _, n := range p.Names() {
			names[strings.ToLower(n)] = p.Name
		}
	}
	return names
}

// IsSetting reports whether a key is one of the agent's settings.
func IsSetting(key model.Key) bool {
	switch key.(type) {
	case model.GlobalConfigKey, model.HostConfigKey:
		return true
	}
	return false
}

var errSpelling = errors.New("the key isn't spelled as it should be")

// Unread is a setting in etcd that cannot be read.
type Unread struct {
	layer int
	name  string // "" = it counts as not set, as its key is misspelt
	err   error
}

// UnreadOf reports whether a setting at a path in etcd cannot be read; invalid is what is wrong with its value, if anything.
func UnreadOf(of model.Key, path string, invalid error) (u Unread, unread bool) {
	u = Unread{layer: layerGlobal, err: invalid}
	switch key := of.(type) {
	case model.GlobalConfigKey:
		u.name = key.Name
	case model.HostConfigKey:
		u.layer, u.name = layerHost, key.Name
	}
	if path != of.Path() {
		u.name = ""
		if u.err == nil {
			u.err = errSpelling
		}
	}
	return u, u.err != nil
}
