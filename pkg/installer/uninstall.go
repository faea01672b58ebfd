// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/daemon/runlock"
	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/kernel/fabric"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/nft/beside"
	"github.com/calico-go/calico/pkg/plan"
	"github.com/calico-go/calico/pkg/retry"
)

// Uninstall removes all of Calico from the node, in an order that cuts off no pod: the network configuration, so that no pod starts any
// more; policy, so that every pod is open; the routes to other hosts and the tunnels; and, once no pod is left, what their deletion needs.
// While there are pods, their links and the routes to them stay: Uninstall returns their number, and must be called again. With data set it
// also removes, after the last pod, the etcd data of the manifests, with all that is in it.
func Uninstall(ctx context.Context, c Config, data bool) (pods int, err error) {
	c.RunDir, c.VarDir, c.EtcdDir = statefile.OnHost(c.RunDir), statefile.OnHost(c.VarDir), statefile.OnHost(c.EtcdDir)
	release, err := runlock.Take(c.RunDir, runlock.Agent)
	if errors.Is(err, runlock.ErrHeld) {
		return 0, errors.New("calico-node runs on this node and would put everything back: stop it first (kubectl -n kube-system delete daemonset calico-node, " +
			"or systemctl disable --now calico-node)")
	}
	if err != nil {
		return 0, fmt.Errorf("run directory %s (CALICO_RUN_DIR): %w", c.RunDir, statefile.Advise(err))
	}
	defer release()
	conf := statefile.OnHost(c.ConfDir)
	for variable, dir := range map[string]string{"CNI_CONF_DIR": conf, "CNI_BIN_DIR": statefile.OnHost(c.BinDir)} {
		if _, err := os.ReadDir(dir); err != nil { // a pod without the node's directory would find nothing to remove
			return 0, fmt.Errorf("directory of the runtime's (%s): %w", variable, statefile.Advise(err))
		}
	}
	if err := c.removeLists(conf); err != nil {
		return 0, fmt.Errorf("remove the network configuration (CNI_CONF_DIR): %w", statefile.Advise(err))
	}
	left, err := c.clearNetwork(ctx)
	if err != nil {
		return len(left), err
	}
	if len(left) == 0 { // removeLists may have kept it for pods that are gone since
		if err := c.removeLists(conf); err != nil {
			return 0, fmt.Errorf("remove the network configuration (CNI_CONF_DIR): %w", statefile.Advise(err))
		}
	}
	if len(left) > 0 {
		c.Logger.Warn("pods are left: they stay connected on this node, without policy. Their links, the routes to them and what their deletion needs stay: "+
			"delete them, and run this again", "pods", len(left), "interfaces", strings.Join(left[:min(len(left), 10)], ","))
		if data {
			c.Logger.Warn("etcd's data stays as well: no pod can be deleted without it. Delete the pods, then stop etcd")
		}
		return len(left), nil
	}
	if data {
		if err := c.removeData(); err != nil {
			return 0, err
		}
	}
	if err := c.removeFiles(conf); err != nil {
		return 0, fmt.Errorf("remove files: %w", statefile.Advise(err))
	}
	c.Logger.Info("nothing of Calico is left on this node")
	return 0, nil
}

// again is how often Uninstall is repeated while there are still pods, or something is in the way.
const again = 5 * time.Second

// uninstallAndStay repeats Uninstall until no pod is left, and then waits until the context ends; the error is always nil.
func uninstallAndStay(ctx context.Context, c Config, data bool) error {
	for said := (retry.News{}); ; {
		pods, err := Uninstall(ctx, c, data)
		if err == nil && pods == 0 {
			<-ctx.Done()
		} else if said.Is(err) && err != nil && ctx.Err() == nil {
			c.Logger.Error("not yet", "error", err)
		}
		if retry.Wait(ctx, again) != nil {
			return nil
		}
	}
}

// removeLists removes the network configuration. A runtime without any can't delete pods, so they would stay for ever: while pods are left
// and no other plugin has a configuration, ours stays. No pod starts with it, as calico-node doesn't answer its ADD.
func (c Config) removeLists(dir string) error {
	pods, err := link.Workloads()
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		lists, err := netconf.Files(dir)
		if lists = slices.DeleteFunc(lists, func(name string) bool { return name == netconf.ListName || name == netconf.SingleName }); err != nil || len(lists) == 0 {
			return err
		}
	}
	for _, name := range []string{netconf.ListName, netconf.SingleName} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case name == netconf.SingleName && !netconf.IsOurs(text):
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		c.Logger.Info("the network configuration is removed: no pod starts any more", "file", path)
	}
	others, err := filepath.Glob(filepath.Join(dir, "*"+netconf.BackupSuffix))
	if err != nil {
		return err
	}
	for _, path := range others {
		c.Logger.Info("a network configuration of another's that was renamed stays: rename it back to use it", "file", path)
	}
	return nil
}

