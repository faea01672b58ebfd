// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// TestModeChanges has pools change their encapsulation while pods talk, and one host hear of it later than the others: no kernel
// is without a route meanwhile, also where no host waits until the others have a tunnel, as they have that for other pools.
func TestModeChanges(t *testing.T) {
	long.Test(t)
	for name, others := range map[string][]netip.Prefix{
		"new tunnels":            nil,
		"tunnels of other pools": {netip.MustParsePrefix("10.77.0.0/16"), netip.MustParsePrefix("fd77::/48")},
	} {
		t.Run(name, func(t *testing.T) { changeModes(t, others) })
	}
}

func changeModes(t *testing.T, others []netip.Prefix) {
	// Where reverse paths are filtered strictly, packets are lost in the milliseconds in which one host has heard of a change and the
	// other has not.
	r := newTrio(t, lab.Config{Pool: encap(model.EncapNever), Hostile: len(others) == 0})
	r.all()
	for _, p := range r.pods { // a process of each is how the agent finds its namespace
		if _, err := p.Start("sleep-"+p.Name(), "sleep", "600"); err != nil {
			t.Fatal(err)
		}
	}
	r.setMode(model.EncapAlways, others...)
	r.awaitTunnels(len(others))
	r.awaitBGP(model.EncapNever)
	var streams []*stream
	for _, a := range r.pods[1].Addrs() {
		streams = append(streams, r.stream(r.pods[0], a))
	}
	var logs []*routeLog
	for i := range r.hosts {
		logs = append(logs, r.logRoutes(i))
	}
	slowest := make([]int, len(streams)) // requests that were sent while a mode changed
	late := false
	for _, mode := range []model.EncapMode{
		model.EncapAlways, model.EncapCrossSubnet, model.EncapAlways, model.EncapNever, model.EncapAlways, model.EncapNever,
	} {
		before := requests(streams)
		begin := r.change(mode)
		for i, n := range requests(streams) {
			slowest[i] = max(slowest[i], n-before[i])
		}
		for _, s := range streams {
			lost, longest := r.settled(s)
			t.Logf("to %s, mode %s: %d of %d lost so far, %d in a row", s.to, nameOf(mode), lost, s.requests(), longest)
		}
		r.all()
		r.awaitBGP(mode)
		for i, l := range logs {
			if l.check(begin, mode) && i < last {
				late = true
			}
		}
		if mode == model.EncapAlways {
			r.shrunk()
		}
	}
	for i, s := range streams {
		// None is lost where a tunnel is there, and where hosts have a new one within the time that it takes packets
		// without any being sent. A busy machine may take longer for that.
		if len(others) > 0 && !late {
			// What a busy machine drops by itself is one here and there; without a route it was 40 and more.
			if lost, longest := r.settled(s); longest > 3 {
				t.Errorf("to %s: %d of %d requests were lost, %d in a row", s.to, lost, s.requests(), longest)
			}
		} else if _, longest := r.settled(s); longest > max(200, slowest[i]) {
			t.Errorf("to %s: %d requests in a row were lost; while a mode changed %d were sent at most", s.to, longest, slowest[i])
		}
	}
	r.setMode(model.EncapNever, others...)
	r.awaitTunnels(0)
}

// last is the host that hears of changes when the others have made them. No stream is its pod's.
const last = 2

// change changes the mode of the pools that pods are in, and returns when that began.
func (r *trio) change(mode model.EncapMode) (begin time.Time) {
	r.Helper()
	if err := r.lab.PartitionFromEtcd(r.hosts[last].Name()); err != nil {
		r.Fatal(err)
	}
	begin = time.Now()
	r.setMode(mode, lab.DefaultPools()...)
	for i := range last {
		r.routed(i, mode)
	}
	if err := r.lab.Heal(); err != nil {
		r.Fatal(err)
	}
	r.routed(last, mode)
	return begin
}

// setMode gives pools an encapsulation, in one transaction.
func (r *trio) setMode(mode model.EncapMode, pools ...netip.Prefix) {
	r.Helper()
	var c model.Change
	for _, p := range pools {
		c.Puts = append(c.Puts, model.Put{Key: model.PoolKey{CIDR: p}, Value: model.Pool{
			CIDR: p, VXLANMode: mode, IPIPMode: model.EncapNever, IPAM: true, BlockSize: model.DefaultBlockSize(p.Addr().Is6()),
		}})
	}
	if len(pools) > 0 {
		r.commit(c)
	}
}

// awaitTunnels waits until each host has so many that are up.
func (r *trio) awaitTunnels(n int) {
	r.Helper()
	for i, h := range r.hosts {
		r.until(fmt.Sprintf("%d tunnels on host %s", n, h.Name()), func() bool {
			links := r.run(i, "ip", "-o", "link", "show", "type", "vxlan")
			return strings.Count(links, "\n") == n && strings.Count(links, ",UP,") == n
		})
	}
}

