// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

//go:embed config
var configs embed.FS

// A Node looks like a machine to its programs: it has its own network, processes, mounts and name. The older runtime is
// Debian's; the other one is built from its module.
type Node struct {
	Name     string
	Address  netip.Addr
	address6 netip.Addr

	c                                *Cluster
	init, containerd, kubelet, proxy *process
	older                            bool // has Debian's containerd
}

func (c *Cluster) newNode(name string, index int) *Node {
	c.tb.Helper()
	n := &Node{Name: name, Address: fabric.Addr(), address6: fabric6.Addr(), c: c, older: index == 0}
	for range 10 + index {
		n.Address, n.address6 = n.Address.Next(), n.address6.Next()
	}
	if err := os.MkdirAll(n.state(""), 0o755); err != nil {
		c.tb.Fatal(err)
	}
	script := n.configure("node.sh", n.state("node.sh"))
	n.init = n.process("init", "bash", script, name, n.state(""))
	n.init.argv = n.init.argv[len(n.enter(0)):] // it makes the namespaces
	n.init.inner = false
	n.init.attributes = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	c.tb.Cleanup(n.removeGroups)
	return n
}

// state returns the path of a file that survives a power failure.
func (n *Node) state(file string) string { return filepath.Join(n.c.dir, n.Name, file) }

// groups returns the control group of the node's pods.
func (n *Node) groups() string { return "/" + filepath.Base(n.c.dir) + "-" + n.Name }

// configure fills in one of the templates in config.
func (n *Node) configure(name, path string) string {
	n.c.tb.Helper()
	t, err := template.ParseFS(configs, "config/"+name)
	if err != nil {
		n.c.tb.Fatal(err)
	}
	var text strings.Builder
	err = t.Execute(&text, map[string]string{
		"Name": n.Name, "PauseImage": PauseImage, "CgroupRoot": n.groups(), "PodCIDR": n.c.podCIDRs,
		"Kubeconfig": n.etc("kube-proxy.conf"),
	})
	if err == nil {
		err = os.WriteFile(path, []byte(text.String()), 0o644)
	}
	if err != nil {
		n.c.tb.Fatal(err)
	}
	return path
}

// etc returns the path of a file in /etc/kubernetes as seen by programs of the node.
func (n *Node) etc(name string) string { return filepath.Join("/etc/kubernetes", name) }

// Path returns the path of a node's file as seen by the test, while the node runs.
func (n *Node) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.init.cmd.Process.Pid), "root", path)
}