// clearNetwork opens all interfaces and removes the routes to other hosts and the tunnels. It returns the links of pods. If there are none,
// it also removes the routes to pods, and the rules that accept their packets in chains of others that drop.
func (c Config) clearNetwork(ctx context.Context) (pods []string, err error) {
	closed, err := link.CloseLoopback() // while the rules that drop packets to it still exist
	if err != nil {
		return nil, fmt.Errorf("close the host's loopback to pods: %w", err)
	}
	if len(closed) > 0 {
		c.Logger.Info("the host's loopback is closed to pods (route_localnet)", "interfaces", strings.Join(closed[:min(len(closed), 10)], ","))
	}
	there, err := nft.Remove()
	if err != nil {
		return nil, fmt.Errorf("remove policy: %w", err)
	}
	if there {
		c.Logger.Info("policy is removed: every interface is open", "table", "inet "+nft.TableName)
	}
	f, err := fabric.New(fabric.Config{Logger: c.Logger})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	report, err := f.Apply(ctx, plan.State{})
	for _, p := range report.Problems {
		err = errors.Join(err, fmt.Errorf("%s: %w", p.Subject, p.Err))
	}
	if err != nil {
		return nil, fmt.Errorf("remove routes to other hosts and tunnels: %w", err)
	}
	if report.Writes > 0 {
		c.Logger.Info("routes to other hosts and tunnels are removed", "changes", report.Writes)
	}
	if pods, err = link.Workloads(); err != nil || len(pods) > 0 {
		return pods, err
	}
	accepts, err := beside.Open()
	if err != nil {
		return nil, err
	}
	defer accepts.Close()
	changes, err := accepts.Apply(beside.Desired{Mode: beside.Off})
	if err != nil {
		return nil, err
	}
	for _, a := range changes {
		c.Logger.Info("what accepted pods' packets in a chain of iptables is removed", "chain", a.Chain)
	}
	if _, err := link.DeleteRoutes(); err != nil {
		return nil, fmt.Errorf("remove routes to pods: %w", err)
	}
	return nil, nil
}

// removeFiles removes the plugins and the files that they and the agent left.
func (c Config) removeFiles(conf string) error {
	for _, name := range plugins() {
		path := filepath.Join(statefile.OnHost(c.BinDir), name)
		if ours, err := isOurs(path); err != nil {
			return err
		} else if !ours {
			continue // gone, or another program's
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		c.Logger.Info("plugin is removed", "file", path)
	}
	tls := filepath.Join(conf, netconf.TLSDir)
	log := c.environ["LOG_FILE_PATH"]
	if log == "" {
		log = defaultLogFile
	}
	log = filepath.Join(statefile.OnHost(filepath.Dir(log)), filepath.Base(log))
	rotated, err := filepath.Glob(strings.TrimSuffix(log, filepath.Ext(log)) + "-[0-9]*T*" + filepath.Ext(log)) // the plugins' name for rotated logs
	if err != nil {
		return err
	}
	paths := append(rotated, log, filepath.Join(tls, netconf.TLSCA), filepath.Join(tls, netconf.TLSCert), filepath.Join(tls, netconf.TLSKey))
	if _, err := os.Stat(filepath.Join(c.VarDir, nodenameName)); err == nil { // it is the agent's
		entries, err := os.ReadDir(c.VarDir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() != nodenameName {
				paths = append(paths, filepath.Join(c.VarDir, e.Name()))
			}
		}
		paths = append(paths, filepath.Join(c.VarDir, nodenameName)) // last: by it the next run recognises the directory
	}
	for _, name := range []string{"agent.sock", "cni.lock", "etcd-tokens", "endpoints", runlock.Agent} {
		paths = append(paths, filepath.Join(c.RunDir, name))
	}
	for _, path := range paths {
		if err := errors.Join(os.RemoveAll(path), statefile.Sweep(path)); err != nil {
			return err
		}
	}
	for _, name := range []string{netconf.ListName, netconf.SingleName} {
		if err := statefile.Sweep(filepath.Join(conf, name)); err != nil {
			return err
		}
	}
	for _, dir := range []string{tls, c.VarDir, c.RunDir, c.EtcdDir, filepath.Dir(log), filepath.Dir(filepath.Dir(log))} {
		_ = os.Remove(dir) // fails if something is in it, or it is mounted
	}
	return nil
}

// dataDir is where the manifests' etcd has its data, below EtcdDir.
const dataDir = "data"

// removeData removes the data of the manifests' etcd, which must have stopped.
func (c Config) removeData() error {
	dir := filepath.Join(c.EtcdDir, dataDir)
	db, err := os.OpenFile(filepath.Join(dir, "member", "snap", "db"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		c.Logger.Info("no etcd of Calico's had its data on this node; in an etcd elsewhere it goes by: etcdctl del --prefix /calico/", "directory", dir)
		return nil
	}
	if err != nil {
		return fmt.Errorf("etcd's data: %w", statefile.Advise(err))
	}
	defer func() { _ = db.Close() }() // nothing was written
	if err := unix.Flock(int(db.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("etcd's data %s: etcd still runs: delete the pods of all nodes, then stop it (kubectl -n kube-system delete statefulset calico-etcd)", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("etcd's data: %w", statefile.Advise(err))
	}
	c.Logger.Info("etcd's data is removed", "directory", dir)
	return nil
}
