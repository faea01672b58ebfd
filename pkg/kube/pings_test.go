// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"testing"
)

// TestPings: connections are probed sooner than by client-go's defaults, unless the operator says otherwise.
func TestPings(t *testing.T) {
	idle, answer := pings[0], pings[1]
	t.Setenv(idle.name, "")
	t.Setenv(answer.name, "7")
	c, err := New(Config{Name: "test", APIRoot: "https://192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if have := os.Getenv(idle.name); have != idle.value {
		t.Errorf("%s=%s, want %s", idle.name, have, idle.value)
	}
	if have := os.Getenv(answer.name); have != "7" {
		t.Errorf("%s=%s, want the operator's 7", answer.name, have)
	}
}
