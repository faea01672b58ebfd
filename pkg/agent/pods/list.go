// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/calico-go/calico/netconf"
)

// Unshaped reports whether the runtime's list of plugins that includes calico lacks one with the capability bandwidth. It returns false if
// the directory has no such list.
func Unshaped(dir string) bool {
	names, err := netconf.Files(dir)
	if err != nil {
		return false
	}
	type plugin struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		var list struct {
			plugin
			Plugins []plugin `json:"plugins"`
		}
		if json.Unmarshal(data, &list) != nil {
			continue
		}
		calico, shaped := false, false
		for _, p := range append(list.Plugins, list.plugin) {
			calico, shaped = calico || p.Type == "calico", shaped || p.Capabilities["bandwidth"]
		}
		if calico {
			return !shaped
		}
	}
	return false
}
