// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	seedFlag     = flag.Uint64("seed", 1, "of the random rulesets and packets; 0 = another one each time")
	rulesetsFlag = flag.Int("rulesets", 60, "how many `rulesets` to program, in the short form a tenth")
	packetsFlag  = flag.Int("packets", 9000, "how many `packets` to send through all of them together, in the short form a tenth")
)

// TestKernel programs random rulesets one after the other, each by what differs
// from the last, and sends random packets through each.
func TestKernel(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	rulesets, packets := *rulesetsFlag, *packetsFlag
	if testing.Short() {
		rulesets, packets = (rulesets+9)/10, packets/10
	}
	t.Logf("-seed %d, %d rulesets, %d packets", seed, rulesets, packets)
	if rulesets < 1 {
		t.Fatal("-rulesets: want at least 1")
	}
	err := inNamespace(func() error {
		l, err := newLab()
		if err != nil {
			return fmt.Errorf("make the lab: %w", err)
		}
		run := &run{t: t, lab: l, chance: chance{rand.New(rand.NewPCG(seed, 3))}, tally: tally{}}
		err = run.play(rulesets, packets/rulesets)
		t.Logf("%s", run.tally)
		if err == nil && packets >= enough {
			err = run.tally.check()
		}
		return err
	})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

// run is one test.
type run struct {
	t       *testing.T
	lab     *lab
	chance  chance
	world   world
	node    *node
	answers []probe // of the last batch
	tally   tally
}

// play programs rulesets and sends so many packets through each.
func (r *run) play(rulesets, packets int) error {
	r.world = world{r.chance.settings(), r.chance.tunnels(), map[string]item{}}
	for n := range rulesets {
		if n%15 == 0 {
			if err := r.restart(); err != nil {
				return err
			}
		}
		if err := r.ruleset(n, packets); err != nil {
			return fmt.Errorf("ruleset %d: %w", n, err)
		}
		if n%5 == 4 {
			if err := r.node.audit(); err != nil {
				return fmt.Errorf("ruleset %d: %w", n, err)
			}
		}
	}
	return nil
}

// maxBatch is how many packets are sent before the log is read.
const maxBatch = 500

// ruleset changes the world a little, the first time a lot, and sends packets
// through it.
func (r *run) ruleset(n, packets int) error {
	changes := 1 + r.chance.IntN(12)
	if n == 0 {
		changes = 48
	}
	before := r.node.now.clone()
	for i := range changes {
		r.chance.change(&r.world, int64(100*n+i+1))
	}
	if err := r.node.become(r.world); err != nil {
		return err
	}
	if err := r.lab.route(routes(&r.node.state)); err != nil {
		return err
	}
	d, err := r.old()
	for ; packets > 0 && err == nil && d == nil; packets -= maxBatch {
		if err = r.lab.forget(); err == nil {
			d, err = r.batch(min(packets, maxBatch))
		}
	}
	if err != nil || d == nil {
		return err
	}
	d.before, d.world, d.table = &before, r.world.clone(), table()
	smallest, again := r.lab.shrink(*d)
	return errors.New(smallest.report(again))
}

// restart begins with a new engine and a new firewall beside the old table.
func (r *run) restart() error {
	if r.node != nil {
		if err := r.node.firewall.Close(); err != nil {
			return err
		}
	}
	var err error
	r.node, err = newNode()
	return err
}

// old sends again what was part of connections in the last batch: they go on
// whatever the rules are now.
func (r *run) old() (*difference, error) {
	var again []probe
	for _, p := range r.answers {
		if p.About == nil && p.Dst == p.To.Src {
			// Its addresses may lead elsewhere now, and TCP may have said that it is over.
			p.To, p.Expect = nil, ""
			again = append(again, p)
		}
	}
	_, d, err := r.check(again)
	return d, err
}

// batch sends packets through what is programmed, and then answers to some of
// those that passed.
func (r *run) batch(n int) (*difference, error) {
	probes := r.chance.probes(r.node.now.Settings, &r.node.state, n)
	fates, d, err := r.check(probes)
	if d != nil || err != nil {
		return d, err
	}
	answers, to := r.chance.answers(&r.node.state, probes, fates, r.lab.ports)
	r.answers = answers
	_, d, err = r.check(answers)
	if d != nil {
		i := slices.Index(answers, d.probes[0])
		d.probes = []probe{to[i], answers[i]}
	}
	return d, err
}

// check sends probes and compares the fate of each with Evaluate.
func (r *run) check(probes []probe) ([]fate, *difference, error) {
	fates, err := r.lab.send(probes)
	if err != nil {
		return nil, nil, err
	}
	for i, p := range probes {
		what, result, err := compare(r.node.now.Settings, &r.node.state, p, fates[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p, err)
		}
		if what != "" {
			return nil, &difference{probes: []probe{p}, what: what, fate: fates[i], result: result}, nil
		}
		r.tally.add(p, outOf(routes(&r.node.state), p.Dst), fates[i], result)
	}
	return fates, nil, nil
}
