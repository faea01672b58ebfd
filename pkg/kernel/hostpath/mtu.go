// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// leastMTU6 is the minimum for IPv6 (RFC 8200, 5): a link with less loses IPv6, with all its addresses and routes.
const leastMTU6 = 1280

// ShrinkMTU sets the MTU of workload interfaces with a greater one, on both ends: the workload's first, so that it doesn't send what the
// host's end would drop silently. It returns how many it changed. If the workload's end can't be reached the host's stays too: then the
// workload learns the MTU by ICMP. A link deleted meanwhile is no error; links that can't be changed don't stop the rest.
func (h *Path) ShrinkMTU(ctx context.Context, mtu int) (changed int, err error) {
	if mtu <= 0 {
		return 0, fmt.Errorf("MTU %d is not positive", mtu)
	}
	conn, err := rtnl.DialAt(h.ns) // its own, so that Path's other work need not wait
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	links, err := link.Select(conn, h.cfg.owns)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(links, func(a, b link.Link) int { return strings.Compare(a.Name, b.Name) })
	var refused []error
	p := peers{conn: conn}
	for _, l := range links {
		if err := ctx.Err(); err != nil {
			return changed, errors.Join(append(refused, err)...)
		}
		did, err := p.shrink(l, mtu)
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, os.ErrNotExist) {
			refused = append(refused, fmt.Errorf("set MTU of %s to %d: %w", l.Name, mtu, err))
		} else if did && err == nil {
			changed++
		}
	}
	return changed, errors.Join(refused...)
}

// peers accesses the other ends of this namespace's veths.
type peers struct {
	conn  *rtnl.Conn
	paths map[int]string // of namespaces, by this one's id for them; nil = not searched yet
}

// shrink sets the MTU of both ends of a veth, or of a link without another end.
func (p *peers) shrink(l link.Link, mtu int) (did bool, err error) {
	if l.Kind == "veth" && l.PeerNSID >= 0 && l.Parent != 0 {
		peer, err := link.GetPeer(p.conn, l)
		if err != nil {
			return false, fmt.Errorf("read the workload's end: %w", err)
		}
		if mtu < leastMTU6 && peer.Inet6 && max(l.MTU, peer.MTU) > mtu {
			return false, fmt.Errorf("it is less than %d: the workload would lose IPv6", leastMTU6)
		}
		if peer.MTU > mtu {
			// The kernel can read links by a namespace's id, but in a request to change one it takes the id for the place to move it to:
			// the namespace has to be opened.
			if err := p.setThere(l, mtu); err != nil {
				return false, fmt.Errorf("at the workload's end: %w", err)
			}
			did = true
		}
	}
	if l.MTU <= mtu {
		return did, nil
	}
	return true, p.conn.LinkSetMTU(rtnl.Device(l.Index), mtu)
}

func (p *peers) setThere(l link.Link, mtu int) error {
	if p.paths == nil {
		p.paths = make(map[int]string)
		if err := p.find(); err != nil {
			return err
		}
	}
	path, found := p.paths[l.PeerNSID]
	if !found {
		return errors.New("its network namespace is neither mounted where the agent sees it nor a visible process's: the agent needs the host's /run/netns and process ids")
	}
	n, err := ns.GetNS(path)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	there, err := rtnl.DialAt(n)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer there.Close()
	return there.LinkSetMTU(rtnl.Device(l.Parent), mtu)
}

// find searches the namespaces that this one has an id for, among mounts, which is how runtimes and ip-netns keep them, and processes.
func (p *peers) find() error {
	paths, err := mountedNamespaces()
	if err != nil {
		return err
	}
	found, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	paths = append(paths, found...)
	seen := make(map[uint64]bool)
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[st.Ino] {
			continue // it has ended, or was seen already
		}
		seen[st.Ino] = true
		n, err := ns.GetNS(path)
		if err != nil {
			continue // gone, or no namespace
		}
		id, err := p.conn.GetNetNsIdByFd(int(n.Fd()))
		_ = n.Close()
		if err != nil {
			return fmt.Errorf("ask for the id of namespace %s: %w", path, err)
		}
		if id >= 0 {
			p.paths[id] = path
		}
	}
	return nil
}

// mountedNamespaces returns the files at which network namespaces are mounted: see proc_pid_mountinfo(5).
func mountedNamespaces() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return namespaceMounts(string(data)), nil
}

func namespaceMounts(mountinfo string) []string {
	var paths []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[3], "net:[") {
			paths = append(paths, mountEscapes().Replace(fields[4]))
		}
	}
	return paths
}

// mountEscapes undoes mountinfo's escapes of white space and backslashes.
func mountEscapes() *strings.Replacer {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
}
