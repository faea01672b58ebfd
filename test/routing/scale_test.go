// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/lab"
	"github.com/calico-go/calico/test/long"
)

const (
	otherHosts = 500
	blocksEach = 10
)

// TestManyHosts has an agent start in a large cluster: all routes are there, and
// one more block leads to one more. Figures are logged.
func TestManyHosts(t *testing.T) {
	long.Test(t)
	pool := netip.MustParsePrefix("10.64.0.0/10")
	r := &trio{T: t, lab: lab.ForTest(t, lab.Config{Pools: []netip.Prefix{pool}, Pool: encap(model.EncapAlways), NoFsync: true, Log: io.Discard})}
	r.commit(model.Change{Puts: []model.Put{{Key: model.BGPMeshKey{}, Value: model.Mesh{}}}})
	var puts []model.Put
	for i := range otherHosts {
		name := fmt.Sprintf("other-%d", i)
		puts = append(puts, model.Put{Key: model.HostMetadataKey{Host: name}, Value: model.HostMetadata{}},
			model.Put{Key: model.BGPHostKey{Host: name, Field: model.BGPHostIPv4}, Value: model.Text(fmt.Sprintf("172.20.%d.%d", 200+i/250, 1+i%250))})
		for j := range blocksEach {
			puts = append(puts, blockOf(i*blocksEach+j, name))
		}
	}
	for chunk := range slices.Chunk(puts, 100) {
		r.commit(model.Change{Puts: chunk})
	}
	start := time.Now()
	h, err := r.lab.AddHost(r.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r.hosts = append(r.hosts, h)
	count := func() int { return strings.Count(r.run(0, "ip", "-4", "route", "show", "proto", "81"), "via") }
	r.until("all routes", func() bool { return count() == otherHosts*blocksEach })
	t.Logf("cold start to %d routes in the kernel: %v", count(), time.Since(start).Round(time.Millisecond))
	agent, err := h.Agent().Process()
	if err != nil {
		t.Fatal(err)
	}
	idle := cpu(t, agent.PID)
	for n := range 20 { // another host reports, and claims a block
		name := fmt.Sprintf("other-%d", n)
		r.commit(model.Change{Puts: []model.Put{{Key: model.LastStatusKey{Host: name}, Value: model.Status{Time: time.Unix(0, 0).UTC()}}, {Key: model.StatusKey{Host: name}, Value: model.Status{Time: time.Unix(0, 0).UTC()}}}})
		p := blockOf(otherHosts*blocksEach+n, name)
		dst := p.Key.(model.BlockKey).CIDR.String()
		start := time.Now()
		r.commit(model.Change{Puts: []model.Put{p}})
		r.until("route to "+dst, func() bool { return r.run(0, "ip", "route", "show", dst) != "" })
		if n%10 == 9 {
			t.Logf("one more block to its route, by a look each 10 ms: %v", time.Since(start).Round(time.Millisecond))
		}
	}
	t.Logf("its CPU time for 60 changes: %v", cpu(t, agent.PID)-idle)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "VmRSS") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// blockOf is the nth block of the pool, a host's, with nothing in it.
func blockOf(n int, host string) model.Put {
	a := netip.AddrFrom4([4]byte{10, byte(64 + n>>10), byte(n >> 2), byte(n << 6)})
	b := model.Block{CIDR: netip.PrefixFrom(a, 26), Affinity: host}
	for i := range b.Size() {
		b.Allocations, b.Unallocated = append(b.Allocations, model.Free), append(b.Unallocated, i)
	}
	return model.Put{Key: model.BlockKey{CIDR: b.CIDR}, Value: b}
}

// cpu is what a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
