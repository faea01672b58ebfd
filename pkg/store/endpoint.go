// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// ParseEndpoints parses a comma-separated list of endpoints.
func ParseEndpoints(list string) (endpoints []string) {
	for e := range strings.SplitSeq(list, ",") {
		if e = strings.TrimSpace(e); e != "" {
			endpoints = append(endpoints, e)
		}
	}
	return endpoints
}

// SetDefaults sets the usual endpoint on this host if neither Endpoints nor DiscoverySRV is set.
func (c *Config) SetDefaults() {
	if len(c.Endpoints) > 0 || c.DiscoverySRV != "" {
		return
	}
	scheme := "http"
	if c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" {
		scheme = "https"
	}
	c.Endpoints = []string{scheme + "://127.0.0.1:2379"}
}

// parseEndpoint parses one endpoint: scheme://host:port, host:port, or the path of a socket.
func parseEndpoint(s string, files *tlsFiles) (*member, error) {
	s = strings.TrimSpace(s)
	bad := func(why string) (*member, error) {
		return nil, fmt.Errorf("etcd endpoint %q: %s: want a URL such as https://10.0.0.1:2379", withoutUser(s), why)
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch scheme = strings.ToLower(scheme); {
	case !ok && files != nil:
		scheme, rest = "https", s
	case !ok:
		scheme, rest = "http", s
	}
	m := &member{tls: files}
	switch scheme {
	case "http", "unix":
		if files != nil {
			return bad("it is plaintext, but TLS files are given; use the scheme " + scheme + "s or drop the files")
		}
	case "https", "unixs":
		m.secure = true
	default:
		return bad("unknown scheme " + scheme)
	}
	if scheme == "unix" || scheme == "unixs" {
		if strings.Trim(rest, "/") == "" {
			return bad("no path")
		}
		m.url = scheme + "://" + rest
		return m, nil
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return bad(err.Error())
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.User != nil || u.Fragment != "" {
		return bad("it has more than a host and a port")
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return bad("no host")
	}
	if strings.IndexFunc(host, notInHost) >= 0 {
		return bad("no host name or address")
	}
	if port == "" {
		port = "2379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("port " + port + ": want 1 to 65535")
	}
	addr := net.JoinHostPort(host, port)
	m.url, m.host = (&url.URL{Scheme: scheme, Host: addr}).String(), host
	return m, nil
}

// withoutUser hides the user and password of a URL, which must not get into a log.
func withoutUser(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	i := strings.LastIndexByte(rest, '@')
	if !ok || i < 0 {
		return s
	}
	return scheme + "://…" + rest[i:]
}

// notInHost reports whether r can't be part of a host name, an address or a zone.
func notInHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-:%", r)
}
