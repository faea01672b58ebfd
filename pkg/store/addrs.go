// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
)

// Addrs are the addresses of etcd's members, as far as they are known: those that
// endpoints are given by, and those that connections have led to.
func (c *Client) Addrs() []netip.Addr {
	var out []netip.Addr
	c.addrs.Range(func(a, _ any) bool {
		out = append(out, a.(netip.Addr))
		return true
	})
	return out
}

// use prepares a member for requests.
func (c *Client) use(m *member) {
	m.connectTimeout = c.dialTimeout
	m.session = c.tls.session(c.sessionDir, m.url, c.log)
	if a, err := netip.ParseAddr(m.host); err == nil {
		c.addrs.Store(plain(a), struct{}{})
	}
	m.note = func(to net.Addr) {
		if tcp, ok := to.(*net.TCPAddr); ok {
			c.addrs.Store(plain(tcp.AddrPort().Addr()), struct{}{})
		}
	}
}

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// noting tells where a connection leads.
type noting struct {
	credentials.TransportCredentials
	note func(net.Addr)
}

func (n noting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	n.note(raw.RemoteAddr())
	return n.TransportCredentials.ClientHandshake(ctx, authority, raw)
}

func (n noting) Clone() credentials.TransportCredentials {
	return noting{n.TransportCredentials.Clone(), n.note}
}

// Names are those of etcd's members that endpoints, or records of DNS, give by name.
func (c *Client) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, m := range c.members {
		if _, err := netip.ParseAddr(m.host); err != nil && m.host != "" {
			out = append(out, m.host)
		}
	}
	return out
}
