// SPDX-License-Identifier: Apache-2.0

package params

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/problems"
)

// reportWrong reports the settings that cannot be read or make no sense, and those that are right again.
func (a *Adoption) reportWrong(r resolution, unread map[string]Unread) {
	before := a.wrong
	a.wrong = map[string]struct{}{}
	for _, w := range r.Wrong {
		path := a.cfg.settingPath(w.Layer, w.Given)
		a.wrong[path] = struct{}{}
		c, value := r.Choices[w.Name], fmt.Sprintf("%.64q", w.Text)
		if u, ok := unread[path]; ok && u.name != "" {
			value = "" // it can't be read
		}
		a.problems.ReportValue(path, w.Err, value, fmt.Sprintf("%q, %s", c.Text, a.cfg.source(c)))
	}
	for path, u := range unread {
		if _, said := a.wrong[path]; said {
			continue
		}
		a.wrong[path] = struct{}{}
		a.problems.ReportSetting(path, u.err, "as if it were not there")
	}
	for path := range before {
		if _, still := a.wrong[path]; !still {
			a.problems.ReportSetting(path, nil, "")
		}
	}
}

// SayMisfit reports that the used prefixes cover no endpoint's interface: once, however many endpoints there are.
func (a *Adoption) SayMisfit(err error) {
	c := a.last.Choices["InterfacePrefix"]
	before, after := a.problems.Keep(problems.Problem{Path: "InterfacePrefix", Kind: problems.Setting, Reason: problems.Reason(err), Used: fmt.Sprintf("%q, %s", c.Text, a.cfg.source(c))})
	switch {
	case (before.Reason == "") == (after.Reason == ""):
	case after.Reason == "":
		a.cfg.Logger.Info("setting is in order again", "setting", before.Path)
	default:
		a.cfg.Logger.Warn("setting fits no endpoint of this host", "setting", after.Path, "reason", after.Reason)
	}
}

// sayChanges logs the values that changed; at first, those that differ from the defaults.
func (a *Adoption) sayChanges(r resolution) {
	for _, p := range Table() {
		before, after := a.last.Choices[p.Name], r.Choices[p.Name]
		if before.Text != after.Text {
			a.cfg.Logger.Info("setting", "name", p.Name, "value", after.Text, "from", a.cfg.source(after),
				"was", before.Text, "applies", p.Effect)
		}
	}
}

// sayUnused logs the settings without effect: a stronger one overrides those in the file and in etcd, another spelling in the same place
// wins, or this agent has no such parameter. What is most likely a mistake is listed in the ledger as well.
func (a *Adoption) sayUnused(r resolution, layers []map[string]string) {
	before, mistakes := a.told, map[string]error{}
	a.told = map[string]struct{}{}
	defer func() { a.list(mistakes) }()
	names := paramNames()
	for _, layer := range []int{layerEnviron, layerFile, layerHost, layerGlobal} {
		for _, given := range slices.Sorted(maps.Keys(layers[layer])) {
			name, ours := names[strings.ToLower(given)]
			used, path := r.Choices[name], a.cfg.settingPath(layer, given)
			thing := path
			if _, bad := a.wrong[path]; bad {
				continue // it has been reported
			}
			twice := ours && used.Layer == layer && used.Given != given
			if ours {
				text := layers[layer][given]
				if !twice && (used.Layer == layerDefault || used.Layer >= min(layer, layerHost)) || text == used.Text {
					continue
				}
				thing += " " + text
			}
			switch {
			case twice:
				mistakes[path] = fmt.Errorf("it is without effect: %s is the same in another spelling, and counts", a.cfg.settingPath(layer, used.Given))
			case !ours && !isForeign(given):
				mistakes[path] = errors.New("it names no parameter that is known, and is not used: correct the name, or delete it")
			}
			a.told[thing] = struct{}{}
			if _, said := before[thing]; said {
				continue
			}
			switch {
			case twice:
				a.cfg.Logger.Warn("setting is without effect: the same place has it in another spelling, which counts",
					"setting", path, "counts", a.cfg.settingPath(layer, used.Given), "value", used.Text)
			case ours:
				a.cfg.Logger.Info("setting is without effect: a stronger one stands before it until the agent is started without that",
					"setting", path, "stronger", a.cfg.layerName(used.Layer), "value", used.Text)
			case isForeign(given):
				a.cfg.Logger.Debug("setting is not this agent's", "setting", path)
			default:
				a.cfg.Logger.Warn("setting names no parameter that is known, and is not used", "setting", path)
			}
		}
	}
}

// list makes the ledger show exactly these settings as notices; sayUnused logs them only once.
func (a *Adoption) list(mistakes map[string]error) {
	for path := range a.listed {
		if mistakes[path] == nil {
			a.problems.Note(problems.Notice, path, nil)
		}
	}
	for path, err := range mistakes {
		a.problems.Note(problems.Notice, path, err)
	}
	a.listed = mistakes
}
