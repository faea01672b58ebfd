// SPDX-License-Identifier: Apache-2.0

// Package bootstrap creates what a cluster needs before the first agent can run, from inside the cluster: the certificates, users and
// members of Calico's own etcd, and the data that an etcd of any kind must have. What exists stays, so it may run any number of times, and
// several at once.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

// Config says what to create. Zero fields have defaults.
type Config struct {
	// Own sets up Calico's own etcd: its members, certificates and users are created too, and Store is not used.
	Own bool
	// Renew keeps in order what Own created: data is written only to an etcd that lost all of it.
	Renew bool
	// Sign answers requests for nodes' certificates until the context ends; SignNSM those of the managers of network services.
	Sign, SignNSM bool
	// Members is the number of members of an own etcd: 1 or 3; 0 is 1.
	Members int
	// Pools are the networks of the default pools; none: kubeadm's. NoPools creates none.
	Pools   []netip.Prefix
	NoPools bool
	// Pool4 and Pool6 are what a default pool of each family is like, its network aside.
	Pool4, Pool6 model.Pool
	// Store is an existing etcd.
	Store  store.Config
	Kube   kube.Config
	Logger *slog.Logger
}

// rootLife is the lifetime of the certificate of etcd's administrator, which is created each time and never kept.
const rootLife = time.Hour

// retryAfter is the pause between two checks of a cluster or an etcd that isn't ready yet.
const retryAfter = 2 * time.Second

type bootstrapper struct {
	cfg  Config
	kube *kube.Client
	log  *slog.Logger
	now  func() time.Time

	whole map[string]bool // users of nodes that this process created or completed
}

// Run creates what is missing, and waits for what it needs: the API, nodes, and an etcd that answers.
func Run(ctx context.Context, cfg Config) error {
	b, err := open(cfg)
	if err != nil {
		return err
	}
	defer b.kube.Close()
	switch {
	case cfg.Sign:
		return b.signEtcd(ctx)
	case cfg.SignNSM:
		return b.signNSM(ctx)
	case cfg.Own:
		return b.own(ctx)
	}
	pools, err := b.pools(ctx)
	if err != nil {
		return err
	}
	return b.data(ctx, cfg.Store, pools)
}

func open(cfg Config) (*bootstrapper, error) {
	client, err := kube.New(cfg.Kube)
	if err != nil {
		return nil, err
	}
	if cfg.Members == 0 {
		cfg.Members = 1
	}
	return &bootstrapper{cfg: cfg, kube: client, log: cfg.Logger, now: time.Now, whole: map[string]bool{}}, nil
}

// own sets up Calico's own etcd. The order follows the dependencies: pods can't start without the contents of the secrets, and find the
// ConfigMap filled when they do. The agents label the members' nodes.
func (b *bootstrapper) own(ctx context.Context) error {
	members, pools, err := b.chosen(ctx)
	if errors.Is(err, errNotChosen) {
		b.log.Info("nothing is renewed", "reason", err)
		return nil
	}
	if err != nil {
		return err
	}
	ca, err := b.authority(ctx, membersConfig, "etcd")
	if err != nil {
		return err
	}
	if err := b.publish(ctx, membersConfig, authorityKey, ca); err != nil {
		return err
	}
	for _, want := range bundles(members) {
		if err := b.ensure(ctx, ca, want); err != nil {
			return err
		}
	}
	cfg, done, err := b.root(ca, members)
	if err != nil {
		return fmt.Errorf("make a certificate for etcd's administrator: %w", err)
	}
	defer done()
	return b.data(ctx, cfg, pools)
}

// root returns the configuration of a client that is etcd's administrator. done removes its certificate.
func (b *bootstrapper) root(ca *authority, members []member) (cfg store.Config, done func(), err error) {
	p, err := ca.issue(leaf{name: store.RootUser, client: true}, b.now(), rootLife)
	if err != nil {
		return cfg, nil, err
	}
	dir, err := os.MkdirTemp("", "calico-bootstrap-") // mode 0700
	if err != nil {
		return cfg, nil, err
	}
	cfg = store.Config{CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"), Logger: b.log}
	for _, m := range members {
		cfg.Endpoints = append(cfg.Endpoints, m.url(clientPort))
	}
	done = func() { _ = os.RemoveAll(dir) } // the pod's own, in memory
	err = errors.Join(os.WriteFile(cfg.CAFile, ca.pem, 0o600), os.WriteFile(cfg.CertFile, p.cert, 0o600), os.WriteFile(cfg.KeyFile, p.key, 0o600))
	if err != nil {
		done()
	}
	return cfg, done, err
}

// data gives etcd its users, if it is our own, and the data that it lacks; with Renew its members give unused space back.
func (b *bootstrapper) data(ctx context.Context, cfg store.Config, pools []netip.Prefix) error {
	etcd, err := store.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }() // everything was answered
	if b.cfg.Own {
		err := b.untilServed(ctx, func() error { return etcd.SetUsers(ctx, users()...) })
		if err != nil {
			return err
		}
	}
	var wrote []string
	err = b.untilServed(ctx, func() (err error) {
		wrote, err = fill(ctx, etcd, pools, b.cfg)
		return err
	})
	if err != nil {
		return err
	}
	b.log.Info("etcd has what Calico needs", "written", fmt.Sprint(wrote))
	if !b.cfg.Renew {
		return nil
	}
	n, err := etcd.Defragment(ctx)
	if n > 0 {
		b.log.Info("members of etcd gave back space that they did not use", "members", n)
	}
	return err
}

// untilServed repeats do while it fails because etcd is unavailable.
func (b *bootstrapper) untilServed(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, store.ErrUnavailable) {
			return err
		}
		b.log.Info("waiting for etcd", "reason", err)
		if err := retry.Wait(ctx, retryAfter); err != nil {
			return err
		}
	}
}
