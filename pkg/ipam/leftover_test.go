// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// A pool is created over an empty block of a deleted pool, larger or smaller.
func TestLeftoverIsRoom(t *testing.T) {
	const pool = "10.0.0.64/27"
	strict := func(c string) func(*etcd) {
		return func(s *etcd) { s.edit(c, func(b *model.Block) { b.StrictAffinity = true }) }
	}
	for name, tt := range map[string]struct {
		pool     model.Pool
		blocks   map[string]int // with so many addresses allocated
		also     func(*etcd)
		addrs    []netip.Addr
		want     string // the block; "" = exhausted, or the address isn't available
		affinity string // of the leftovers
	}{
		"around the pool":                {blocks: map[string]int{"10.0.0.64/26": 0}, want: pool},
		"around the pool, of this host":  {blocks: map[string]int{"10.0.0.64/26": 0}, affinity: "a", want: pool},
		"around the pool, of nobody":     {blocks: map[string]int{"10.0.0.64/26": 0}, affinity: "-", want: pool},
		"around the pool, in use":        {blocks: map[string]int{"10.0.0.64/26": 1}},
		"around the pool, a person's":    {blocks: map[string]int{"10.0.0.64/26": 0}, also: strict("10.0.0.64/26")},
		"around the pool, made by hand":  {blocks: map[string]int{"10.0.0.64/26": 0}, also: func(s *etcd) { s.config(true, false) }},
		"around the pool, an address":    {blocks: map[string]int{"10.0.0.64/26": 0}, addrs: []netip.Addr{addr("10.0.0.70")}, want: pool},
		"around the pool, beside it":     {blocks: map[string]int{"10.0.0.64/26": 0, "10.0.0.0/26": 3}, want: pool},
		"smaller":                        {blocks: map[string]int{"10.0.0.64/30": 0, "10.0.0.72/29": 0}, want: pool},
		"smaller, an address in one":     {blocks: map[string]int{"10.0.0.64/30": 0}, addrs: []netip.Addr{addr("10.0.0.70")}, want: pool},
		"smaller, one in use is full":    {pool: model.Pool{CIDR: cidr("10.0.0.64/27"), BlockSize: 28}, blocks: map[string]int{"10.0.0.64/30": 4, "10.0.0.80/30": 4, "10.0.0.84/30": 0}, want: "10.0.0.84/30"},
		"smaller, in one of two blocks":  {pool: model.Pool{CIDR: cidr("10.0.0.64/27"), BlockSize: 28}, blocks: map[string]int{"10.0.0.64/30": 4, "10.0.0.80/30": 0}, want: "10.0.0.80/28"},
		"larger, in the pool":            {pool: model.Pool{CIDR: cidr("10.0.0.64/27"), BlockSize: 29}, blocks: map[string]int{"10.0.0.64/28": 0, "10.0.0.80/28": 0}, want: "10.0.0.64/29"},
		"around the pool, where two are": {blocks: map[string]int{"10.0.0.64/26": 0}, also: func(s *etcd) { s.othersPool("10.0.0.64/28") }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEtcd(t)
			if tt.pool.BlockSize == 0 {
				tt.pool = model.Pool{CIDR: cidr(pool), BlockSize: 27}
			}
			s.pool(tt.pool)
			host := cmp.Or(tt.affinity, "b")
			if host == "-" {
				host = ""
			}
			for c, n := range tt.blocks {
				s.fill(c, host, n)
			}
			if host != "" {
				s.put(model.HostMetadataKey{Host: host}, model.HostMetadata{}) // it lives
			}
			if tt.also != nil {
				tt.also(s)
			}
			before := len(s.keys)
			choice, err := s.assign(Request{Host: "a", Handle: "h", IPv4: true, Addrs: tt.addrs, Now: noon.Add(EmptyBeforeReclaim / 2)})
			if tt.want == "" {
				if err == nil || len(s.keys) != before {
					t.Fatalf("got %v, %v", choice, err)
				}
				return
			}
			if err != nil || choice.Addrs[0].Block != cidr(tt.want) {
				t.Fatalf("got %v, %v", choice, err)
			}
			for c, n := range tt.blocks {
				if left := s.block(c); left != nil && n == 0 && c != tt.want && left.CIDR.Overlaps(cidr(tt.want)) {
					t.Errorf("block %s is left", c)
				}
			}
			s.mustBeSound()
		})
	}
}

