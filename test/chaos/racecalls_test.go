// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/calico-go/calico/pkg/cni/protocol"
	"github.com/calico-go/calico/pkg/lab"
)

const (
	callPatience = 3 * time.Minute
	// killedWithin is when an ADD that is to be killed is: most take longer.
	killedWithin = 1500 * time.Millisecond
	lookPatience = 2 * time.Minute
	maxDELs      = 8 // as often a runtime tries one container
)

func handleOf(cid string) string { return raceNetwork + "." + cid + ".eth0" }

// run calls the plugin and notes how that went. It returns what an ADD gave. A
// call that takes longer than it may is killed.
func (r *race) run(s *slot, verb, cid, netns string, may time.Duration) ([]netip.Addr, error) {
	r.turns <- struct{}{}
	defer func() { <-r.turns }()
	ctx, cancel := context.WithTimeout(r.ctx, may)
	defer cancel()
	c := call{host: s.racer.host.Name(), verb: verb, handle: handleOf(cid), begin: time.Since(r.start)}
	reply, err := s.racer.host.CNI(ctx, lab.Call{
		Verb: verb, ContainerID: cid, IfName: "eth0", Netns: netns, Stdin: s.racer.conf,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=race;K8S_POD_NAME=" + s.name,
	})
	c.end = time.Since(r.start)
	if err == nil && verb == "ADD" {
		c.addrs, err = resultAddrs(reply.Stdout)
	}
	switch code := codeOf(err); {
	case err == nil:
	case verb == "ADD" && code == protocol.CodeExhausted:
		c.outcome = refused
	case may < callPatience && ctx.Err() != nil:
		c.outcome = unclear
	case code == protocol.CodeTryAgain:
		c.outcome = unclear
		r.Logf("%s %s on %s, after %v: %v", verb, cid, c.host, c.end-c.begin, err)
	default:
		c.outcome = unclear
		r.wrong("%s %s on %s, after %v: %v (code %d)\n%s", verb, cid, c.host, c.end-c.begin, err, code, reply.Stderr)
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.tally.note(verb, reply, err)
	r.mu.Unlock()
	return c.addrs, err
}

// codeOf is the code of a plugin's error, 0 where it is none of a plugin's.
func codeOf(err error) uint {
	if said, ok := errors.AsType[*types.Error](err); ok {
		return said.Code
	}
	return 0
}

// resultAddrs are the addresses of a result: one of each family.
func resultAddrs(stdout []byte) ([]netip.Addr, error) {
	var result types100.Result
	if err := json.Unmarshal(stdout, &result); err != nil {
		return nil, fmt.Errorf("the result of ADD: %w: %s", err, stdout)
	}
	var out []netip.Addr
	for _, ip := range result.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		out = append(out, a.Unmap())
	}
	if len(out) != 2 || !out[0].Is4() || !out[1].Is6() {
		return nil, fmt.Errorf("the result of ADD has the addresses %v: %s", out, stdout)
	}
	return out, nil
}

// add puts a container into an empty slot; where there is no room it is empty
// again after. Now and then the ADD is done twice at once, or is killed at some
// time, or a late DEL of the slot's last container comes at the same time.
func (r *race) add(s *slot, choice uint64) {
	s.adds++
	s.cid = fmt.Sprintf("%s-%d", s.name, s.adds)
	from, runs, may := r.revision.Load(), 1, callPatience
	switch choice % 16 {
	case 1:
		runs = 2
	case 5:
		may = time.Duration(choice>>8) % killedWithin
	}
	addrs, errs := make([][]netip.Addr, runs), make([]error, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { addrs[i], errs[i] = r.run(s, "ADD", s.cid, s.ns.Path(), may) })
	}
	if choice%8 == 2 && s.former != "" {
		all.Go(func() { _, _ = r.run(s, "DEL", s.former, "", callPatience) }) // judged by its effect
	}
	all.Wait()
	r.countAdd()
	for i, err := range errs {
		switch {
		case codeOf(err) == protocol.CodeExhausted:
			r.deny(s.cid, err, from)
		case err != nil:
		case s.addrs == nil:
			s.addrs = addrs[i]
		case s.addrs[0] != addrs[i][0] || s.addrs[1] != addrs[i][1]:
			r.wrong("ADD of %s twice at once: %v and %v", s.cid, s.addrs, addrs[i])
		}
	}
	if s.addrs == nil {
		if runs == 1 && codeOf(errs[0]) == protocol.CodeExhausted {
			r.hasNoInterface(s, "after an ADD that was refused")
		}
		r.del(s, 0)
		return
	}
	r.claim(s)
	r.isTrue(s)
	if choice%8 == 3 {
		for _, a := range s.addrs {
			if _, err := s.racer.host.Namespace().Ping(r.ctx, a); err != nil {
				r.wrong("host %s to container %s: %v", s.racer.host.Name(), s.cid, err)
			}
		}
	}
}

// del empties a slot, as a runtime does it: again and again until it succeeds.
// Now and then it is done twice at once, or once more without the namespace.
func (r *race) del(s *slot, choice uint64) {
	r.disclaim(s)
	var all sync.WaitGroup
	if choice%8 == 1 {
		all.Go(func() { _, _ = r.run(s, "DEL", s.cid, s.ns.Path(), callPatience) }) // the other one must succeed
	}
	_, err := r.run(s, "DEL", s.cid, s.ns.Path(), callPatience)
	all.Wait()
	for tries := 1; err != nil && tries < maxDELs && r.ctx.Err() == nil; tries++ {
		_, err = r.run(s, "DEL", s.cid, s.ns.Path(), callPatience)
	}
	if err == nil && choice%8 == 2 {
		_, err = r.run(s, "DEL", s.cid, "", callPatience)
	}
	if err != nil {
		r.wrong("DEL of %s has not succeeded: %v", s.cid, err)
	}
	r.isGone(s)
	s.former, s.cid, s.addrs = s.cid, "", nil
}

// claim notes that the slot's container was told what its addresses are.
func (r *race) claim(s *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range s.addrs {
		if other := r.owners[a]; other != "" {
			r.wrong("%s was given to %s while %s has it", a, s.cid, other)
		}
		r.owners[a] = s.cid
	}
}

// disclaim notes that the container's addresses are about to be freed.
func (r *race) disclaim(s *slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range s.addrs {
		if r.owners[a] == s.cid {
			delete(r.owners, a)
		}
	}
}
