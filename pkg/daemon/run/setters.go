// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/store"
)

// Text sets a text, without surrounding white space.
func Text(p *string) func(string) error {
	return func(s string) error {
		*p = strings.TrimSpace(s)
		return nil
	}
}

// File sets the path of a file that can be read, or "".
func File(p *string) func(string) error {
	return func(s string) error {
		if *p = strings.TrimSpace(s); *p == "" {
			return nil
		}
		f, err := os.Open(*p)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

// Absolute sets an absolute path.
func Absolute(p *string) func(string) error {
	return func(s string) error {
		if !filepath.IsAbs(s) {
			return fmt.Errorf("%q: want an absolute path", s)
		}
		*p = filepath.Clean(s)
		return nil
	}
}

// Bool sets a boolean.
func Bool(p *bool) func(string) error {
	return func(s string) (err error) {
		if *p, err = strconv.ParseBool(s); err != nil {
			return fmt.Errorf("%q: want true or false", s)
		}
		return nil
	}
}

// Count sets a non-negative number.
func Count(p *int) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			return fmt.Errorf("%q: want a number of 0 to %d", s, math.MaxInt32)
		}
		*p = int(n)
		return nil
	}
}

// address sets where to serve: see serving.ParseAddress.
func address(p *serving.Address) func(string) error {
	return func(s string) (err error) {
		*p, err = serving.ParseAddress(s)
		return err
	}
}

// levelOption is the option of the log's level.
func levelOption(p *slog.LevelVar) Option {
	return Option{Flag: "log-level", Variable: "LOG_LEVEL", Initial: "info", Help: "debug, info, warning or error", Set: func(s string) error {
		level, ok := map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "warn": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError,
		}[strings.ToLower(strings.TrimSpace(s))]
		if !ok {
			return fmt.Errorf("%q: want debug, info, warning or error", s)
		}
		p.Set(level)
		return nil
	}}
}

// Etcd returns the options for reaching etcd and for the client's identity there.
func Etcd(c *store.Config) []Option {
	endpoints := func(s string) error {
		c.Endpoints = store.ParseEndpoints(s)
		return nil
	}
	return []Option{
		{Flag: "etcd-endpoints", Variable: "ETCD_ENDPOINTS", Help: "comma list of URLs of etcd; default: http://127.0.0.1:2379, https with certificate files", Set: endpoints},
		{Flag: "etcd-discovery-srv", Variable: "ETCD_DISCOVERY_SRV", Help: "domain whose SRV records name etcd, instead of endpoints", Set: Text(&c.DiscoverySRV)},
		{Flag: "etcd-ca-cert-file", Variable: "ETCD_CA_CERT_FILE", Help: "certificate of who signed etcd's; default: the system's roots", Set: File(&c.CAFile)},
		{Flag: "etcd-cert-file", Variable: "ETCD_CERT_FILE", Help: "certificate of this client", Set: File(&c.CertFile)},
		{Flag: "etcd-key-file", Variable: "ETCD_KEY_FILE", Help: "key of this client's certificate", Set: File(&c.KeyFile)},
		{Flag: "etcd-username", Variable: "ETCD_USERNAME", Help: "user of etcd", Set: Text(&c.Username)},
		{Flag: "etcd-password-file", Variable: "ETCD_PASSWORD_FILE", Help: "file with the user's password", Set: File(&c.PasswordFile)},
	}
}

// Duration sets a time that is more than 0, such as 30s.
func Duration(p *time.Duration) func(string) error {
	return func(s string) (err error) {
		if *p, err = time.ParseDuration(strings.TrimSpace(s)); err != nil || *p <= 0 {
			return fmt.Errorf("%q: want a time such as 500ms, 30s or 2m", s)
		}
		return nil
	}
}
