// SPDX-License-Identifier: Apache-2.0

// Package conflist keeps the network configuration in the container runtime's directory, and the files for TLS that it
// names. A runtime starts pods as soon as the configuration is there, so it is written when the agent serves the host, and
// not before. It stays when the agent ends: pods that go meanwhile are taken down by it.
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
	// interval is how often the files are compared with what they are to be.
	interval = 10 * time.Second
	// writtenName is the configuration that was written last, which tells what others have added to the file from what an
	// earlier installer has left there.
	writtenName = netconf.ListName + ".written"
	// part is what the page for readiness calls this.
	part = "network configuration"
)

// Config says what is kept where.
type Config struct {
	// Dir is the runtime's directory, as a path of the host.
	Dir string
	// VarDir is where an installer leaves the configuration.
	VarDir string
	// Exclusive has another's configuration renamed that would be used in place of ours.
	Exclusive bool
	// CAFile, CertFile and KeyFile are what the plugins need to reach etcd, "" = nothing.
	CAFile, CertFile, KeyFile string
	// Served is closed when the agent serves the host for the first time.
	Served <-chan struct{}
	// Event tells the cluster's operator of something; nil = there is no way to.
	Event    func(reason, message string)
	Health   *health.Monitor
	Problems *problems.Ledger
	Logger   *slog.Logger
}

// Files are the runtime's network configuration and what it refers to. Only Run uses them.
type Files struct {
	cfg     Config
	earlier string // others' configurations that come first, as they were told
}

// New makes a keeper.
func New(cfg Config) *Files { return &Files{cfg: cfg} }

// Run keeps the files from when the agent serves until the context ends; the error is always nil.
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

// tell says what is wrong.
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

// keep compares all files, and mends what differs. What the configuration refers to comes first.
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

// former is the list that was written last; nil where that isn't known.
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

// removeSingle removes what an earlier Calico left, which would be used in place of the list.
func (k *Files) removeSingle(path string) error {
	text, err := os.ReadFile(path)
	if err != nil || !netconf.IsOurs(text) {
		return nil // another's, or gone: it is looked at with the others
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return statefile.Advise(err)
	}
	k.cfg.Logger.Info("the network configuration of an earlier Calico is removed", "file", path)
	return nil
}

// lookAtOthers tells of configurations that the runtime takes in place of ours. Some mean to: Multus, for one, calls
// ours. So that is no error.
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
