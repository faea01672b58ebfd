// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

// TestCalicoctl is an operator's session at two pods of a host.
func TestCalicoctl(t *testing.T) {
	ctx := within(t, 3*time.Minute)
	l := lab.ForTest(t, lab.Config{Hosts: []string{"a"}, NoFsync: true})
	a := l.Host("a")
	web, db := a.Pod("web"), a.Pod("db")
	program := filepath.Join(lab.Build(t, lab.BuildOptions{}), "calicoctl")
	calicoctl := func(want string, args ...string) {
		t.Helper()
		out, err := a.Exec(ctx, program, args...)
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("calicoctl %s: want %q\n%s\n%v", strings.Join(args, " "), want, out, err)
		}
	}
	reaches := func(want bool) {
		t.Helper()
		eventually.Nil(t, "what the policy says", func() error {
			for _, a := range db.Addrs() {
				if got, err := web.Namespace().Answers(a); err != nil || got != want {
					return fmt.Errorf("%s answers: %t, %w", a, got, err)
				}
			}
			return nil
		})
	}
	reaches(true)
	calicoctl(db.Addrs()[0].String(), "get", "workloadendpoints", "-A", "-o", "wide")
	calicoctl("a", "get", "nodes")
	calicoctl(db.Addrs()[0].String(), "ipam", "show", "--ip="+db.Addrs()[0].String())
	calicoctl("", "ipam", "check")
	calicoctl("", "doctor")
	calicoctl("profile calico-lab rule 0: allow", "explain", web.Addrs()[0].String(), "to", db.Addrs()[0].String())

	policy := filepath.Join(t.TempDir(), "policy.yaml")
	err := os.WriteFile(policy, []byte(`apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: closed}
spec: {selector: all(), order: 1000, types: [Ingress]}
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	calicoctl("GlobalNetworkPolicy closed created", "apply", "-f", policy)
	reaches(false)
	calicoctl("GlobalNetworkPolicy closed deleted", "delete", "-f", policy)
	reaches(true)
}
