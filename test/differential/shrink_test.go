// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"slices"

	"github.com/calico-go/calico/pkg/nft"
	"github.com/calico-go/calico/pkg/policy"
)

// difference is between the kernel and Evaluate on one packet.
type difference struct {
	// before is what had been programmed, nil where it does not matter or isn't
	// known to matter.
	before *world
	world  world
	// probes are the packet, last, and the one that it answers.
	probes []probe
	what   string
	fate   fate
	result policy.Result
	table  string // as the kernel had it
}

// maxTrials bounds the search for a smaller case.
const maxTrials = 1500

// shrinker looks for the smallest case of a difference that it can find.
type shrinker struct {
	lab    *lab
	best   difference
	trials int
}

// again programs a case from nothing and reports whether there is a difference.
// What goes wrong otherwise is no difference.
func (s *shrinker) again(before *world, w world) bool {
	s.trials++
	d, err := s.lab.try(before, w, s.best.probes)
	if err != nil || d == nil {
		return false
	}
	s.best = *d
	return true
}

// try programs worlds one after the other, with a node of its own, and sends
// probes through the last. It returns a difference on the last probe.
func (l *lab) try(before *world, w world, probes []probe) (*difference, error) {
	n, err := newNode()
	if err != nil {
		return nil, err
	}
	defer n.firewall.Close()
	if before != nil {
		if err := n.become(*before); err != nil {
			return nil, err
		}
	}
	if err := n.become(w); err != nil {
		return nil, err
	}
	if err := errors.Join(l.route(routes(&n.state)), l.forget()); err != nil {
		return nil, err
	}
	var last fate
	for _, p := range probes {
		fates, err := l.send([]probe{p})
		if err != nil {
			return nil, err
		}
		last = fates[0]
	}
	what, result, err := compare(w.Settings, &n.state, probes[len(probes)-1], last)
	if err != nil || what == "" {
		return nil, err
	}
	return &difference{before: before, world: w, probes: probes, what: what, fate: last, result: result}, nil
}

// shrink makes a difference smaller. One that is not there when its world is
// programmed from nothing stays as it is.
func (l *lab) shrink(d difference) (smallest difference, again bool) {
	s := &shrinker{lab: l, best: d}
	if !s.again(nil, d.world) && !s.again(d.before, d.world) {
		return d, false
	}
	for size := -1; size != s.size() && s.trials < maxTrials; {
		size = s.size()
		s.items()
		s.settings()
		s.tunnels()
		s.values()
	}
	// Once more, so that the table holds this case and its rules count this packet alone.
	if err := exec.Command("nft", "delete", "table", "inet", nft.TableName).Run(); err == nil {
		s.again(s.best.before, s.best.world)
	}
	s.best.table = table()
	return s.best, true
}

// size is how much there is to read.
func (s *shrinker) size() int { return len(text([]any{s.best.before, s.best.world})) }

// text is a plain value as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is none
	}
	return string(b)
}

// worlds is how many the case has: the one that the packet is sent through, and
// the one before.
func (s *shrinker) worlds() int {
	if s.best.before == nil {
		return 1
	}
	return 2
}

func (s *shrinker) world(i int) *world {
	if i == 0 {
		return &s.best.world
	}
	return s.best.before
}

// change tries the case with one of its worlds changed. edit says whether it
// changed anything.
func (s *shrinker) change(i int, edit func(*world) bool) bool {
	w := s.world(i).clone()
	if s.trials >= maxTrials || !edit(&w) {
		return false
	}
	if i == 0 {
		return s.again(s.best.before, w)
	}
	return s.again(&w, s.best.world)
}

// items leaves out whole objects.
func (s *shrinker) items() {
	for i := range s.worlds() {
		for _, path := range slices.Sorted(maps.Keys(s.world(i).Items)) {
			s.change(i, func(w *world) bool {
				delete(w.Items, path)
				return true
			})
		}
	}
}

func (s *shrinker) settings() {
	for _, plain := range []func(*policy.Settings){
		func(s *policy.Settings) { s.Prefixes = []string{"cali"} },
		func(s *policy.Settings) { s.EndpointToHost = policy.ToHostAccept },
		func(s *policy.Settings) { s.EndpointDNS = false },
		func(s *policy.Settings) { s.FailsafeInbound = nil },
		func(s *policy.Settings) { s.FailsafeOutbound = nil },
		func(s *policy.Settings) { s.FlowLogGroup = 0 },
	} {
		for i := range s.worlds() {
			s.change(i, func(w *world) bool {
				before := text(w.Settings)
				plain(&w.Settings)
				return text(w.Settings) != before
			})
		}
	}
}

func (s *shrinker) tunnels() {
	for i := range s.worlds() {
		for _, plain := range []func(*policy.Tunnels){
			func(t *policy.Tunnels) { *t = policy.Tunnels{} },
			func(t *policy.Tunnels) { t.VXLANPort = 0 },
			func(t *policy.Tunnels) { t.IPIP = false },
			func(t *policy.Tunnels) { t.Hosts = nil },
			func(t *policy.Tunnels) { t.BGP = policy.BGP{} },
		} {
			s.change(i, func(w *world) bool {
				before := text(w.Tunnels)
				plain(&w.Tunnels)
				return text(w.Tunnels) != before
			})
		}
	}
}

// values leaves out fields and members of lists inside objects. What parsed
// still does.
func (s *shrinker) values() {
	for i := range s.worlds() {
		for _, path := range slices.Sorted(maps.Keys(s.world(i).Items)) {
			for at := 0; ; {
				old := s.world(i).Items[path]
				next := old
				var ok bool
				if next.Data, ok = without(old.Data, at); !ok {
					break
				}
				changed := sameKind(old, next) && s.change(i, func(w *world) bool {
					w.Items[path] = next
					return true
				})
				if !changed {
					at++
				}
			}
		}
	}
}

// sameKind: both parse, or neither does.
func sameKind(a, b item) bool {
	return (a.entry().Err == nil) == (b.entry().Err == nil)
}

// without is a JSON value without its nth part, counted from the outside in;
// ok is false where there are fewer.
func without(data string, n int) (out string, ok bool) {
	var v any
	if json.Unmarshal([]byte(data), &v) != nil {
		return "", false
	}
	v, n = cutPart(v, n)
	if n >= 0 {
		return "", false
	}
	b, err := json.Marshal(v)
	return string(b), err == nil
}

// cutPart counts n down by the parts that it passes; it is -1 once one was cut.
func cutPart(v any, n int) (any, int) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if n == 0 {
				delete(v, name)
				return v, -1
			}
			if v[name], n = cutPart(v[name], n-1); n < 0 {
				return v, n
			}
		}
		return v, n
	case []any:
		for i := range v {
			if n == 0 {
				return slices.Delete(v, i, i+1), -1
			}
			if v[i], n = cutPart(v[i], n-1); n < 0 {
				return v, n
			}
		}
		return v, n
	}
	return v, n
}
