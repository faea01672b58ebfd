// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/inflight"
)

// reaches says whether a host gets an answer from each address of a target.
func reaches(t *testing.T, from *Host, to Target) bool {
	t.Helper()
	for _, a := range to.Addrs() {
		if ok, err := from.Namespace().Answers(a); err != nil {
			t.Fatal(err)
		} else if !ok {
			return false
		}
	}
	return true
}

// reachable are the ordered pairs of hosts, and of hosts with etcd, that have
// an answer, each family by itself.
func reachable(t *testing.T, l *Lab) (ok []string) {
	t.Helper()
	try := func(name string, from *Host, to netip.Addr) {
		if reaches(t, from, Address(to)) {
			ok = append(ok, name)
		}
	}
	for _, from := range l.Hosts() {
		for _, to := range l.Hosts() {
			if from != to {
				try(from.Name()+to.Name()+"4", from, to.IPv4())
				try(from.Name()+to.Name()+"6", from, to.IPv6())
			}
		}
		try(from.Name()+" etcd", from, memberAddr(false, 1).Addr())
	}
	slices.Sort(ok)
	return ok
}

// pairs are those among the hosts of each group, and each host's with etcd.
func pairs(groups ...string) []string {
	var names []string
	for _, g := range groups {
		for _, a := range g {
			names = append(names, string(a)+" etcd")
			for _, b := range g {
				if a != b {
					names = append(names, fmt.Sprintf("%c%c4", a, b), fmt.Sprintf("%c%c6", a, b))
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// answered counts the answers of a host to that many requests of another, each
// sent once.
func answered(t *testing.T, from, to *Host, n int) (answers int) {
	t.Helper()
	session, err := from.Namespace().echoes(to.IPv6())
	if err != nil {
		t.Fatal(err)
	}
	defer session.conn.Close()
	for range n {
		if err := session.send(session.to); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.Do(inflight.Wait); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(session.conn.SetDeadline(time.Now().Add(eventually.Limit)), session.send(netip.IPv6Loopback())); err != nil {
		t.Fatal(err)
	}
	for {
		seq, err := session.receive()
		if err != nil {
			t.Fatal(err)
		}
		if seq > n { // its own, the last
			return answers
		}
		answers++
	}
}
