// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// history is a random history of a cluster: hosts assign and release, step by step and concurrently, based on what they
// read some time ago, while people change pools, settings and nodes. A slow and obvious model runs alongside: a set of
// addresses per handle.
type history struct {
	*etcd
	dice      dice
	hosts     []string
	now       time.Time
	held      map[string]map[netip.Addr]bool // by handle
	freeSince map[netip.Addr]int64           // the revision
	running   []*operation
	counts    map[string]int
}

// dice are numbers that a fuzzer may choose.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

// operation is one call of a plugin at its current stage.
type operation struct {
	h        *history
	name     string
	view     *model.View
	ranges   []model.Range
	began    int64          // revision
	reserved []netip.Prefix // then
	decide   func(*Plan) error
	plan     *Plan                               // once decided
	commit   func(c *model.Change) (done func()) // adds endpoints
	truthful func(err error)
}

// historyHosts are numbers of hosts: few hosts meet in few blocks; with many, most have no block of their own.
var historyHosts = [...]int{3, 3, 8, 20}

// historyPools are places for pools; each has one of its values at a time. The last two overlap.
var historyPools = [][]model.Pool{
	{
		{CIDR: cidr("10.0.0.0/27"), BlockSize: 29},
		{CIDR: cidr("10.0.0.0/27"), BlockSize: 30},
		{CIDR: cidr("10.0.0.0/28"), BlockSize: 28},
		{CIDR: cidr("10.0.0.0/27"), BlockSize: 29, Disabled: true},
		{CIDR: cidr("10.0.0.0/26"), BlockSize: 27},
		{CIDR: cidr("10.0.0.0/27"), BlockSize: 29, NamespaceSelector: `team == "1"`},
	},
	{
		{CIDR: cidr("10.1.254.0/23"), BlockSize: 24, NodeSelector: `rack == "1"`},
		{CIDR: cidr("10.1.255.0/28"), BlockSize: 32},
		{CIDR: cidr("10.1.255.0/28"), BlockSize: 30},
	},
	{
		{CIDR: cidr("fd00::/123"), BlockSize: 125},
		{CIDR: cidr("fd00::/123"), BlockSize: 126},
		{CIDR: cidr("fd00::/124"), BlockSize: 124},
		{CIDR: cidr("fd00::/112"), BlockSize: 125},
	},
	{
		{CIDR: cidr("10.2.0.0/27"), BlockSize: 29},
		{CIDR: cidr("10.2.0.0/27"), BlockSize: 29, Disabled: true},
		{CIDR: cidr("10.2.0.0/27"), BlockSize: 29, Manual: true},
	},
	{
		{CIDR: cidr("10.2.0.16/28"), BlockSize: 30, Disabled: true},
		{CIDR: cidr("10.2.0.16/28"), BlockSize: 30},
		{CIDR: cidr("10.2.0.0/26"), BlockSize: 28},
	},
}

func newHistory(t testing.TB, data []byte) *history {
	h := &history{
		etcd: newEtcd(t), dice: dice{data}, now: noon,
		held: map[string]map[netip.Addr]bool{}, freeSince: map[netip.Addr]int64{}, counts: map[string]int{},
	}
	for _, p := range historyPools {
		h.pool(p[0])
	}
	for i := range 2 {
		h.labels(fmt.Sprint("n", i), map[string]string{"team": fmt.Sprint(i)})
	}
	for i := range historyHosts[h.dice.roll(len(historyHosts))] {
		host := fmt.Sprintf("h%d", i)
		h.hosts = append(h.hosts, host)
		h.put(model.HostMetadataKey{Host: host}, model.HostMetadata{Labels: map[string]string{"rack": fmt.Sprint(i % 2)}})
	}
	return h
}

func (h *history) run() {
	for len(h.dice.data) > 0 {
		switch n := h.dice.roll(32); {
		case n < 9 && len(h.running) < 6:
			h.beginAssign()
		case n < 12 && len(h.running) < 6:
			h.beginRelease()
		case n == 12:
			h.beginReleaseAddr()
		case n == 13:
			h.changePool()
		case n == 14:
			h.changeNode()
		case n == 17:
			h.changeReservation()
		case n == 16 && len(h.running) < 6:
			h.beginGiveBack()
		case n == 15:
			h.now = h.now.Add(time.Duration(h.dice.roll(40)) * time.Second)
		case len(h.running) > 0:
			i := h.dice.roll(len(h.running))
			if h.running[i].step() {
				h.running = slices.Delete(h.running, i, i+1)
			}
		}
	}
}

