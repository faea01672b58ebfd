// SPDX-License-Identifier: Apache-2.0

// Package crossconnect joins two pods beside the pod network: by a veth with one end in each, or by VXLAN devices that end in them, created
// directly in the pods' namespaces. It changes none of a pod's other interfaces, and nothing on the host.
package crossconnect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespaces are the network namespaces that a process is in or that are mounted: inode → path.
type Namespaces map[uint64]string

// Scan finds all namespaces: the manager must see the node's processes and its mounts below /run/netns.
func Scan() (Namespaces, error) {
	found := Namespaces{}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find network namespaces: %w", err)
	}
	defer func() { _ = mounts.Close() }()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		// 36 35 0:4 net:[4026532281] /run/netns/x rw shared:1 - nsfs nsfs rw (proc_pid_mountinfo(5))
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 {
			found.add(fields[3], unescape(fields[4]))
		}
	}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find network namespaces: %w", err)
	}
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		path := filepath.Join("/proc", d.Name(), "ns/net")
		if target, err := os.Readlink(path); err == nil { // it may have ended
			found.add(target, path)
		}
	}
	return found, nil
}

// add adds a namespace by its name, net:[inode].
func (n Namespaces) add(name, path string) {
	inode, ok := strings.CutPrefix(strings.TrimSuffix(name, "]"), "net:[")
	if !ok {
		return
	}
	if i, err := strconv.ParseUint(inode, 10, 64); err == nil && n[i] == "" {
		n[i] = path
	}
}

// unescape undoes mountinfo's escapes of spaces and the like.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// Own returns the inode of the calling process's namespace.
func Own() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("stat /proc/self/ns/net: %w", err)
	}
	return st.Ino, nil
}

// A Namespace is an open network namespace of a pod. It is not safe for concurrent use.
type Namespace struct {
	path string
	net  ns.NetNS
	conn *rtnl.Conn
}

// Open opens the namespace with an inode. The error wraps os.ErrNotExist if it is gone.
func (n Namespaces) Open(inode uint64) (*Namespace, error) {
	path := n[inode]
	if path == "" {
		return nil, fmt.Errorf("network namespace %d: no process of this node is in it and nothing has mounted it: %w", inode, os.ErrNotExist)
	}
	net, err := ns.GetNS(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %d: %w: %w", inode, err, os.ErrNotExist)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(net.Fd()), &st); err != nil || st.Ino != inode { // the process id is another's now
		_ = net.Close()
		return nil, fmt.Errorf("open network namespace %d: %s is another: %w", inode, path, errors.Join(err, os.ErrNotExist))
	}
	conn, err := rtnl.DialAt(net)
	if err != nil {
		_ = net.Close()
		return nil, fmt.Errorf("open network namespace %d: %w", inode, err)
	}
	return &Namespace{path, net, conn}, nil
}

// Pin holds the namespace open: its inode isn't reused until the pin is closed. Scan doesn't find the namespace by the pin.
func (n *Namespace) Pin() (io.Closer, error) {
	fd, err := unix.FcntlInt(n.net.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("hold network namespace %s: %w", n.path, err)
	}
	return os.NewFile(uintptr(fd), n.path), nil
}

// Close releases the namespace.
func (n *Namespace) Close() {
	n.conn.Close()
	_ = n.net.Close()
}

// links lists the links of the namespace.
func (n *Namespace) links() ([]netlink.Link, error) {
	links, err := rtnl.Dump(n.conn.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces of %s: %w", n.path, err)
	}
	return links, nil
}
