// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/long"
)

// TestInstallPage follows docs/install.md on two hosts, with and without IPv6: their pods
// reach each other, and when the hosts are removed nothing of it is left.
func TestInstallPage(t *testing.T) {
	long.Test(t)
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, c := range commandsOf(string(page)) {
		blocks = append(blocks, c.sh)
	}
	parts := []string{"build", "once", "plugins", "agent", "start", "ready", "conflist", "try", "away", "upgrade", "drained", "kernel", "files", "etcd"}
	if len(blocks) != len(parts) {
		t.Fatalf("the page has %d blocks: want %v", len(blocks), parts)
	}
	bin := lab.Build(t, lab.BuildOptions{})
	isolate := filepath.Join(t.TempDir(), "isolate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", isolate, "../../scripts/isolate").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	script, err := filepath.Abs("testdata/install-host.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		with    []string // what is changed on the page, in pairs
		answers int
	}{
		{"IPv4", nil, 1},
		{"IPv6 as well", []string{"# IP6=", "IP6=", `"assign_ipv6": "false"`, `"assign_ipv6": "true"`,
			"spec: {cidr: 10.10.0.0/16}\n", "spec: {cidr: 10.10.0.0/16}\n---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods6}\n" + ipv6Pool(t, string(page))}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			edit := strings.NewReplacer(append(tt.with, "http://127.0.0.1:2379", "http://172.20.0.11:2379", "host=worker-1", "host=$(hostname)")...)
			for i, name := range parts {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(edit.Replace(blocks[i])), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
				t.Fatal(err)
			}
			host := func(node, name string) string {
				return fmt.Sprintf("calico-lab exec %s -- env -i PATH=$PATH unshare -um sh %s %s %s /run/meet", node, script, name, dir)
			}
			cmd := exec.CommandContext(t.Context(), isolate, "sh", "-c", strings.Join([]string{
				"calico-lab up --no-agent --hosts a,b",
				"calico-lab exec a -- env ETCDCTL_API=3 etcdctl --endpoints http://172.20.0.11:2379 del --prefix /calico/",
				"mkdir /run/meet",
				host("a", "h1") + " >/run/meet/h1.log 2>&1 &",
				host("b", "h2"),
				"wait",
				"cat /run/meet/h1.log",
				"calico-lab down",
			}, "\n"))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for text, want := range map[string]int{"answers: yes": tt.answers, "\nok\n": 2, "replaced: 3": 2, "still the old": 0, "h1 is as before": 1, "h2 is as before": 1, "no pod is left": 2} {
				if got := strings.Count(string(out), text); got != want {
					t.Errorf("%q: %d times, want %d", text, got, want)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// ipv6Pool is the spec of the pool that the page has in its text.
func ipv6Pool(t *testing.T, page string) string {
	t.Helper()
	_, rest, _ := strings.Cut(page, "`spec: ")
	spec, _, ok := strings.Cut(rest, "`")
	if !ok {
		t.Fatal("the page has no pool of IPv6")
	}
	return "spec: " + spec + "\n"
}
