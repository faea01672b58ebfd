// SPDX-License-Identifier: Apache-2.0

// Package conflist keeps the network configuration in the container runtime's directory, and the TLS files that it names. A runtime starts
// pods as soon as the configuration exists, so it is written only once the agent serves the host. It stays when the agent ends: the runtime
// needs it to take down pods meanwhile.
package conflist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/health"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/daemon/statefile"
)

const (
	// interval is how often the files are compared with their desired content.
	interval = 10 * time.Second
	// writtenName is the file of the configuration that was last written. It tells what others have added to the configuration from what an
	// earlier installer left there.
	writtenName = netconf.ListName + ".written"
	// part is this package's name on the page for readiness.
	part = "network configuration"
)

// Config says which files to keep, and where.
type Config struct {
	// Dir is the runtime's directory, as a path of the host.
	Dir string
	// VarDir is where an installer leaves the configuration.
	VarDir string
	// Exclusive renames others' configurations that the runtime would use in place of ours.
	Exclusive bool
	// CAFile, CertFile and KeyFile are what the plugins need to reach etcd; "" = none.
	CAFile, CertFile, KeyFile string
	// Served is closed when the agent first serves the host.
	Served <-chan struct{}
	// Event tells the cluster's operator; nil without a way to.
	Event    func(reason, message string)
	Health   *health.Monitor
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Files are the runtime's network configuration and the files that it refers to. Only Run uses them.
type Files struct {
	cfg     Config
	earlier string // others' configurations that come first, as last reported
}

// New returns Files.
func New(cfg Config) *Files { return &Files{cfg: cfg} }

// Run keeps the files from when the agent serves the host until the context ends; the error is always nil.
func (k *Files) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-k.cfg.Served:
	}
	return reconcile.New(reconcile.Timing{Every: interval}, func(context.Context) (time.Duration, error) {
		err := k.keep()
		k.tell(err)
		return 0, err
	}).Run(ctx)
}

// tell reports what is wrong.
func (k *Files) tell(err error) {
	reason := problems.Reason(err)
	if reason != "" {
		reason = "the network configuration is not in place: " + reason
	}
	k.cfg.Health.SetDegraded(part, reason)
	if k.cfg.Problems.Tell(problems.Host, part, err) {
		k.event("NetworkConfigurationNotWritten", reason)
	}
}

func (k *Files) event(reason, message string) {
	if k.cfg.Event != nil {
		k.cfg.Event(reason, message)
	}
}

// keep compares all files and mends what differs. Files that the configuration refers to come first.
func (k *Files) keep() error {
	dir := statefile.OnHost(k.cfg.Dir)
	if err := k.keepTLS(filepath.Join(dir, netconf.TLSDir)); err != nil {
		return err
	}
	if err := k.keepList(dir); err != nil {
		return err
	}
	return k.lookAtOthers(dir)
}

// keepList keeps our own file.
func (k *Files) keepList(dir string) error {
	staged, path := filepath.Join(k.cfg.VarDir, netconf.StagedName), filepath.Join(dir, netconf.ListName)
	text, err := os.ReadFile(staged)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there: calico-install leaves it, as the init container of calico-node's pod or by hand", staged)
	}
	if err != nil {
		return statefile.Advise(err)
	}
	list, err := netconf.ParseList(text)
	if err != nil {
		return fmt.Errorf("%s: %w: run calico-install again", staged, err)
	}
	there, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return statefile.Advise(err)
	}
	absent, written := err != nil, filepath.Join(k.cfg.VarDir, writtenName)
	former := k.former(written)
	want := list.Mend(there, former)
	if err := statefile.Replace(path, want, 0o600); err != nil {
		return statefile.Advise(err)
	}
	switch {
	case bytes.Equal(there, want) && !absent:
	case absent && former == nil:
		k.cfg.Logger.Info("the network configuration is written: the runtime can start pods", "file", path)
	case former != nil && bytes.Equal(former.Text(), list.Text()):
		k.cfg.Logger.Warn("the network configuration was removed or changed by something else, and is mended", "file", path, "removed", absent)
	default:
		k.cfg.Logger.Info("the network configuration is brought up to date", "file", path)
	}
	if err := statefile.Replace(written, list.Text(), 0o600); err != nil {
		return statefile.Advise(err)
	}
	return k.removeSingle(filepath.Join(dir, netconf.SingleName))
}

// former returns the list that was last written; nil if unknown.
func (k *Files) former(written string) *netconf.List {
	text, err := os.ReadFile(written)
	if err != nil {
		return nil
	}
	list, err := netconf.ParseList(text)
	if err != nil {
		return nil
	}
	return list
}

// removeSingle removes an earlier Calico's configuration, which the runtime would use in place of the list.
func (k *Files) removeSingle(path string) error {
	text, err := os.ReadFile(path)
	if err != nil || !netconf.IsOurs(text) {
		return nil // another's, or gone: lookAtOthers handles it
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return statefile.Advise(err)
	}
	k.cfg.Logger.Info("the network configuration of an earlier Calico is removed", "file", path)
	return nil
}

// lookAtOthers reports configurations that the runtime uses in place of ours. That is no error, as some are meant to: Multus, for one,
// calls ours.
func (k *Files) lookAtOthers(dir string) error {
	names, err := netconf.Files(dir)
	if err != nil {
		return statefile.Advise(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name >= netconf.ListName })
	if k.cfg.Exclusive {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if err := os.Rename(path, path+netconf.BackupSuffix); err != nil {
				return statefile.Advise(err)
			}
			k.cfg.Logger.Warn("another network configuration was first by name, and is renamed, as CNI_EXCLUSIVE is true", "file", path, "to", path+netconf.BackupSuffix)
			k.event("NetworkConfigurationRenamed", fmt.Sprintf("%s came before %s, and is renamed to %s%s", path, netconf.ListName, name, netconf.BackupSuffix))
		}
		names = nil
	}
	text := strings.Join(names, ", ")
	if text == k.earlier {
		return nil
	}
	k.earlier = text
	if text == "" {
		k.cfg.Problems.Note(problems.Notice, k.cfg.Dir, nil)
		k.cfg.Logger.Info("no other network configuration is before ours any more", "directory", k.cfg.Dir)
		return nil
	}
	message := fmt.Sprintf("%s comes before %s by name in %s, so the runtime uses it in place of Calico's: if it doesn't mean to call that, remove it from the node, "+
		"or set CNI_EXCLUSIVE=true in calico-node's pod", text, netconf.ListName, k.cfg.Dir)
	k.cfg.Problems.Note(problems.Notice, k.cfg.Dir, errors.New(message))
	k.cfg.Logger.Warn("another network configuration is first", "files", text, "reason", message)
	k.event("AnotherNetworkConfiguration", message)
	return nil
}