// If there are more leftovers than one transaction can delete, they are used unchanged.
func TestManyLeftovers(t *testing.T) {
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/26"), BlockSize: 26})
	s.put(model.HostMetadataKey{Host: "b"}, model.HostMetadata{})
	for i := range maxCleared + 1 {
		s.fill(netip.PrefixFrom(number{lo: 10<<24 | uint64(i)}.addr(false), 32).String(), "b", 0)
	}
	for _, now := range []time.Time{noon, noon.Add(EmptyBeforeReclaim)} {
		r := Request{Host: "a", Handle: now.String(), IPv4: true, Now: now}
		choice, p, err := s.planAssign(r)
		if err != nil || choice.Addrs[0].Block.Bits() != 32 || len(p.Change().Deletes) > 1 {
			t.Fatalf("got %v, %v: deletes %v", choice, err, p.Change().Deletes)
		}
	}
	s.remove(model.BlockKey{CIDR: cidr("10.0.0.7/32")}.Path())
	s.remove(model.AffinityKey{Host: "b", CIDR: cidr("10.0.0.7/32")}.Path())
	choice, err := s.assign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon})
	if err != nil || choice.Addrs[0].Block != cidr("10.0.0.0/26") {
		t.Fatalf("got %v, %v", choice, err)
	}
	s.mustBeSound()
}

// Of two hosts that claim in place of one leftover, and its own host that uses it meanwhile, exactly one succeeds.
func TestLeftoverRaces(t *testing.T) {
	const c = "10.0.0.4/30"
	for name, other := range map[string]func(*testing.T, *etcd) model.Change{
		"another claims": func(t *testing.T, s *etcd) model.Change {
			_, p, err := s.planAssign(Request{Host: "c", Handle: "other", IPv4: true, Now: noon})
			if err != nil {
				t.Fatal(err)
			}
			return p.Change()
		},
		"its host uses it": func(t *testing.T, s *etcd) model.Change {
			_, p, err := s.planAssign(Request{Host: "b", Handle: "other", IPv4: true, Now: noon})
			if err != nil {
				t.Fatal(err)
			}
			return p.Change()
		},
		"its host gives it back": func(t *testing.T, s *etcd) model.Change {
			return s.giveBack("b", c, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []bool{true, false} {
				s := newEtcd(t)
				s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 28})
				s.fill(c, "b", 0)
				_, p, err := s.planAssign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon})
				if err != nil {
					t.Fatal(err)
				}
				changes := []model.Change{p.Change(), other(t, s)}
				if !first {
					changes[0], changes[1] = changes[1], changes[0]
				}
				if err := s.commit(changes[0]); err != nil {
					t.Fatal(err)
				}
				s.mustBeSound()
				if err := s.commit(changes[1]); !errors.Is(err, errConflict) {
					t.Errorf("both took effect: %v", err)
				}
				s.mustBeSound()
			}
		})
	}
}

// giveBack returns the change of one GiveBack.
func (s *etcd) giveBack(host, c string, want bool) model.Change {
	s.t.Helper()
	var gone bool
	p, err := s.plan(FirstReadGiveBack(cidr(c)), func(p *Plan) (err error) { gone, err = p.GiveBack(host, cidr(c)); return err })
	if err != nil || gone != want {
		s.t.Fatalf("block %s is given back: %t, %v; want %t", c, gone, err, want)
	}
	return p.Change()
}

