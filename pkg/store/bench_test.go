// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
)

// BenchmarkFirstRead measures etcd's cost for each run of a plugin: open, connect, read once, close. The CPU time is
// that of both sides.
func BenchmarkFirstRead(b *testing.B) {
	lanes := []firstRead{{"plain", startCluster(b, clusterOptions{}), Config{}}}
	for _, kind := range []string{"ecdsa", "rsa"} {
		a := makeAuthority(b, kind == "rsa")
		ca, cert, key := a.files(b, "client")
		lanes = append(lanes, firstRead{kind, startSecure(b, a, 1, true), Config{CAFile: ca, CertFile: cert, KeyFile: key}})
	}
	for _, lane := range lanes {
		lane.cfg.Endpoints = lane.cluster.endpoints()
		b.Run(lane.name, lane.run)
	}
}

type firstRead struct {
	name    string
	cluster *cluster
	cfg     Config
}

func (f firstRead) run(b *testing.B) {
	before := processorTime(b)
	for b.Loop() {
		s, err := Open(b.Context(), f.cfg)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Read(b.Context(), model.KeyRange(model.ReadyKey{}), model.PrefixRange(configs)); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) int64 {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkWatch measures the time from the start of a commit to its update, with one prefix and with several.
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
					done <- s.Watch(ctx, prefixes, func(u model.Update) error { seen <- u.Revision; return nil })
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
