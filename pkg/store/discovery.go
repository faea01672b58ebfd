// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// discover looks up the members in DNS. Records of the TLS service take precedence. If there are TLS files, it doesn't
// even query the plain service, so that an attacker who controls DNS can't make the client use plaintext.
func discover(ctx context.Context, lookup lookupSRV, domain string, files *tlsFiles) ([]*member, error) {
	var errs []error
	for _, s := range []struct {
		service, scheme string
		files           *tlsFiles
	}{
		{"etcd-client-ssl", "https", files},
		{"etcd-client", "http", nil},
	} {
		if s.scheme == "http" && files != nil {
			break
		}
		_, records, err := lookup(ctx, s.service, "tcp", domain)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var members []*member
		for _, r := range records {
			addr := net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port)))
			m, err := parseEndpoint(s.scheme+"://"+addr, s.files)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			members = append(members, m)
		}
		if len(members) > 0 {
			return members, nil
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no records"))
	}
	return nil, fmt.Errorf("DNS discovery of etcd in %s: %w", domain, errors.Join(errs...))
}

// member returns the current member and the number of members.
func (c *Client) member(ctx context.Context) (*member, int, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, 1, errClosed
	}
	if len(c.members) > 0 && !c.stale {
		defer c.mu.Unlock()
		return c.members[c.current], len(c.members), nil
	}
	c.mu.Unlock()

	found, err := discover(ctx, c.lookup, c.cfg.DiscoverySRV, c.tls)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, 1, errClosed
	case err != nil && len(c.members) == 0:
		return nil, 1, err
	case err == nil:
		c.adopt(found)
	}
	c.stale = false
	return c.members[c.current], len(c.members), nil
}

// adopt replaces the members, keeping those found again. c.mu must be held.
func (c *Client) adopt(found []*member) {
	old := make(map[string]*member, len(c.members))
	for _, m := range c.members {
		old[m.url] = m
	}
	for i, m := range found {
		c.use(m)
		if o := old[m.url]; o != nil {
			found[i] = o
			delete(old, m.url)
		}
	}
	for _, m := range old {
		m.close()
	}
	c.members, c.current = found, 0
}

// failover moves on to the next member after m did not answer.
func (c *Client) failover(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[c.current] != m {
		return // another request did already
	}
	c.current++
	if c.current == len(c.members) {
		c.current = 0
		c.stale = c.cfg.DiscoverySRV != ""
	}
}
