// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
)

// TestStatusOfHanging has an etcd and an agent that stand still: the command says so, and ends.
func TestStatusOfHanging(t *testing.T) {
	l := lab.ForTest(t, lab.Config{Hosts: []string{"a"}})
	agent, err := l.Host("a").Agent().Process()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := l.Members().Pause(1); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := printStatus(t.Context(), &out, &options{name: l.Name()}, l, time.Second); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(out.Bytes(), []byte("no answer within 1s")); n != 2 {
		t.Errorf("%d of 2 that hang are named:\n%s", n, &out)
	}
}
