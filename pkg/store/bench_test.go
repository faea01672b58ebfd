// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

// BenchmarkFirstRead is what each run of a plugin pays for etcd: open, connect,
// read once, close.
func BenchmarkFirstRead(b *testing.B) {
	a := newAuthority(b)
	ca, cert, key := a.files(b, "client")
	for _, bb := range []struct {
		name    string
		cluster *cluster
		cfg     Config
	}{
		{"plain", startCluster(b, clusterOptions{}), Config{}},
		{"tls", startSecure(b, a, 1, true), Config{CAFile: ca, CertFile: cert, KeyFile: key}},
	} {
		bb.cfg.Endpoints = []string{bb.cluster.members[0].clientAddr}
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				s, err := Open(b.Context(), bb.cfg)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Read(b.Context(), Key(model.ReadyKey{}), Prefix(configs)); err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// BenchmarkWatch is the time from the start of a commit to its update, with one
// prefix and with several, whose events are joined.
func BenchmarkWatch(b *testing.B) {
	c := startCluster(b, clusterOptions{})
	s := open(b, Config{Endpoints: []string{c.members[0].clientAddr}})
	for _, prefixes := range [][]string{nil, {configs}, {configs, hosts, "/calico/ipam/v2/handle/"}} {
		b.Run(fmt.Sprint("prefixes=", len(prefixes)), func(b *testing.B) {
			ctx, cancel := context.WithCancel(context.Background())
			seen, done := make(chan int64, 1), make(chan error, 1)
			if prefixes == nil {
				done <- nil // the commit alone
			} else {
				go func() {
					done <- s.Watch(ctx, prefixes, func(u Update) error { seen <- u.Revision; return nil })
				}()
				<-seen
			}
			for b.Loop() {
				rev, err := s.Commit(ctx, model.Change{Puts: []model.Put{put("A", "1")}})
				if err != nil {
					b.Fatal(err)
				}
				for prefixes != nil && <-seen < rev {
				}
			}
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
}
