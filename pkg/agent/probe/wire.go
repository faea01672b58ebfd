// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/calico-go/calico/pkg/agent/board"
	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/kernel/pod"
)

const (
	port = 9    // where the second end answers
	mtu  = 1280 // IPv6's minimum, so that no tunnel needs less
)

// wire is both ends, with a socket for each address of the second.
type wire struct {
	ends       [2]board.ProbeEnd
	namespaces []*pod.Namespace
	answering  []*net.UDPConn
}

// newWire creates both ends. It replaces what a former process on this host left.
func newWire(prefix string, of board.Families) (w *wire, err error) {
	w = new(wire)
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for i := range w.ends {
		if err := w.add(i, prefix+"probe"+strconv.Itoa(i), of); err != nil {
			return nil, fmt.Errorf("make workload %d of the probe: %w", i, err)
		}
	}
	for i := range w.ends[1].Addrs {
		s, err := w.listen(1, i, port)
		if err != nil {
			return nil, fmt.Errorf("listen in the probe's workload: %w", err)
		}
		w.answering = append(w.answering, s)
	}
	return w, nil
}

func (w *wire) add(i int, name string, of board.Families) error {
	if err := link.Delete(name); err != nil {
		return err
	}
	n, err := pod.NewNamespace()
	if err != nil {
		return err
	}
	w.namespaces = append(w.namespaces, n)
	end := board.ProbeEnd{Interface: name, Addrs: board.ProbeAddrs(i, of)}
	end.MAC, _, err = pod.CreateVeth(n, pod.Veth{HostName: name, PodName: "eth0", Alias: link.ProbeAlias, MTU: mtu})
	if err != nil {
		return err
	}
	w.ends[i] = end
	return pod.Configure(n, pod.Net{IfName: "eth0", Addrs: end.Addrs, DefaultV4: of.V4, DefaultV6: of.V6})
}

// listen opens a socket at an end's address; port 0 means any.
func (w *wire) listen(end, i int, port uint16) (s *net.UDPConn, err error) {
	err = w.namespaces[end].Enter(func() error {
		s, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(w.ends[end].Addrs[i], port)))
		return err
	})
	return s, err
}

// stands reports whether both host ends exist.
func (w *wire) stands() bool {
	for _, e := range w.ends {
		if l, err := link.Find(e.Interface); err != nil || l.Alias != link.ProbeAlias {
			return false
		}
	}
	return true
}

// close deletes both ends.
func (w *wire) close() error {
	var errs []error
	for _, s := range w.answering {
		errs = append(errs, s.Close())
	}
	for _, e := range w.ends {
		if e.Interface != "" {
			errs = append(errs, link.Delete(e.Interface))
		}
	}
	for _, n := range w.namespaces {
		n.Close()
	}
	return errors.Join(errs...)
}
