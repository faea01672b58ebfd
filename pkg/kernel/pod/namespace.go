// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"os"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is an open network namespace of a workload. It is not safe for concurrent use.
type Namespace struct {
	path string
	net  ns.NetNS
	conn *rtnl.Conn
	made madeVeth
}

// OpenNamespace opens the network namespace that the path refers to. The error wraps os.ErrNotExist if nothing is at the path.
func OpenNamespace(path string) (*Namespace, error) {
	n, err := ns.GetNS(path)
	var missing ns.NSPathNotExistErr
	if errors.As(err, &missing) || errors.Is(err, unix.ESRCH) { // the latter for /proc/<pid>/ns/net of a process that just died
		return nil, fmt.Errorf("open network namespace %s: %w", path, os.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w: want a path like /run/netns/NAME or /proc/PID/ns/net", err)
	}
	if kind, err := unix.IoctlRetInt(int(n.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		_ = n.Close()
		return nil, fmt.Errorf("open network namespace %s: it is not a network namespace: want a path like /run/netns/NAME or /proc/PID/ns/net", path)
	}
	conn, err := rtnl.DialAt(n)
	if err != nil {
		_ = n.Close()
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return &Namespace{path: path, net: n, conn: conn}, nil
}

// Fd returns the open file that refers to the namespace.
func (n *Namespace) Fd() uintptr { return n.net.Fd() }

// Enter runs fn on a thread in the namespace.
func (n *Namespace) Enter(fn func() error) error {
	return n.net.Do(func(ns.NetNS) error { return fn() })
}

// Close releases the namespace; it stays as long as something else holds it.
func (n *Namespace) Close() {
	n.conn.Close()
	_ = n.net.Close()
}

// ForgetNeighbours makes the namespace resolve the addresses that it sends to again, by ARP and neighbour discovery.
func (n *Namespace) ForgetNeighbours() error {
	all, err := rtnl.Dump(func() ([]netlink.Neigh, error) { return n.conn.NeighList(0, unix.AF_UNSPEC) })
	for _, neigh := range all {
		if neigh.State&(unix.NUD_NOARP|unix.NUD_PERMANENT) == 0 {
			if e := n.conn.NeighDel(&neigh); !rtnl.IsGone(e) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}
