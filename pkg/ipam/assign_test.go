// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"testing"

	"github.com/calico-go/calico/pkg/model"
)

func TestMainPath(t *testing.T) {
	s := newEtcd(t)
	s.pool(model.Pool{CIDR: cidr("10.0.0.0/16")})
	s.pool(model.Pool{CIDR: cidr("fd00:10::/48")})
	r := Request{Host: "a", Handle: "net.c1.eth0", IPv4: true, IPv6: true, Now: noon}
	first, err := s.assign(r)
	if err != nil {
		t.Fatal(err)
	}
	if s.rounds != 2 {
		t.Errorf("%d rounds of reading for a new block, want 2", s.rounds)
	}
	s.mustBeSound()
	t.Log(first, s.bytesRead)
	s.rounds = 0
	again, err := s.assign(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(again)
	r.Handle = "net.c2.eth0"
	s.rounds = 0
	second, err := s.assign(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(second)
	s.mustBeSound()
	for _, h := range []string{"net.c1.eth0", r.Handle} {
		if freed, err := s.release(h, noon); err != nil || len(freed) != 2 {
			t.Fatal(freed, err)
		}
		s.mustBeSound()
	}
	for _, e := range s.dump() {
		t.Log(e.Path)
	}
}