// enter returns a command that runs the command after it on the node.
func (n *Node) enter(pid int) []string {
	return []string{"nsenter", "--target=" + strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--"}
}

func (n *Node) process(name string, argv ...string) *process {
	var pid int
	if n.init != nil {
		pid = n.init.cmd.Process.Pid
	}
	return &process{
		tb: n.c.tb, name: name + " of " + n.Name, argv: append(n.enter(pid), argv...), log: n.state(name + ".log"), inner: true,
		env: []string{"PATH=" + filepath.Join(n.c.bin, "containerd2") + ":/usr/sbin:/usr/bin:/sbin:/bin"},
	}
}

// Write writes a file of the node.
func (n *Node) Write(path, text string) {
	n.c.tb.Helper()
	if err := os.WriteFile(n.Path(path), []byte(text), 0o600); err != nil {
		n.c.tb.Fatal(err)
	}
}

// Command returns a command on the node that uses the node's programs.
func (n *Node) Command(argv ...string) *exec.Cmd {
	all := append(n.enter(n.init.cmd.Process.Pid), argv...)
	return exec.Command(all[0], all[1:]...)
}

// Run runs a command on the node and returns its output.
func (n *Node) Run(argv ...string) string {
	n.c.tb.Helper()
	out, err := n.Command(argv...).CombinedOutput()
	if err != nil {
		n.c.tb.Fatalf("%s: %s: %v: %s", n.Name, strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// boot starts the node without its programs, and connects it.
func (n *Node) boot() {
	n.c.tb.Helper()
	n.removeGroups()
	n.makeGroups()
	n.init.start()
	pid := strconv.Itoa(n.init.cmd.Process.Pid)
	eventually.Within(n.c.tb, Patience, n.Name+" to boot", func() error {
		if err := n.init.running(); err != nil {
			return err
		}
		_, err := os.Stat(n.Path("/run/booted"))
		return err
	})
	// The namespace of a killed node, and with it its link, ends a little later.
	_ = exec.Command("ip", "link", "delete", n.Name).Run()
	command(n.c.tb, "ip", "link", "add", n.Name, "master", bridge, "type", "veth", "peer", "name", "eth0", "netns", pid)
	command(n.c.tb, "ip", "link", "set", n.Name, "up")
	for _, args := range []string{
		"link set lo up", "address add " + netip.PrefixFrom(n.Address, fabric.Bits()).String() + " dev eth0", "link set eth0 up",
		"route add default via " + fabric.Addr().String(),
	} {
		n.Run(append([]string{"ip"}, strings.Fields(args)...)...)
	}
	if n.c.dual {
		n.Run("ip", "address", "add", netip.PrefixFrom(n.address6, fabric6.Bits()).String(), "dev", "eth0", "nodad")
		n.Run("ip", "route", "add", "default", "via", fabric6.Addr().String())
	}
}

// join starts everything that a node runs. It may have booted already.
func (n *Node) join(images []string) {
	n.c.tb.Helper()
	if n.init.cmd == nil {
		n.boot()
	}
	n.startContainerd()
	for _, image := range images {
		n.Import(image)
	}
	n.startKubelet()
}

// startContainerd starts the runtime and waits until it serves.
func (n *Node) startContainerd() {
	n.c.tb.Helper()
	program, config := "containerd", "containerd1.toml"
	if !n.older {
		program, config = filepath.Join(n.c.bin, "containerd2", "containerd"), "containerd2.toml"
	}
	n.install()
	n.configure(config, n.Path("/etc/containerd/config.toml"))
	n.containerd = n.process("containerd", program)
	if n.older {
		n.containerd.env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	n.StartContainerd()
}

// install adds what a node's packages bring: the reference plugins, and directories.
func (n *Node) install() {
	n.c.tb.Helper()
	for _, dir := range []string{"/etc/containerd", "/etc/kubernetes", "/opt/cni/bin"} {
		if err := os.MkdirAll(n.Path(dir), 0o755); err != nil {
			n.c.tb.Fatal(err)
		}
	}
	for _, plugin := range []string{"loopback", "portmap", "bandwidth", "host-local", "ptp"} {
		n.Run("cp", filepath.Join(root(n.c.tb), "bin", "tools", plugin), "/opt/cni/bin/")
	}
}

// StartContainerd starts the runtime, or starts it again, and waits until it serves.
func (n *Node) StartContainerd() {
	n.c.tb.Helper()
	n.containerd.start()
	eventually.Within(n.c.tb, Patience, "containerd of "+n.Name+" to serve", func() error {
		if err := n.containerd.running(); err != nil {
			return err
		}
		return n.ctr("version").Run()
	})
}

func (n *Node) ctr(args ...string) *exec.Cmd {
	program := "ctr"
	if !n.older {
		program = filepath.Join(n.c.bin, "containerd2", "ctr")
	}
	return n.Command(append([]string{program, "-n", "k8s.io"}, args...)...)
}

// Import imports an image from a tar file.
func (n *Node) Import(path string) {
	n.c.tb.Helper()
	tar, err := os.Open(path)
	if err != nil {
		n.c.tb.Fatalf("read an image: %v", err)
	}
	defer func() { _ = tar.Close() }() // read
	cmd := n.ctr("images", "import", "-")
	cmd.Stdin = tar
	if out, err := cmd.CombinedOutput(); err != nil {
		n.c.tb.Fatalf("%s: import %s: %v\n%s", n.Name, path, err, out)
	}
}

// startKubelet starts kubelet and kube-proxy.
func (n *Node) startKubelet() {
	n.c.tb.Helper()
	for file, user := range map[string]string{"kubelet.conf": "system:node:" + n.Name, "kube-proxy.conf": "system:kube-proxy"} {
		from, err := os.ReadFile(n.c.kubeconfig(user, ""))
		if err != nil {
			n.c.tb.Fatal(err)
		}
		text := strings.ReplaceAll(string(from), n.c.file("ca.crt"), n.etc("ca.crt"))
		if err := os.WriteFile(n.Path(n.etc(file)), []byte(text), 0o600); err != nil {
			n.c.tb.Fatal(err)
		}
	}
	ca, err := os.ReadFile(n.c.file("ca.crt"))
	if err == nil {
		err = os.WriteFile(n.Path(n.etc("ca.crt")), ca, 0o644)
	}
	if err != nil {
		n.c.tb.Fatal(err)
	}
	n.configure("kubelet.yaml", n.Path(n.etc("kubelet.yaml")))
	n.configure("kube-proxy.yaml", n.Path(n.etc("kube-proxy.yaml")))
	n.kubelet = n.process("kubelet", filepath.Join(n.c.bin, "kubelet"), "--config="+n.etc("kubelet.yaml"), "--kubeconfig="+n.etc("kubelet.conf"),
		"--hostname-override="+n.Name, "--node-ip="+n.addresses())
	n.proxy = n.process("kube-proxy", filepath.Join(n.c.bin, "kube-proxy"), "--config="+n.etc("kube-proxy.yaml"))
	n.kubelet.start()
	n.proxy.start()
}

// addresses returns the node's addresses in the cluster. If there are two, the family of the first one comes first in
// pods, too.
func (n *Node) addresses() string {
	switch {
	case !n.c.dual:
		return n.Address.String()
	case n.older:
		return n.address6.String() + "," + n.Address.String()
	}
	return n.Address.String() + "," + n.address6.String()
}

// of returns the node's address of the same family as a.
func (n *Node) of(a netip.Addr) netip.Addr {
	if a.Is4() {
		return n.Address
	}
	return n.address6
}

// KillKubelet kills kubelet; StartKubelet starts it again.
func (n *Node) KillKubelet() { n.kubelet.kill() }

// StartKubelet starts kubelet again.
func (n *Node) StartKubelet() { n.c.tb.Helper(); n.kubelet.start() }

// KillContainerd kills the runtime but no container; StartContainerd starts it again.
func (n *Node) KillContainerd() { n.containerd.kill() }

// hierarchies returns the directories of control groups: one per controller in version 1, a single one in version 2.
func hierarchies() []string {
	if all, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs"); err == nil && len(all) > 0 {
		var dirs []string
		for _, file := range all {
			if info, err := os.Lstat(filepath.Dir(file)); err == nil && info.IsDir() && filepath.Base(filepath.Dir(file)) != "unified" {
				dirs = append(dirs, filepath.Dir(file))
			}
		}
		return dirs
	}
	return []string{"/sys/fs/cgroup"}
}

// makeGroups makes the parent control group of kubelet's pods.
func (n *Node) makeGroups() {
	n.c.tb.Helper()
	for _, h := range hierarchies() {
		dir := filepath.Join(h, n.groups())
		err := os.MkdirAll(dir, 0o755)
		// A new group of this controller has no processors until it is given some.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, readErr := os.ReadFile(filepath.Join(h, file))
			if err == nil && readErr == nil {
				err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
			}
		}
		if err != nil {
			n.c.tb.Fatalf("make a control group for pods: %v", err)
		}
	}
}

// removeGroups removes the node's control groups, which outlive every namespace. Killed processes stay in theirs until
// they have ended.
func (n *Node) removeGroups() {
	n.c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience) // the test's own may have ended
	defer cancel()
	for _, h := range hierarchies() {
		err := eventually.Wait(ctx, "control groups of "+n.Name+" to be empty", func() error {
			var dirs []string
			err := filepath.WalkDir(filepath.Join(h, n.groups()), func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, path)
				}
				return ignoreAbsent(err)
			})
			for _, dir := range slices.Backward(dirs) {
				if err == nil {
					err = ignoreAbsent(os.Remove(dir))
				}
			}
			return err
		})
		if err != nil {
			n.c.tb.Error(err)
		}
	}
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// PowerFailure ends everything on the node at once; what is not on its disk is lost. Don't use it on the node of the
// control plane.
func (n *Node) PowerFailure() {
	n.c.tb.Helper()
	n.init.kill()
	for _, p := range []*process{n.containerd, n.kubelet, n.proxy} {
		p.kill()
	}
}

// Boot starts the node again after a power failure.
func (n *Node) Boot() {
	n.c.tb.Helper()
	n.boot()
	n.startContainerd()
	n.startKubelet()
}

func (n *Node) String() string { return fmt.Sprintf("%s (%s)", n.Name, n.Address) }
