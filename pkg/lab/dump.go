// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// StoreConfig returns the configuration with which a process outside the lab's namespaces reaches its etcd.
func (l *Lab) StoreConfig() store.Config {
	cfg := store.Config{Endpoints: l.members.Sockets()}
	if l.state.TLS {
		cfg.CAFile, cfg.CertFile, cfg.KeyFile = l.members.PKI("ca.crt"), l.members.PKI("client.crt"), l.members.PKI("client.key")
	}
	if l.state.Auth {
		cfg.Username, cfg.PasswordFile = EtcdUser, l.members.PasswordFile()
	}
	return cfg
}

// Etcd returns a client of the lab's etcd, which Close closes.
func (l *Lab) Etcd() *store.Client {
	c, err := l.OpenEtcd()
	if err != nil {
		l.fatal(err)
	}
	return c
}

// OpenEtcd is Etcd for use outside tests.
func (l *Lab) OpenEtcd() (*store.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		c, err := store.Open(context.Background(), l.StoreConfig())
		if err != nil {
			return nil, err
		}
		l.client = c
	}
	return l.client, nil
}

// seed writes what an operator would have set up: the Ready flag, pools, and that pods may talk to their host, for
// which the default is DROP.
func (l *Lab) seed(ctx context.Context) error {
	var change model.Change
	if !l.cfg.NoReady {
		change.Puts = append(change.Puts,
			model.Put{Key: model.ReadyKey{}, Value: model.Ready(true)},
			model.Put{Key: model.GlobalConfigKey{Name: "DefaultEndpointToHostAction"}, Value: model.Text("ACCEPT")})
	}
	for _, pool := range l.cfg.pools() {
		change.Puts = append(change.Puts, model.Put{Key: model.PoolKey{CIDR: pool.CIDR}, Value: pool})
	}
	if change.Empty() {
		return nil
	}
	c, err := l.OpenEtcd()
	if err != nil {
		return err
	}
	_, err = c.Commit(ctx, change)
	return err
}

// pools returns the initial pools of the lab.
func (cfg Config) pools() []model.Pool {
	pools := make([]model.Pool, 0, len(cfg.Pools))
	for _, cidr := range cfg.Pools {
		pool := model.Pool{CIDR: cidr, IPAM: true, BlockSize: max(model.DefaultBlockSize(cidr.Addr().Is6()), cidr.Bits())}
		if cfg.Pool != nil {
			cfg.Pool(&pool)
		}
		pools = append(pools, pool)
	}
	return pools
}

// Dump reads everything below /calico/, and returns its revision.
func (l *Lab) Dump(ctx context.Context) ([]model.Entry, int64, error) { return l.DumpAt(ctx, 0) }

// DumpAt reads everything below /calico/ at a revision; 0 is now. It bypasses etcd's API, and so the code under test.
func (l *Lab) DumpAt(ctx context.Context, revision int64) ([]model.Entry, int64, error) {
	r, err := l.RawAt(ctx, model.Root, revision)
	if err != nil {
		return nil, 0, err
	}
	entries := make([]model.Entry, 0, len(r.Keys))
	for _, k := range r.Keys {
		entries = append(entries, parseEntry(k))
	}
	return entries, r.Revision, nil
}

// RawAt reads all keys with a prefix at a revision; 0 is now.
func (l *Lab) RawAt(ctx context.Context, prefix string, revision int64) (MemberRange, error) {
	return l.members.readRange(ctx, prefix, revision)
}

func parseEntry(k MemberKey) model.Entry {
	e := model.Entry{Path: k.Key, Revision: k.Modified, Created: k.Created}
	if e.Key, e.Err = model.ParseKey(k.Key); e.Err == nil {
		e.Value, e.Err = model.ParseValue(e.Key, k.Value)
	}
	return e
}
