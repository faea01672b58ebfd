// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"slices"

	"github.com/calico-go/calico/pkg/kernel/rtnl"
	"golang.org/x/sys/unix"
)

// Of linux/netconf.h.
const (
	netconfaIfIndex    = 1
	netconfaForwarding = 2
	netconfaRPFilter   = 3
	netconfaProxyNeigh = 5 // proxy_arp, proxy_ndp
	allLinks           = -1
	sizeofNetconfMsg   = 4 // a byte, aligned
)

// conf is what the kernel says of a family's sysctls: by netlink, and in notices, it
// gives only some of them.
type conf struct {
	family uint8
	index  int               // of a link; allLinks: conf/all, of which forwarding is the host's
	values map[uint16]uint32 // by attribute; in a notice only those that were set, or all of a new link
}

// getConf asks for those of a link or of the host.
func getConf(family uint8, index int) *rtnl.Message {
	m := rtnl.NewMessage(unix.RTM_GETNETCONF, 0, []byte{family, 0, 0, 0})
	m.Attr32(netconfaIfIndex, uint32(int32(index)))
	return m
}

// confOf reads the answer.
func confOf(data []rtnl.Received) conf {
	for _, m := range data {
		if m.Kind == unix.RTM_NEWNETCONF {
			return parseConf(m.Body)
		}
	}
	return conf{}
}

func parseConf(body []byte) conf {
	c := conf{values: make(map[uint16]uint32)}
	if len(body) < sizeofNetconfMsg {
		return c
	}
	c.family = body[0]
	rtnl.Attributes(body[sizeofNetconfMsg:], func(kind uint16, data []byte) {
		switch {
		case len(data) != 4:
		case kind == netconfaIfIndex:
			c.index = int(int32(rtnl.Uint32(data)))
		default:
			c.values[kind] = rtnl.Uint32(data)
		}
	})
	return c
}

// isOff says whether the host doesn't forward, as far as was told.
func (c conf) isOff() bool {
	v, told := c.values[netconfaForwarding]
	return told && v == 0
}

// isFor says whether all that was told of a link is as the endpoint wants it.
func (c conf) isFor(e Endpoint) bool {
	return !slices.ContainsFunc(e.settings(c.family), func(s setting) bool {
		v, told := c.values[s.told]
		return told && int32(v) != s.value
	})
}

// noteConf takes in what is told of sysctls. The kernel tells of our own writes as of
// others', and of all that each new link has, so only what isn't as wanted is an event. Nor is
// a link's forwarding while the host is known not to forward: a fight over that is one of thousands of notices.
func (w *watcher) noteConf(e *Event, body []byte) {
	told := parseConf(body)
	s, ours := w.seen[told.index]
	if !ours && told.index != allLinks {
		return
	}
	switch _, switched := told.values[netconfaForwarding]; {
	case !switched:
	case told.index == allLinks:
		w.off[told.family] = told.isOff()
	case w.off[told.family]:
		delete(told.values, netconfaForwarding) // it goes with the host's, and comes with it
	}
	if len(told.values) == 0 {
		return
	}
	link, host := w.path.misset(s.name, told)
	if host {
		e.Forwarding, w.off[told.family] = true, true
	}
	if link {
		e.Interfaces = append(e.Interfaces, s.name)
	}
}

// misset says whether what was told of a workload interface, or of the host, isn't as wanted.
func (h *Path) misset(name string, told conf) (link, host bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	forwards := told.family == unix.AF_INET || h.hostV6
	if told.index == allLinks {
		return false, forwards && told.isOff()
	}
	e := h.desired[name]
	if !e.Active || told.isFor(e) {
		return false, false
	}
	// The host's switch is that of every link too, and is told of for each, of IPv6 before the host's own:
	// a thousand links needn't be read because of it, neither before the host forwards again nor when it does.
	answers, err := h.sock.Do(getConf(told.family, told.index), getConf(told.family, allLinks))
	if err != nil {
		return true, false
	}
	now := confOf(answers[0].Data)
	if host = forwards && confOf(answers[1].Data).isOff(); host {
		delete(now.values, netconfaForwarding)
	}
	return !now.isFor(e), host
}