func TestGiveBack(t *testing.T) {
	const c = "10.0.0.4/30"
	for name, tt := range map[string]struct {
		setup func(*etcd)
		want  bool
	}{
		"no pool":      {func(s *etcd) { s.fill(c, "a", 0) }, true},
		"in use":       {func(s *etcd) { s.fill(c, "a", 1) }, false},
		"another's":    {func(s *etcd) { s.fill(c, "b", 0) }, false},
		"nobody's":     {func(s *etcd) { s.fill(c, "", 0) }, false},
		"it isn't":     {func(*etcd) {}, false},
		"its pool":     {func(s *etcd) { s.fill(c, "a", 0); s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30}) }, false},
		"another size": {func(s *etcd) { s.fill(c, "a", 0); s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 29}) }, true},
		"an odd pool":  {func(s *etcd) { s.fill(c, "a", 0); s.putText("/calico/v1/ipam/v4/pool/10.0.0.0-28", "{") }, false},
		"disabled pool": {func(s *etcd) {
			s.fill(c, "a", 0)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30, Disabled: true})
		}, true},
		"other hosts' pool": {func(s *etcd) {
			s.fill(c, "a", 0)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30, NodeSelector: "!all()"})
		}, true},
		"some hosts' pool": {func(s *etcd) {
			s.fill(c, "a", 0)
			s.put(model.HostMetadataKey{Host: "a"}, model.HostMetadata{Labels: map[string]string{"rack": "1"}})
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30, NodeSelector: `rack == "1"`})
		}, false},
		"a later pool": {func(s *etcd) {
			s.fill(c, "a", 0)
			s.pool(model.Pool{CIDR: cidr("10.0.0.8/29")})
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 30})
		}, true},
		"strict":       {func(s *etcd) { s.fill(c, "a", 0); s.edit(c, func(b *model.Block) { b.StrictAffinity = true }) }, false},
		"made by hand": {func(s *etcd) { s.fill(c, "a", 0); s.config(true, false) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEtcd(t)
			tt.setup(s)
			change := s.giveBack("a", c, tt.want)
			if !tt.want {
				if !change.Empty() {
					t.Errorf("writes %+v", change)
				}
				return
			}
			if err := s.commit(change); err != nil || s.block(c) != nil {
				t.Errorf("the block is there: %v", err)
			}
			if _, ok := s.keys[model.AffinityKey{Host: "a", CIDR: cidr(c)}.Path()]; ok {
				t.Error("the affinity is there")
			}
			s.mustBeSound()
		})
	}
	// The host that used it meanwhile keeps it.
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: 29})
	s.fill(c, "a", 0)
	change := s.giveBack("a", c, true)
	if _, err := s.assign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := s.commit(change); !errors.Is(err, errConflict) {
		t.Errorf("a block in use is deleted: %v", err)
	}
}

// Where blocks of another size leave no room, the error says so.
func TestOtherSizesInTheWay(t *testing.T) {
	for name, tt := range map[string]struct {
		size   int
		blocks []string // in use
		want   string
	}{
		"one":         {28, []string{"10.0.0.0/30"}, "pool 10.0.0.0/28: no room for a new block; where blocks of another size are, no block of its block_size 28 can be made: delete the pods of 10.0.0.0/30, or set block_size back; 1 of its 1 blocks are full"},
		"four":        {28, quarters, "no block of its block_size 28 can be made: delete the pods of 10.0.0.0/30, 10.0.0.4/30, 10.0.0.8/30 and 1 more, or set block_size back; 4 of its 4 blocks are full"},
		"around":      {28, []string{"10.0.0.0/26"}, "delete the pods of 10.0.0.0/26, or"},
		"larger ones": {30, []string{"10.0.0.0/29", "10.0.0.8/29"}, "pool 10.0.0.0/28: no room for a new block; 2 of its 2 blocks are full"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEtcd(t)
			s.pool(model.Pool{CIDR: cidr("10.0.0.0/28"), BlockSize: tt.size})
			for _, c := range tt.blocks {
				s.fill(c, "b", 1<<(32-cidr(c).Bits()))
			}
			var exhausted *ExhaustedError
			_, err := s.assign(Request{Host: "a", Handle: "h", IPv4: true, Now: noon})
			if !errors.As(err, &exhausted) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if name == "larger ones" && strings.Contains(err.Error(), "another size") {
				t.Errorf("they are of use to the last address: %v", err)
			}
		})
	}
}