func (h *history) begin(o *operation) {
	o.h, o.view, o.began = h, model.NewView(), 0
	h.running = append(h.running, o)
}

// step does one round trip and reports whether the operation is finished.
func (o *operation) step() bool {
	h := o.h
	if o.plan == nil {
		if o.began == 0 {
			o.began, o.reserved = h.revision, h.reservations()
		}
		h.show(o.view, o.ranges)
		p := NewPlan(o.view)
		err := o.decide(p)
		if need, ok := errors.AsType[*model.NeedRangesError](err); ok {
			o.ranges = need.Ranges
			return false
		}
		if err != nil {
			h.counts[fmt.Sprintf("%s: %T", o.name, err)]++
			if o.truthful != nil && o.began == h.revision {
				o.truthful(err)
			}
			return true
		}
		o.plan = p
		return false
	}
	change := o.plan.Change()
	done := o.commit(&change)
	if err := h.etcd.commit(change); err != nil {
		if o.began == h.revision {
			h.t.Fatalf("%s: nothing has changed, and yet: %v", o.name, err)
		}
		h.counts[o.name+": conflict"]++
		return true
	}
	h.counts[o.name]++
	done()
	h.compare()
	return true
}

func (h *history) container() (name, handle, host string) {
	n := h.dice.roll(40)
	name = fmt.Sprintf("c%d", n)
	return name, "net." + name + ".eth0", h.hosts[n%len(h.hosts)]
}

func (h *history) beginAssign() {
	name, handle, host := h.container()
	r := Request{Host: host, Handle: handle, Now: h.now, Attributes: map[string]string{"container": name}}
	kind := h.dice.roll(16)
	r.Namespace = []string{"", "n0", "n1"}[h.dice.roll(3)]
	r.IPv4, r.IPv6 = kind%3 != 1, kind%3 != 0
	replaced := ""
	switch kind {
	case 13:
		r.Addrs = []netip.Addr{h.someAddr()}
	case 14:
		r.Pools4 = []model.PoolRef{{CIDR: historyPools[h.dice.roll(2)][0].CIDR}}
	case 15: // a pod's next sandbox: the same transaction frees the old one's
		_, replaced, _ = h.container()
		if replaced == handle {
			replaced = ""
		}
	}
	var choice Choice
	o := &operation{name: "assign", ranges: FirstRead(r), commit: nil}
	if replaced != "" {
		o.ranges = append(o.ranges, handleRanges(replaced)...)
	}
	var freed []netip.Addr
	o.decide = func(p *Plan) (err error) {
		if replaced != "" {
			if freed, err = p.Release(replaced, r.Now); err != nil {
				return err
			}
		}
		choice, err = p.Assign(r)
		return err
	}
	o.commit = func(c *model.Change) func() {
		before := maps.Clone(h.held[handle])
		var fresh []netip.Addr
		all := maps.Clone(before)
		if all == nil {
			all = map[netip.Addr]bool{}
		}
		for _, a := range choice.Addrs {
			if before[a.Addr] != a.Existing && replaced == "" && len(c.Compares) > 0 && o.began == h.revision {
				h.t.Fatalf("%s: existing is %v, the handle had %v", a.Addr, a.Existing, before)
			}
			if !a.Existing {
				fresh = append(fresh, a.Addr)
			}
			all[a.Addr] = true
		}
		h.endpoint(c, name, all)
		if replaced != "" {
			h.endpoint(c, containerOf(replaced), nil)
		}
		return func() {
			h.forget(replaced, freed)
			if replaced == "" && slices.ContainsFunc(c.Deletes, func(k model.Key) bool { _, block := k.(model.BlockKey); return block }) {
				h.counts["assign in the place of a leftover"]++
			}
			for _, a := range fresh {
				h.take(r, a, o.reserved)
			}
			h.satisfied(r, choice)
		}
	}
	if replaced == "" {
		o.truthful = func(err error) { h.mustBeTrue(r, err) }
	}
	h.begin(o)
}

