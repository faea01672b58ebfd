// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// startGRPCProxy serves the cluster like "etcd grpc-proxy", and returns its address.
func startGRPCProxy(t *testing.T, c *cluster) string {
	t.Helper()
	log, to := zap.NewNop(), c.admin()
	kv, kvDone := grpcproxy.NewKvProxy(to)
	watch, watchDone := grpcproxy.NewWatchProxy(to.Ctx(), log, to)
	lease, leaseDone := grpcproxy.NewLeaseProxy(to.Ctx(), to)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterKVServer(s, kv)
	pb.RegisterWatchServer(s, watch)
	pb.RegisterLeaseServer(s, lease)
	pb.RegisterMaintenanceServer(s, grpcproxy.NewMaintenanceProxy(to))
	pb.RegisterAuthServer(s, grpcproxy.NewAuthProxy(to))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = to.Close() // ends the proxies
		for _, done := range []<-chan struct{}{kvDone, watchDone, leaseDone} {
			<-done
		}
	})
	return l.Addr().String()
}

// TestGRPCProxy uses several clients behind etcd's proxy, which makes one watch for all clients that ask for the same,
// and leaves out what it considers unnecessary.
func TestGRPCProxy(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	at := startGRPCProxy(t, c)
	clients := [3]*Client{}
	var watchers [len(clients)]folded
	var last int64
	for i := range clients {
		clients[i] = open(t, Config{Endpoints: []string{at}})
		watchers[i].start(t, clients[i], configs, hosts)
		last = commit(t, clients[i], model.Change{Puts: []model.Put{put("A", fmt.Sprint(i)), hostPut("A", fmt.Sprint(i))}})
		for j := range i + 1 {
			watchers[j].reaches(t, last)
		}
	}
	admin := c.admin()
	for i := range 20 {
		if _, err := admin.Put(within(t, eventually.Limit), "/elsewhere", fmt.Sprint(i)); err != nil { // etcd is not ours alone
			t.Fatal(err)
		}
		last = commit(t, clients[i%3], model.Change{Puts: []model.Put{put("B", fmt.Sprint(i)), hostPut("B", fmt.Sprint(i))}})
		for j := range watchers {
			watchers[j].reaches(t, last)
		}
	}
	c.members[0].stop() // and the proxy stays
	if err := c.members[0].start(); err != nil {
		t.Fatal(err)
	}
	last = commit(t, clients[0], model.Change{Puts: []model.Put{put("C", "1")}, Deletes: []model.Key{configKey("A"), hostKey("A")}})
	want := map[string]string{configs + "B": "19", hosts + "h/config/B": "19", configs + "C": "1"}
	for j := range watchers {
		watchers[j].reaches(t, last)
		if got := watchers[j].values(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("watcher %d knows %v", j, got)
		}
	}
	lease, err := clients[0].Lease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	last, err = clients[0].Transact(t.Context(), nil, func(*model.View) (model.Change, error) {
		return model.Change{Puts: []model.Put{put("L", "1")}}, nil
	}, UnderLease(lease))
	if err != nil {
		t.Fatal(err)
	}
	watchers[2].reaches(t, last)
	if err := lease.Close(); err != nil {
		t.Error(err)
	}
	for j := range watchers {
		eventually.True(t, "what had the lease is gone", func() bool { return fmt.Sprint(watchers[j].values()) == fmt.Sprint(want) })
	}
}
