// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/ctl"
	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

func quietly(b *testing.B, s *etcd.Server, stdin string, args ...string) {
	b.Helper()
	var errs strings.Builder
	env := &session.Env{Stdin: strings.NewReader(stdin), Stdout: io.Discard, Stderr: &errs, Environ: []string{"ETCD_ENDPOINTS=http://" + s.Addr()}}
	if status := ctl.Run(context.Background(), env, args); status != 0 {
		b.Fatalf("%v: status %d: %s", args, status, &errs)
	}
}

// BenchmarkApply applies 1,000 policies, once new and once changed.
func BenchmarkApply(b *testing.B) {
	for b.Loop() {
		s := etcd.New(b)
		for _, port := range []int{80, 443} {
			var docs strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&docs, "---\napiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: p%d, namespace: ns%d}\n"+
					"spec:\n  selector: app == 'a%d'\n  ingress:\n  - action: Allow\n    protocol: TCP\n    destination: {ports: [%d]}\n", i, i%50, i, port)
			}
			quietly(b, s, docs.String(), "apply", "-f", "-")
		}
		s.Stop()
	}
}

// BenchmarkGet prints 10,000 endpoints.
func BenchmarkGet(b *testing.B) {
	s := etcd.New(b)
	for i := range 100 {
		var change model.Change
		for j := range 100 {
			key := model.WorkloadEndpointKey{Host: fmt.Sprintf("n%d", i), Orchestrator: "k8s", Workload: fmt.Sprintf("default.w%d", j), Endpoint: "eth0"}
			change.Puts = append(change.Puts, model.Put{Key: key, Value: model.WorkloadEndpoint{
				State: model.StateActive, Name: fmt.Sprintf("cali%d", j), Labels: map[string]string{"app": "x"},
				IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j), 1}), 32)},
			}})
		}
		if _, err := s.Store.Commit(b.Context(), change); err != nil {
			b.Fatal(err)
		}
	}
	for _, format := range []string{"wide", "yaml"} {
		b.Run(format, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				quietly(b, s, "", "get", "wep", "-A", "-o", format)
			}
		})
	}
}

// commit writes many keys, several at a time.
func commit(b *testing.B, s *etcd.Server, puts []model.Put) {
	b.Helper()
	for some := range slices.Chunk(puts, 100) {
		if _, err := s.Store.Commit(b.Context(), model.Change{Puts: some}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheck checks 100,000 addresses, each of an endpoint.
func BenchmarkCheck(b *testing.B) {
	s := etcd.New(b)
	pool := netip.MustParsePrefix("10.0.0.0/8")
	puts := []model.Put{{Key: model.PoolKey{CIDR: pool}, Value: model.Pool{CIDR: pool, IPAM: true, BlockSize: 26}}}
	addr := pool.Addr()
	for n := range 100_000 / 64 {
		block := model.Block{CIDR: netip.PrefixFrom(addr, 26), Affinity: fmt.Sprintf("n%d", n%1000)}
		puts = append(puts, model.Put{Key: model.AffinityKey{Host: block.Affinity, CIDR: block.CIDR}, Value: model.Affinity{}})
		for o := range 64 {
			container := fmt.Sprintf("c%d-%d", n, o)
			handle := "cni0." + container + ".eth0"
			block.Allocations = append(block.Allocations, o)
			block.Attributes = append(block.Attributes, model.Attributes{HandleID: handle, Secondary: map[string]string{"node": block.Affinity}})
			puts = append(puts, model.Put{Key: model.HandleKey{ID: handle}, Value: model.Handle{ID: handle, Blocks: map[netip.Prefix]int{block.CIDR: 1}}},
				model.Put{
					Key: model.WorkloadEndpointKey{Host: block.Affinity, Orchestrator: "k8s", Workload: "default." + container, Endpoint: "eth0"},
					Value: model.WorkloadEndpoint{
						State: model.StateActive, Name: fmt.Sprintf("cali%d", o), ContainerID: container,
						IPv4Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)},
					},
				})
			addr = addr.Next()
		}
		puts = append(puts, model.Put{Key: model.BlockKey{CIDR: block.CIDR}, Value: block})
	}
	commit(b, s, puts)
	for b.Loop() {
		quietly(b, s, "", "ipam", "check")
	}
}

// BenchmarkExplain explains a connection among 10,000 policies.
func BenchmarkExplain(b *testing.B) {
	s := etcd.New(b)
	var puts []model.Put
	for i := range 10_000 {
		puts = append(puts, model.Put{Key: model.PolicyKey{Tier: "default", Policy: fmt.Sprintf("ns%d/p%d", i%100, i)}, Value: model.Policy{
			Selector: fmt.Sprintf("calico/k8s_ns == 'ns%d' && app == 'a%d'", i%100, i%10), Inbound: []model.Rule{{Action: model.ActionAllow}}, Types: []model.Direction{model.Inbound},
		}})
	}
	for i := range 1000 {
		puts = append(puts, model.Put{Key: model.WorkloadEndpointKey{Host: fmt.Sprintf("n%d", i%10), Orchestrator: "k8s", Workload: fmt.Sprintf("ns%d.w%d", i%100, i), Endpoint: "eth0"}, Value: model.WorkloadEndpoint{
			State: model.StateActive, Name: fmt.Sprintf("cali%d", i), ProfileIDs: []string{"open"}, Labels: map[string]string{"calico/k8s_ns": fmt.Sprintf("ns%d", i%100), "app": fmt.Sprintf("a%d", i%10)},
			IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)},
		}})
	}
	puts = append(puts, model.Put{Key: model.ProfileRulesKey{Profile: "open"}, Value: model.Rules{Outbound: []model.Rule{{Action: model.ActionAllow}}}})
	commit(b, s, puts)
	for b.Loop() {
		quietly(b, s, "", "explain", "ns1/w1", "to", "ns2/w2", "tcp:80")
	}
}
