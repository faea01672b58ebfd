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

// leastMTU6 is what IPv6 needs of a link (RFC 8200, 5): the kernel takes IPv6 from one that has less, with all its
// addresses and routes.
const leastMTU6 = 1280

// ShrinkMTU gives the workload interfaces with a greater MTU that one, both ends: the workload's first, so that it doesn't
// send what the host's end would drop without a word. It returns how many it changed. Where the workload's end can't be
// reached the host's stays too: then the workload learns by ICMP how much fits. One that was deleted meanwhile is no
// error; others that can't be changed don't hinder the rest.
func (h *Path) ShrinkMTU(ctx context.Context, mtu int) (changed int, err error) {
	if mtu <= 0 {
		return 0, fmt.Errorf("MTU %d is not positive", mtu)
	}
	conn, err := rtnl.DialAt(h.ns) // its own: what Path does meanwhile need not wait
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

// peers reaches the other ends of this namespace's veths.
type peers struct {
	conn  *rtnl.Conn
	paths map[int]string // of namespaces, by the id that this one has for them; nil = not looked for
}

// shrink sets both ends of a veth, or a link that has no other end.
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
			// The kernel reads links by a namespace's id, but takes the id in a request to change one for where to move it:
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

// find looks for the namespaces that this one has an id for, as mounts, which is how runtimes and ip-netns keep them, and
// processes do.
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
			continue // it has ended, or was another's
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

// mountedNamespaces are the files at which network namespaces are mounted: see proc_pid_mountinfo(5).
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

// mountEscapes turns what mountinfo writes for white space and backslashes back.
func mountEscapes() *strings.Replacer {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
}