// routed waits until a host has the routes of a mode.
func (r *trio) routed(host int, mode model.EncapMode) {
	r.Helper()
	device := "dev eth0"
	if mode == model.EncapAlways {
		device = "calico"
	}
	r.until(r.hosts[host].Name()+" has routes of mode "+nameOf(mode), func() bool {
		for j := range r.hosts {
			if routes := r.routesTo(host, j); host != j && (len(routes) != 2 || strings.Count(strings.Join(routes, "\n"), device) != 2) {
				return false
			}
		}
		return true
	})
}

// awaitBGP waits until BGP has told of all blocks, or has withdrawn them, as the mode has it.
func (r *trio) awaitBGP(mode model.EncapMode) {
	r.Helper()
	blocks := 0
	if mode == model.EncapNever {
		blocks = 2 * (len(r.hosts) - 1)
	}
	for i, h := range r.hosts {
		r.until(fmt.Sprintf("host %s has %d blocks by BGP", h.Name(), blocks), func() bool {
			return strings.Contains(r.metrics(i), fmt.Sprintf("calico_node_bgp_received_prefixes %d\n", blocks))
		})
	}
}

// shrunk waits until running pods have the MTU that VXLAN of IPv6 leaves.
func (r *trio) shrunk() {
	r.Helper()
	r.until("running pods have the smaller MTU", func() bool {
		for _, p := range r.pods {
			out, err := p.Exec(r.ctx(), "ip", "-o", "link", "show", "eth0")
			if err != nil || !strings.Contains(string(out), " mtu 1430 ") {
				return false
			}
		}
		return true
	})
}

// routeLog is what becomes of a host's routes to the pods of others, as its kernel tells.
type routeLog struct {
	*trio
	host  int
	path  string
	read  int // bytes
	marks int
}

func (r *trio) logRoutes(host int) *routeLog {
	r.Helper()
	p, err := r.hosts[host].Start("routes-"+r.hosts[host].Name(), "ip", "-ts", "monitor", "route")
	if err != nil {
		r.Fatal(err)
	}
	l := &routeLog{trio: r, host: host, path: p.Log}
	l.next()
	return l
}

// next are the lines since the last time. They are all there when a route that is made now is.
func (l *routeLog) next() (lines []string) {
	l.Helper()
	l.until("the kernel of host "+l.hosts[l.host].Name()+" tells of routes", func() bool {
		l.marks++
		mark := fmt.Sprintf("198.51.%d.%d", l.marks/256, l.marks%256)
		l.run(l.host, "ip", "route", "add", "blackhole", mark)
		l.run(l.host, "ip", "route", "del", "blackhole", mark)
		data, err := os.ReadFile(l.path)
		if err != nil {
			l.Fatal(err)
		}
		text, _, found := strings.Cut(string(data[l.read:]), " "+mark+" ")
		if found {
			l.read += len(text)
			lines = strings.Split(text, "\n")
		}
		return found
	})
	return lines
}

// withdrawTime is how long BGP tells on of blocks that have come to be encapsulated.
const withdrawTime = 2 * time.Second

// check looks for routes that the host was without since a change began. It says whether there are any because the
// host heard of the change later than anybody waits for that.
func (l *routeLog) check(begin time.Time, mode model.EncapMode) (late bool) {
	l.Helper()
	changed := map[netip.Prefix]bool{}
	for _, line := range l.next() {
		stamp, text, _ := strings.Cut(line, " ")
		rest, deleted := strings.CutPrefix(text, "Deleted ")
		dst, _, _ := strings.Cut(rest, " ")
		prefix, err := netip.ParsePrefix(dst)
		if err != nil || !strings.Contains(rest, " proto 81 ") || !l.isRemote(prefix) {
			continue
		}
		if !deleted {
			changed[prefix] = true
			continue
		}
		at, err := time.ParseInLocation("[2006-01-02T15:04:05.000000]", stamp, time.Local)
		if err != nil {
			l.Fatal(err)
		}
		name := l.hosts[l.host].Name()
		if after := at.Sub(begin); after > withdrawTime && !changed[prefix] {
			late = true
			l.Logf("host %s, mode %s: %v later it hasn't heard of that from etcd, but from BGP: %s", name, nameOf(mode), after, text)
		} else {
			l.Errorf("host %s, mode %s: %v later a route went: %s", name, nameOf(mode), after, text)
		}
	}
	return late
}

// isRemote reports whether another host's pod is inside.
func (l *routeLog) isRemote(p netip.Prefix) bool {
	for i, pod := range l.pods {
		if i != l.host && slices.ContainsFunc(pod.Addrs(), p.Contains) {
			return true
		}
	}
	return false
}
