// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/kernel"
)

// listenJudge refuses values of BGPListenAddresses by which BGP could listen nowhere
// that others reach: without its sessions the host is cut off from others' workloads.
type listenJudge struct {
	roles    func(prefixes []string) ([]kernel.LinkRole, error) // nil = nothing is refused
	verdicts map[string]error                                   // of the values that are set, by value
	seen     map[string]struct{}                                // those that were asked for since the last rest
}

func newListenJudge() *listenJudge {
	return &listenJudge{verdicts: map[string]error{}, seen: map[string]struct{}{}}
}

// refuse says why a value that parses can't be used. One that could be stays so while
// it is set: where its address goes, and comes again, no other session need end.
func (j *listenJudge) refuse(name string, p *Params) error {
	if name != "BGPListenAddresses" || j.roles == nil || len(p.BGPListen) == 0 {
		return nil
	}
	key := listenKey(p.BGPListen)
	j.seen[key] = struct{}{}
	err, known := j.verdicts[key]
	if !known {
		err = j.judge(p.BGPListen)
		j.verdicts[key] = err
	}
	return err
}

func listenKey(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}

// rest forgets the values that are not set any more.
func (j *listenJudge) rest() {
	for key := range j.verdicts {
		if _, set := j.seen[key]; !set {
			delete(j.verdicts, key)
		}
	}
	clear(j.seen)
}

// review looks whether what was refused can be used by now, and says so.
func (j *listenJudge) review() bool {
	changed := false
	for key, before := range j.verdicts {
		if before == nil {
			continue
		}
		addrs, err := parseListenAddresses(key)
		if err == nil {
			err = j.judge(addrs)
		}
		j.verdicts[key] = err
		changed = changed || errorText(err) != errorText(before)
	}
	return changed
}

// judge looks at the host's addresses. Where they can't be read BGP says by itself
// where it can't listen.
func (j *listenJudge) judge(addrs []netip.Addr) error {
	links, err := j.roles([]string{""})
	if err != nil {
		return nil
	}
	own := map[netip.Addr]bool{}
	for _, l := range links {
		for _, a := range l.Addrs {
			own[a] = true
		}
	}
	for _, a := range addrs {
		if !a.IsUnspecified() && !a.IsLoopback() && !own[a] {
			return fmt.Errorf("address %s: no link of this host has it, so that BGP could not listen and all sessions would end: want addresses of the host, or nothing for all", a)
		}
	}
	if !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		return errors.New("only the host itself reaches what listens there, so that no other host could open a session: want addresses that others reach, or nothing for all")
	}
	return nil
}
