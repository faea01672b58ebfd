// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/netconf"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nft/beside"
)

// host is a lab host that is installed as a node of a cluster is: by the installer, and by the agent after it.
type host struct {
	*lab.Host
	t      *testing.T
	config Config
	env    []string
}

func (h *host) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), eventually.Limit)
	defer cancel()
	var out strings.Builder
	err := h.Do(func() error {
		cmd := exec.CommandContext(ctx, filepath.Join(h.config.From, "calico-install"), args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = h.env, &out, &out
		return cmd.Run()
	})
	h.t.Logf("calico-install %s: %v\n%s", strings.Join(args, " "), err, out.String())
	return out.String(), err
}

// kernel returns our part of what the host's kernel holds, as lines.
func (h *host) kernel() (ours []string) {
	h.t.Helper()
	k, err := h.Namespace().Kernel()
	if err != nil {
		h.t.Fatal(err)
	}
	tables, err := h.Exec(h.t.Context(), "nft", "list", "tables")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, line := range append(k.Lines(), strings.Split(string(tables), "\n")...) {
		if strings.Contains(line, "cali") || strings.Contains(line, "proto 80") || strings.Contains(line, "proto 81") {
			ours = append(ours, line)
		}
	}
	return ours
}

// localnet returns the sysctl that lets packets from a pod's link go to the host's loopback.
func (h *host) localnet(p *lab.Pod) string {
	return "net.ipv4.conf." + p.Result().Interfaces[0].Name + ".route_localnet"
}

// reachesLoopback reports whether a pod's packet to the host's 127.0.0.1 arrives. The pod can reach another by then.
func (h *host) reachesLoopback(p, other *lab.Pod) (arrives bool) {
	h.t.Helper()
	var at *net.UDPConn
	err := h.Do(func() (err error) {
		at, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	err = p.Do(func() error {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: p.Addrs()[0].AsSlice()}, at.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	})
	// What is sent later by the same link arrives later.
	if err := errors.Join(err, p.Ping(h.t.Context(), other)); err != nil {
		h.t.Fatal(err)
	}
	raw, err := at.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT)
			arrives = err == nil
		})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return arrives
}

