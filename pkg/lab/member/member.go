// SPDX-License-Identifier: Apache-2.0

// Package member runs one etcd member of a lab in its own process, so that it can be killed and started again like a
// real one.
package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/calico-go/calico/pkg/lab"
)

// Run runs a member until ctx ends. It logs to stderr.
func Run(ctx context.Context, cfg lab.MemberConfig) error {
	ec, err := etcdConfig(cfg)
	if err != nil {
		return err
	}
	// Left by a killed member; etcd would refuse to listen.
	for _, u := range ec.ListenClientUrls {
		if u.Scheme == "unix" || u.Scheme == "unixs" {
			if err := removeSocket(u.Path); err != nil {
				return err
			}
		}
	}
	etcd, err := embed.StartEtcd(ec)
	if err != nil {
		return fmt.Errorf("start etcd member %s: %w", cfg.Name, err)
	}
	defer etcd.Close()
	if err := removeSocket(cfg.Control); err != nil {
		return err
	}
	listener, err := net.Listen("unix", cfg.Control)
	if err != nil {
		return err
	}
	control := &http.Server{Handler: newControl(etcd.Server), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 2)
	go func() {
		if err := control.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve %s: %w", cfg.Control, err)
		}
	}()
	defer control.Close()

	select {
	case <-etcd.Server.ReadyNotify():
	case <-etcd.Server.StopNotify():
		return fmt.Errorf("etcd member %s stopped before it was ready", cfg.Name)
	case <-ctx.Done():
		return nil
	}
	if len(cfg.Users) > 0 {
		if err := enableAuth(ctx, etcd.Server, cfg.Users); err != nil {
			return fmt.Errorf("switch on authentication: %w", err)
		}
	}
	select {
	case err := <-etcd.Err():
		return fmt.Errorf("etcd member %s: %w", cfg.Name, err)
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func etcdConfig(cfg lab.MemberConfig) (*embed.Config, error) {
	ec := embed.NewConfig()
	ec.Name = cfg.Name
	ec.Dir = filepath.Join(cfg.DataDir, cfg.Name)
	ec.LogLevel = "warn"
	ec.UnsafeNoFsync = cfg.NoFsync
	ec.QuotaBackendBytes = cfg.Quota
	ec.InitialCluster = cfg.Cluster
	ec.InitialClusterToken = "calico-lab"
	if cfg.CAFile != "" {
		ec.ClientTLSInfo = transport.TLSInfo{
			CertFile: cfg.CertFile, KeyFile: cfg.KeyFile, TrustedCAFile: cfg.CAFile, ClientCertAuth: true,
		}
	}
	ec.ListenClientUrls, ec.AdvertiseClientUrls = nil, nil
	for _, raw := range cfg.ClientURLs {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, err
		}
		ec.ListenClientUrls = append(ec.ListenClientUrls, *u)
		if u.Scheme == "http" || u.Scheme == "https" {
			ec.AdvertiseClientUrls = append(ec.AdvertiseClientUrls, *u)
		}
	}
	peer, err := url.Parse(cfg.PeerURL)
	if err != nil {
		return nil, err
	}
	ec.ListenPeerUrls, ec.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	return ec, nil
}

func removeSocket(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
