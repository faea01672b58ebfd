// SPDX-License-Identifier: Apache-2.0

// Package installer puts the plugins on a node and leaves the network configuration for the agent, and removes all of Calico from a node.
package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/statefile"
)

// Install puts the plugins on the node and stages the network configuration: the agent puts it in the runtime's directory once it serves
// the host. Install checks everything before it writes anything.
func Install(ctx context.Context, c Config) error {
	list, err := c.render()
	if err != nil {
		return err
	}
	bin, conf := statefile.OnHost(c.BinDir), statefile.OnHost(c.ConfDir)
	if err := c.checkPrograms(list, bin); err != nil {
		return err
	}
	if err := checkWritable(conf); err != nil {
		return fmt.Errorf("directory of network configurations (CNI_CONF_DIR): %w", err)
	}
	for _, name := range plugins() {
		if err := c.installBinary(ctx, bin, name); err != nil {
			return fmt.Errorf("directory of plugins (CNI_BIN_DIR): %w", err)
		}
	}
	staged := filepath.Join(c.VarDir, netconf.StagedName)
	if err := os.MkdirAll(c.VarDir, 0o755); err != nil {
		return fmt.Errorf("leave the network configuration for the agent (CALICO_VAR_DIR): %w", statefile.Advise(err))
	}
	if err := statefile.Replace(staged, list.Text(), 0o600); err != nil {
		return fmt.Errorf("leave the network configuration for the agent (CALICO_VAR_DIR): %w", statefile.Advise(err))
	}
	c.Logger.Info("the node is prepared; calico-node puts the network configuration in place as soon as it serves the node", "staged", staged)
	return nil
}

// checkPrograms checks that the directory has the plugins of others that the list names: with one missing every pod would fail.
func (c Config) checkPrograms(list *netconf.List, dir string) error {
	if _, err := os.ReadDir(dir); err != nil {
		return fmt.Errorf("directory of plugins (CNI_BIN_DIR): %w", statefile.Advise(err))
	}
	var missing []string
	for _, name := range list.Programs() {
		if slices.Contains(plugins(), name) {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("CNI_NETWORK_CONFIG names %s, which %s (CNI_BIN_DIR) does not have: install the CNI project's plugins on the node "+
		"(package containernetworking-plugins or kubernetes-cni), or take what isn't needed out of CNI_NETWORK_CONFIG", strings.Join(missing, " and "), dir)
}

// checkWritable finds out early what the agent would find out late: whether the directory is writable.
func checkWritable(dir string) error {
	file, err := os.CreateTemp(dir, ".calico-install.*")
	if err != nil {
		return statefile.Advise(err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}
