// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// settings are what etcd says about the agent itself, by lower-case name.
type settings struct {
	global, local map[string]string
}

// takeText keeps a setting. One that does not parse counts as not set.
func takeText(m map[string]string, name string, entry model.Entry) {
	if text, ok := entry.Value.(model.Text); ok {
		m[strings.ToLower(name)] = string(text)
		return
	}
	delete(m, strings.ToLower(name))
}

// The layers of settings in the order in which they win.
const (
	layerEnviron = iota
	layerHost
	layerGlobal
)

// settingErrors says of each setting in etcd that is readable whether it makes sense.
func (s *state) settingErrors(wrong []paramError) map[string]error {
	errs := map[string]error{}
	for path, o := range s.objects {
		var name string
		layer := layerGlobal
		switch key := o.key.(type) {
		case model.GlobalConfigKey:
			name = key.Name
		case model.HostConfigKey:
			name, layer = key.Name, layerHost
		}
		if name == "" || o.invalid != nil {
			continue
		}
		errs[path] = nil
		for _, w := range wrong {
			if w.layer == layer && strings.EqualFold(w.name, name) {
				errs[path] = w.err
			}
		}
	}
	return errs
}