func containerOf(handle string) string { return handle[len("net.") : len(handle)-len(".eth0")] }

// endpoint is written with the addresses, in the same transaction.
func (h *history) endpoint(c *model.Change, name string, addrs map[netip.Addr]bool) {
	var n int
	_, _ = fmt.Sscanf(name, "c%d", &n)
	k := model.WorkloadEndpointKey{Host: h.hosts[n%len(h.hosts)], Orchestrator: "cni", Workload: name, Endpoint: "eth0"}
	if len(addrs) == 0 {
		c.Deletes = append(c.Deletes, k)
		return
	}
	e := model.WorkloadEndpoint{State: model.StateActive, Name: "cali" + name, ContainerID: name, MAC: model.MAC{2, 0, 0, 0, 0, 1}}
	for _, a := range slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare) {
		if a.Is4() {
			e.IPv4Nets = append(e.IPv4Nets, netip.PrefixFrom(a, 32))
		} else {
			e.IPv6Nets = append(e.IPv6Nets, netip.PrefixFrom(a, 128))
		}
	}
	c.Puts = append(c.Puts, model.Put{Key: k, Value: e})
}

func (h *history) beginRelease() {
	name, handle, _ := h.container()
	at := h.now
	var freed []netip.Addr
	h.begin(&operation{
		name: "release", ranges: FirstReadRelease(handle),
		decide: func(p *Plan) (err error) { freed, err = p.Release(handle, at); return err },
		commit: func(c *model.Change) func() {
			h.endpoint(c, name, nil)
			return func() {
				h.forget(handle, freed)
				if left := h.held[handle]; len(left) > 0 {
					h.t.Fatalf("released %s, it still holds %v", handle, left)
				}
			}
		},
	})
}

func (h *history) beginReleaseAddr() {
	a, at := h.someAddr(), h.now
	var handle string
	var freed bool
	h.begin(&operation{
		name: "releaseAddr", ranges: []model.Range{model.PrefixRange(model.PoolPrefix())},
		decide: func(p *Plan) (err error) { handle, freed, err = p.ReleaseAddr(a, at); return err },
		commit: func(c *model.Change) func() {
			if freed {
				left := maps.Clone(h.held[handle])
				delete(left, a)
				h.endpoint(c, containerOf(handle), left)
			}
			return func() {
				if freed {
					h.forget(handle, []netip.Addr{a})
				}
			}
		},
	})
}

// beginGiveBack begins what the agent of a block's host does.
func (h *history) beginGiveBack() {
	var blocks []model.Block
	for _, e := range h.dump() {
		if b, ok := e.Value.(model.Block); ok && b.Affinity != "" && isEmpty(&b) {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) == 0 {
		return
	}
	b, gone := blocks[h.dice.roll(len(blocks))], false
	h.begin(&operation{
		name: "giveBack", ranges: FirstReadGiveBack(b.CIDR),
		decide: func(p *Plan) (err error) { gone, err = p.GiveBack(b.Affinity, b.CIDR); return err },
		commit: func(*model.Change) func() {
			return func() {
				if gone {
					h.counts["given back"]++
				}
				if left := h.block(b.CIDR.String()); gone && left != nil {
					h.t.Fatalf("block %s was given back and is there: %+v", b.CIDR, left)
				}
			}
		},
	})
}

func TestHistories(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 15
	}
	counts := map[string]int{}
	for seed := range n {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		data := make([]byte, 3000)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(t, data)
			h.run()
			for what, n := range h.counts {
				counts[what] += n
			}
		})
		if t.Failed() {
			return
		}
	}
	seldom := []string{"assign in the place of a leftover", "giveBack: conflict"}
	if testing.Short() {
		seldom = nil
	}
	for _, what := range append([]string{"assign", "assign: conflict", "assign: *ipam.ExhaustedError", "assign: *ipam.NoPoolError", "assign: *ipam.TakenError", "assign a reserved one by name", "reservation", "release", "releaseAddr", "given back"}, seldom...) {
		if counts[what] == 0 {
			t.Errorf("the histories never came to %s: %v", what, counts)
		}
	}
	t.Log(counts)
}

func FuzzHistory(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 8 {
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { newHistory(t, data[:min(len(data), 2000)]).run() })
}
