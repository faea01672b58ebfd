// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// dozen are the specs of Kubernetes' own test of NetworkPolicy that run by default: one for each thing that a policy can say.
var dozen = []string{
	"should support a 'default-deny-all' policy",
	"should enforce policy to allow traffic from pods within server namespace based on PodSelector",
	"should enforce policy based on NamespaceSelector with MatchExpressions",
	"should enforce policy based on PodSelector and NamespaceSelector",
	"should enforce policy based on Ports",
	"should enforce multiple, stacked policies with overlapping podSelectors",
	"should allow ingress access from namespace on one named port",
	"should enforce updated policy",
	"should deny ingress access to updated pod",
	"should enforce except clause while egress access to server in CIDR block",
	"should not mistakenly treat 'protocol: SCTP' as 'protocol: TCP'",
	"should not allow access by TCP when a policy specifies only UDP",
}

// atOnce is how many specs run at the same time: mostly they wait.
const atOnce = 4

// TestNetworkPolicy runs Kubernetes' own test. NETPOL is a regular expression of the specs that are run; "." is all. Those that
// need SCTP sockets are left out: not every kernel has them.
func TestNetworkPolicy(t *testing.T) {
	c := Up(t, Images(t)...)
	etcd := c.Install(Manifest(t))
	s := specs{c, c.write("registries.yaml", "promoterE2eRegistry: "+strings.TrimSuffix(Agnhost, "/agnhost:2.56")+"\n")}
	wanted := s.list(t, os.Getenv("NETPOL"))
	lists := make([][]string, atOnce)
	for i, name := range wanted {
		lists[i%atOnce] = append(lists[i%atOnce], name)
	}
	var running sync.WaitGroup
	for i, names := range lists {
		if len(names) > 0 {
			running.Go(func() { s.run(t, i, names) })
		}
	}
	running.Wait()
	t.Logf("%d specs ran", len(wanted))
	switch pattern := os.Getenv("NETPOL"); {
	case pattern == "" && len(wanted) < len(dozen), pattern == "." && len(wanted) != 47: // of 50: three need SCTP
		t.Errorf("%d specs ran: %q", len(wanted), wanted)
	}
	c.AwaitClean(etcd)
}

// specs are Kubernetes' tests, run on the cluster.
type specs struct {
	c          *Cluster
	registries string // file that says which images the tests use
}

func (s specs) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.c.bin, "e2e-netpol.test"), append([]string{
		"-kubeconfig", s.c.Kubeconfig, "-provider", "skeleton", "-num-nodes", "2", "-ginkgo.skip", "SCTPConnectivity", "-ginkgo.no-color",
	}, args...)...)
	cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+s.registries)
	return cmd
}

// list returns the full names of the specs that match; without a pattern those of the dozen.
func (s specs) list(t *testing.T, pattern string) []string {
	t.Helper()
	match, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatalf("NETPOL=%q: %v", pattern, err)
	}
	report := s.c.file("specs.json")
	if out, err := s.command(t.Context(), "-ginkgo.dry-run", "-ginkgo.json-report", report).CombinedOutput(); err != nil {
		t.Fatalf("list the specs: %v\n%s", err, out)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range suites[0].SpecReports {
		name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
		chosen := match.MatchString(name)
		if pattern == "" {
			// Others have the same text for another kind of machine.
			chosen = strings.Contains(name, "between server and client should") && slices.ContainsFunc(dozen, func(d string) bool { return strings.HasPrefix(r.LeafNodeText, d) })
		}
		if chosen && r.State == "passed" && r.LeafNodeText != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatalf("NETPOL=%q: no spec has such a name", pattern)
	}
	return names
}

// run runs specs one after the other.
func (s specs) run(t *testing.T, index int, names []string) {
	limit := time.Duration(len(names)) * 5 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), limit+time.Minute)
	defer cancel()
	var focus []string
	for _, name := range names {
		focus = append(focus, regexp.QuoteMeta(name))
	}
	out, err := s.command(ctx, "-ginkgo.timeout", limit.String(), "-ginkgo.focus", "("+strings.Join(focus, "|")+")$").CombinedOutput()
	ran := fmt.Sprintf("Ran %d of ", len(names))
	if err != nil || !strings.Contains(string(out), ran) {
		lines := strings.Split(string(out), "\n")
		t.Errorf("list %d of %d specs, %q: %v:\n%s", index, len(names), names, err, strings.Join(lines[max(0, len(lines)-150):], "\n"))
	}
}
