// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

const (
	raceHosts    = 20
	slotsPerHost = 8 // containers that a host has at once, at the most
	callersPer   = 4 // of one host, each with one container in hand
	atOnce       = 40
	leaderKills  = 2
	raceNetwork  = "race"
	racePatience = 12 * time.Minute // two with 50 others in want of a CPU
	seedVariable = "CALICO_RACE_SEED"
)

// addsPerHost is how many containers each host adds.
const addsPerHost = 50

// racePools are small enough for hosts to find no block of their own and
// borrow, and for addresses to run out: of IPv4 there are ten blocks, of IPv6
// sixteen, for twenty hosts and up to 160 containers.
func racePools() []model.Pool {
	return []model.Pool{
		{CIDR: netip.MustParsePrefix("192.168.0.0/26"), BlockSize: 29, IPAM: true},
		{CIDR: netip.MustParsePrefix("192.168.7.0/28"), BlockSize: 29, IPAM: true},
		{CIDR: netip.MustParsePrefix("fd80:24e2:f998:72d6::/121"), BlockSize: 125, IPAM: true},
	}
}

// TestRace has twenty hosts add and delete a thousand containers, dozens at a time, in pools that are too small for them, while the leader of etcd is
// killed twice. Every answer must be true when it is given, no address may ever
// have two holders, what etcd held must be sound at every revision, and at the
// end nothing may be left.
func TestRace(t *testing.T) {
	long.Test(t)
	r := newRace(t)
	_, from, err := r.lab.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.sawRevision(from)
	r.heat()
	r.rest()
	r.drain()
	r.report()
	r.nothingLeft()
	_, to, err := r.lab.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	walk(t, r.lab, from, to)
	r.judge(from, to)
}

// race is the lab, and what is known of what went on in it.
type race struct {
	*testing.T
	lab   *lab.Lab
	ctx   context.Context
	seed  uint64
	start time.Time
	hosts []*racer
	turns chan struct{} // processes that may run at once

	added    atomic.Int64
	revision atomic.Int64 // etcd's has been at least this
	faults   atomic.Int64
	stop     context.CancelFunc

	mu     sync.Mutex
	owners map[netip.Addr]string // who was told that the address is its own
	calls  []call
	seen   []sighting
	denied []denial
	tally  tally
}

// racer is one host.
type racer struct {
	host *lab.Host
	conf []byte

	mu     sync.Mutex
	random *rand.Rand
	idle   []*slot
	adds   int // done and under way
}

// slot is a place for a container. Whoever has taken it is alone with it.
type slot struct {
	racer  *racer
	name   string // of its namespace and its pod
	ns     lab.Namespace
	cid    string // "" = empty
	former string // the container that was here before
	addrs  []netip.Addr
	adds   int
}

func newRace(t *testing.T) *race {
	t.Helper()
	r := &race{T: t, seed: rand.Uint64(), turns: make(chan struct{}, atOnce), owners: make(map[netip.Addr]string)}
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if r.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d makes the same choices again", seedVariable, r.seed)
	cfg := lab.Config{EtcdMembers: raceMembers, NoFsync: true, Pools: []netip.Prefix{}}
	for i := range raceHosts {
		cfg.Hosts = append(cfg.Hosts, fmt.Sprintf("h%02d", i+1))
	}
	r.lab = lab.ForTest(t, cfg)
	r.ctx, r.stop = context.WithTimeout(t.Context(), racePatience)
	t.Cleanup(r.stop)
	r.setUp()
	for i, h := range r.lab.Hosts() {
		r.hosts = append(r.hosts, r.newRacer(h, uint64(i)))
	}
	r.start = time.Now()
	return r
}

// setUp writes what is not a lab's default: pools of small blocks, and that
// hosts may borrow.
func (r *race) setUp() {
	change := put(model.Put{Key: model.IPAMConfigKey{}, Value: model.IPAMConfig{AutoAllocateBlocks: true}})
	for _, p := range racePools() {
		change.Puts = append(change.Puts, model.Put{Key: model.PoolKey{CIDR: p.CIDR}, Value: p})
	}
	if _, err := r.lab.Etcd().Commit(r.ctx, change); err != nil {
		r.Fatal(err)
	}
}

func (r *race) newRacer(h *lab.Host, i uint64) *racer {
	conf := h.PluginConf()
	conf["cniVersion"], conf["name"] = "1.1.0", raceNetwork
	data, err := json.Marshal(conf)
	if err != nil {
		r.Fatal(err)
	}
	out := &racer{host: h, conf: data, random: rand.New(rand.NewPCG(r.seed, i))}
	for n := range slotsPerHost {
		name := fmt.Sprintf("%s-%d", h.Name(), n)
		ns, err := r.lab.NewNamespace(name)
		if err != nil {
			r.Fatal(err)
		}
		out.idle = append(out.idle, &slot{racer: out, name: name, ns: ns})
	}
	return out
}

// heat does all ADDs, and the DELs in between. Then some containers are left.
func (r *race) heat() {
	var all sync.WaitGroup
	for _, h := range r.hosts {
		for range callersPer {
			all.Go(func() {
				for r.ctx.Err() == nil && r.step(h) {
				}
			})
		}
	}
	killer := make(chan struct{})
	go func() { defer close(killer); r.killLeaders() }()
	all.Wait()
	<-killer
}

// step does something with one slot of the host; false when all is done.
func (r *race) step(h *racer) bool {
	s, choice := h.take()
	if s == nil {
		return false
	}
	defer h.give(s)
	if s.cid != "" {
		r.del(s, choice)
	} else {
		r.add(s, choice)
	}
	return true
}

// take picks a slot, and a number for further choices. At first the host fills
// up: so many containers have no room in the pools.
func (h *racer) take() (*slot, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.adds == addsPerHost {
		return nil, 0
	}
	i := h.random.IntN(len(h.idle)) // there are more slots than callers
	if empty := slices.IndexFunc(h.idle, func(s *slot) bool { return s.cid == "" }); h.adds < slotsPerHost && empty >= 0 {
		i = empty
	}
	s := h.idle[i]
	h.idle = slices.Delete(h.idle, i, i+1)
	if s.cid == "" {
		h.adds++
	}
	return s, h.random.Uint64()
}

func (h *racer) give(s *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, s)
}

// wrong fails the test, and ends the heat where much is wrong.
func (r *race) wrong(format string, args ...any) {
	r.Helper()
	if n := r.faults.Add(1); n <= maxFaults {
		r.Errorf(format, args...)
	} else if n == maxFaults+1 {
		r.Error("and more: the race is stopped")
		r.stop()
	}
}