// TestLifecycle installs a node, runs pods with policy, and uninstalls it while they run.
func TestLifecycle(t *testing.T) {
	dir := t.TempDir()
	bin, conf := filepath.Join(dir, "bin"), filepath.Join(dir, "net.d")
	for _, d := range []string{bin, conf} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l := lab.ForTest(t, lab.Config{
		Hosts: []string{"a", "b"}, NoFsync: true, Hostile: true, AgentEnv: []string{"CNI_CONF_DIR=" + conf},
		Pool: func(p *model.Pool) { p.VXLANMode = model.EncapAlways },
	})
	h := &host{Host: l.Host("a"), t: t}
	h.env = append(h.Env(), "CNI_BIN_DIR="+bin, "CNI_CONF_DIR="+conf, "CNI_NETWORK_CONFIG="+template, "CALICO_ETCD_DIR="+filepath.Join(dir, "etcd"),
		"LOG_FILE_PATH="+filepath.Join(dir, "log", "calico", "cni", "cni.log"))
	var err error
	if h.config, err = ParseConfig(h.env, lab.Build(t, lab.BuildOptions{})); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(conf); len(list) != 0 {
		t.Fatalf("before the node is prepared: %v, %v", list, err)
	}
	if _, err := h.run(); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(conf, netconf.ListName)
	eventually.Nil(t, "the agent puts the network configuration in place", func() error {
		_, err := os.Stat(list)
		return err
	})

	one, two, far := h.Pod("one"), h.Pod("two"), l.Host("b").Pod("far")
	ping := func(from, to *lab.Pod) error {
		return from.Ping(t.Context(), to)
	}
	eventually.Nil(t, "pods reach another host", func() error { return ping(one, far) })
	deny := model.Policy{Selector: "all()", Types: []model.Direction{model.Inbound}, Inbound: []model.Rule{{Action: model.ActionDeny}}}
	if _, err := l.Etcd().Commit(t.Context(), model.Change{Puts: []model.Put{{Key: model.PolicyKey{Tier: "default", Policy: "deny"}, Value: deny}}}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "policy keeps pods apart", func() bool { return ping(one, two) != nil })

	before := h.kernel()
	if out, err := h.run("uninstall"); err == nil || !strings.HasSuffix(out, "calico-install: calico-node runs on this node and would put everything back: stop it first "+
		"(kubectl -n kube-system delete daemonset calico-node, or systemctl disable --now calico-node)\n") {
		t.Errorf("while the agent runs: %v", err)
	}
	if diff := cmp.Diff(before, h.kernel()); diff != "" {
		t.Errorf("what was refused changed the kernel:\n%s", diff)
	}
	if err := h.Agent().Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(list); err != nil {
		t.Errorf("after the agent's end: %v", err)
	}
	// A pod sends to 127.0.0.1 by its link, as an attacker has it do. The sysctl is as older versions left it.
	for _, args := range [][]string{{"ip", "rule", "add", "pref", "5", "lookup", "local"}, {"ip", "rule", "add", "pref", "1", "to", "127.0.0.0/8", "lookup", "9"},
		{"ip", "rule", "del", "pref", "0"}, {"ip", "route", "add", "127.0.0.0/8", "via", "169.254.1.1", "dev", "eth0", "onlink", "table", "9"},
		{"sysctl", "-w", "net.ipv4.conf.eth0.route_localnet=1"}} {
		if out, err := one.Exec(t.Context(), args[0], args[1:]...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	exec := func(args ...string) {
		if out, err := h.Exec(t.Context(), args[0], args[1:]...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	exec("nft", "flush", "ruleset")
	if h.reachesLoopback(one, two) {
		t.Error("a pod reaches the host's loopback while no agent runs and no rule stands")
	}
	exec("sysctl", "-w", h.localnet(one)+"=1")
	if !h.reachesLoopback(one, two) {
		t.Error("this test couldn't tell: a pod doesn't reach the host's loopback by any means")
	}
	db := filepath.Join(dir, "etcd", "data", "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(db, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := h.run("uninstall", "-data"); err != nil || !strings.Contains(out, "Delete the pods, then stop etcd") {
		t.Fatal(err)
	}
	if _, err := os.Stat(db); err != nil {
		t.Errorf("etcd's data, which the pods' deletion needs: %v", err)
	}
	if _, err := os.Stat(list); err != nil {
		t.Errorf("the network configuration, without which the runtime deletes no pod: %v", err)
	}
	for _, way := range [][2]*lab.Pod{{one, two}, {two, one}} {
		if err := ping(way[0], way[1]); err != nil {
			t.Errorf("pods of one host, uninstalled: %v", err)
		}
	}
	if h.reachesLoopback(one, two) {
		t.Error("a pod reaches the host's loopback, uninstalled")
	}
	for _, line := range h.kernel() {
		if !strings.Contains(line, "dev cali") && !strings.HasPrefix(line, "link cali") {
			t.Errorf("left beside the pods' links and the routes to them: %s", line)
		}
	}
	// What the pods' deletion needs is there.
	for _, name := range plugins() {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []*lab.Pod{one, two} {
		if err := p.Delete(t.Context()); err != nil {
			t.Error(err)
		}
	}
	key := filepath.Join(conf, netconf.TLSDir, "."+netconf.TLSKey+".123") // an agent was killed as it wrote
	if err := errors.Join(os.MkdirAll(filepath.Dir(key), 0o700), os.WriteFile(key, nil, 0o600), os.WriteFile(filepath.Join(conf, "."+netconf.ListName+".123"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if _, err := h.run("uninstall", "-data"); err != nil {
			t.Error(err)
		}
		if left := h.kernel(); len(left) != 0 {
			t.Errorf("left in the kernel:\n%s", strings.Join(left, "\n"))
		}
		for _, d := range []string{bin, conf, h.VarDir(), h.RunDir(), filepath.Join(dir, "log"), filepath.Join(dir, "etcd")} {
			if left, err := os.ReadDir(d); len(left) != 0 {
				t.Errorf("left in %s: %v, %v", d, left, err)
			}
		}
	}
}

// TestStrangers: what others own is left alone.
func TestStrangers(t *testing.T) {
	c := node(t)
	if err := Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		filepath.Join(c.BinDir, "bridge"):                            "another's",
		filepath.Join(c.BinDir, "calico-ipam"):                       "another's of our name",
		filepath.Join(c.ConfDir, "20-other.conflist"):                "another's",
		filepath.Join(c.ConfDir, netconf.SingleName):                 `{"type": "bridge"}`,
		filepath.Join(c.ConfDir, "05-old.conf"+netconf.BackupSuffix): "renamed",
		filepath.Join(c.ConfDir, netconf.TLSDir, "etcd-other"):       "another's",
		filepath.Join(c.RunDir, "other.sock"):                        "another's",
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"ip", "link", "add", "strange0", "type", "veth", "peer", "name", "strange1"},
		{"ip", "link", "set", "strange0", "up"},
		{"ip", "route", "add", "198.51.100.0/24", "dev", "strange0", "proto", "static"},
		{"nft", "add", "table", "inet", "strange"},
		{"nft", "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }; " +
			`add rule ip filter FORWARD iifname "cali*" accept comment "` + beside.Comment + `"; add rule ip filter FORWARD iifname "strange0" accept`},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if _, err := Uninstall(t.Context(), c, false); err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if text, err := os.ReadFile(path); string(text) != want || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if out, err := exec.Command("nft", "list", "table", "ip", "filter").Output(); err != nil || strings.Contains(string(out), "cali") || !strings.Contains(string(out), "strange0") {
		t.Errorf("what was accepted in iptables' FORWARD: %v\n%s", err, out)
	}
	for command, want := range map[string]string{"ip route": "198.51.100.0/24", "nft list tables": "table inet strange", "ip link": "strange1"} {
		args := strings.Fields(command)
		if out, err := exec.Command(args[0], args[1:]...).Output(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// TestData: etcd's data is removed with -data alone, and never while etcd runs.
func TestData(t *testing.T) {
	c := node(t)
	c.EtcdDir = t.TempDir()
	db := filepath.Join(c.EtcdDir, "data", "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil { // as etcd does
		t.Fatal(err)
	}
	if _, err := Uninstall(t.Context(), c, true); err == nil || !strings.Contains(err.Error(), "etcd still runs: delete the pods of all nodes, then stop it") {
		t.Errorf("while etcd runs: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, data := range []bool{false, true, true} {
		if _, err := Uninstall(t.Context(), c, data); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(c.EtcdDir); errors.Is(err, fs.ErrNotExist) != data {
			t.Errorf("data %v: left %v, %v", data, left, err)
		}
	}
	c.ConfDir += "/none"
	if _, err := Uninstall(t.Context(), c, false); err == nil || !strings.Contains(err.Error(), "directory of the runtime's (CNI_CONF_DIR): ") {
		t.Errorf("without the node's directory: %v", err)
	}
}

// TestRemoveLogs: in a directory of logs shared with others, only the plugins' own are removed.
func TestRemoveLogs(t *testing.T) {
	dir := t.TempDir()
	c := node(t, "LOG_FILE_PATH="+filepath.Join(dir, "cni.log"))
	for _, name := range []string{"cni.log", "cni-20260102T030405.000000006.log", "cni-other.log", "cnitool/x"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.removeFiles(c.ConfDir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if diff := cmp.Diff([]string{filepath.Join(dir, "cni-other.log"), filepath.Join(dir, "cnitool")}, left); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}
