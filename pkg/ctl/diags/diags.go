// SPDX-License-Identifier: Apache-2.0

// Package diags implements the commands of calicoctl that collect everything needed to find a fault into one archive.
package diags

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// nodeCommands are the commands that show the state of a host, each after its file's name in the archive.
var nodeCommands = [][]string{
	{"system/uname.txt", "uname", "-a"},
	{"system/uptime.txt", "uptime"},
	{"system/modules.txt", "lsmod"},
	{"system/sysctl.txt", "sysctl", "-a"},
	{"system/processes.txt", "ps", "axo", "pid,ppid,etime,time,rss,stat,comm"},
	{"system/kernel-log.txt", "dmesg"},
	{"system/calico-node-journal.txt", "journalctl", "-u", "calico-node", "-n", "20000", "--no-pager"},
	{"system/kubelet-journal.txt", "journalctl", "-u", "kubelet", "-n", "5000", "--no-pager"},
	{"network/links.txt", "ip", "-d", "-s", "link"},
	{"network/addresses.txt", "ip", "address"},
	{"network/rules.txt", "ip", "rule"},
	{"network/rules6.txt", "ip", "-6", "rule"},
	{"network/routes.txt", "ip", "route", "show", "table", "all"},
	{"network/routes6.txt", "ip", "-6", "route", "show", "table", "all"},
	{"network/neighbours.txt", "ip", "neighbour"},
	{"network/fdb.txt", "bridge", "fdb"},
	{"network/sockets.txt", "ss", "-tuanp"},
	{"network/conntrack.txt", "conntrack", "-S"},
	{"firewall/nft.txt", "nft", "list", "ruleset"},
	{"firewall/iptables.txt", "iptables-save"},
	{"firewall/ip6tables.txt", "ip6tables-save"},
	{"firewall/ipsets.txt", "ipset", "list"},
}

// nodeFiles are patterns of files of a host, relative to its root.
var nodeFiles = []string{
	"etc/os-release", "proc/cmdline", "proc/meminfo", "proc/net/snmp", "proc/net/netstat",
	"etc/cni/net.d/*.conf", "etc/cni/net.d/*.conflist", "etc/calico/*.cfg", "etc/calico/*.conf",
	"var/log/calico/*.log", "var/log/calico/*/*.log",
}

const notes = `

Passwords, tokens and private keys are taken out. What can't be collected is listed in the archive's failed.txt; the rest is there all the
same, and the exit status is 0.`

// NewNode returns the command diags of calicoctl node.
func NewNode(env *session.Env) *cobra.Command {
	var to, agent, metrics string
	var more []string
	cmd := &cobra.Command{
		Use: "diags", Short: "Collect what is known on this node into one archive", Args: cobra.NoArgs,
		Long: `Collect what is known on this node into one archive: the agent's pages, its log and the plugins', network configurations, links, routes,
firewalls, sysctls and the kernel's log.` + notes,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			return collect(cmd.Context(), env, "calico-node-"+name, to, func(ctx context.Context, a *archive) {
				a.own(cmd, "calicoctl-version.txt", "version")
				a.node(ctx, agent, metrics, os.DirFS("/"), more)
			})
		},
	}
	cmd.Flags().StringVarP(&to, "output", "o", "", "file to write, - = standard output (default calico-node-<host>-<time>.tar.gz)")
	cmd.Flags().StringVar(&agent, "agent", "http://127.0.0.1:9099", "URL of the agent's health port")
	cmd.Flags().StringVar(&metrics, "metrics", "http://127.0.0.1:9091", "URL of the agent's metrics port")
	cmd.Flags().StringSliceVar(&more, "file", nil, "another file, such as a log that isn't at /var/log/calico; may be repeated")
	return cmd
}

// node adds everything that is known on a node.
func (a *archive) node(ctx context.Context, agent, metrics string, root fs.FS, more []string) {
	a.page(ctx, "agent/readiness.txt", agent+"/readiness")
	a.page(ctx, "agent/liveness.txt", agent+"/liveness")
	a.page(ctx, "agent/invalid.txt", agent+"/debug/invalid")
	a.page(ctx, "agent/state.txt", agent+"/debug/state?format=text")
	a.page(ctx, "agent/metrics.txt", metrics+"/metrics")
	for _, c := range nodeCommands {
		a.command(ctx, c[0], c[1:]...)
	}
	for _, pattern := range nodeFiles {
		a.files(root, pattern)
	}
	for _, file := range more {
		abs, err := filepath.Abs(file)
		if err != nil {
			a.add(file, nil, err)
			continue
		}
		name := strings.TrimPrefix(abs, "/")
		text, err := lastOf(root, name)
		a.add(filepath.Join("files", name), text, err)
	}
}

// NewCluster returns the command cluster.
func NewCluster(env *session.Env) *cobra.Command {
	var to string
	diags := &cobra.Command{
		Use: "diags", Short: "Collect what is known of the cluster into one archive", Args: cobra.NoArgs,
		Long: `Collect what etcd holds of the cluster into one archive: whether nodes are well, addresses and what is wrong with them, all resources, and all
data as datastore export prints it. What only a node knows, node diags collects there.` + notes,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := env.Read(cmd.Context(), model.KeyRange(model.ReadyKey{})); err != nil {
				return err
			}
			return collect(cmd.Context(), env, "calico-cluster", to, func(_ context.Context, a *archive) {
				a.own(cmd, "version.txt", "version")
				a.own(cmd, "status.txt", "status")
				a.own(cmd, "ipam/configuration.txt", "ipam", "show", "--show-configuration")
				a.own(cmd, "ipam/show.txt", "ipam", "show", "--show-configuration=false", "--show-blocks")
				a.own(cmd, "ipam/borrowed.txt", "ipam", "show", "--show-blocks=false", "--show-borrowed")
				a.own(cmd, "ipam/check.txt", "ipam", "check", "--show-problem-ips")
				for _, kind := range resource.Kinds() {
					args := []string{"get", strings.ToLower(kind.Plural), "-o", "yaml", fmt.Sprintf("--all-namespaces=%t", kind.Namespaced)}
					a.own(cmd, filepath.Join("resources", strings.ToLower(kind.Plural)+".yaml"), args...)
				}
				a.own(cmd, "datastore.jsonl", "datastore", "export")
			})
		},
	}
	diags.Flags().StringVarP(&to, "output", "o", "", "file to write, - = standard output (default calico-cluster-<time>.tar.gz)")
	cmd := &cobra.Command{Use: "cluster", Short: "Collect what is known of the cluster"}
	cmd.AddCommand(diags)
	return cmd
}

// collect writes an archive, with a directory named name and the time, to a file or standard output, and prints the file's
// name.
func collect(ctx context.Context, env *session.Env, name, to string, fill func(context.Context, *archive)) error {
	now := time.Now()
	dir := name + now.UTC().Format("-20060102T150405Z")
	w := env.Stdout
	if to != "-" {
		if to == "" {
			to = dir + ".tar.gz"
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("%w: choose another file with -o", err)
		}
		defer f.Close()
		w = f
	}
	a := newArchive(env, w, dir, now)
	fill(ctx, a)
	err := a.close()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if to == "-" {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s is not whole: %w", to, err)
	}
	_, err = fmt.Fprintln(env.Stdout, to)
	return err
}
