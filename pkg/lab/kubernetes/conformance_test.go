// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// conformanceImage is the image that upstream's conformance test of ClusterNetworkPolicy names. Here it is ours.
const conformanceImage = "registry.k8s.io/e2e-test-images/agnhost:2.45"

// needSCTP are the tests that open SCTP sockets, which not every kernel has; most do beside TCP and UDP.
var needSCTP = []string{"SCTP", "TierGress", "TierPortRange", "TierEgressInlineCIDRPeers", "TierEgressNodePeers/'deny-egress'"}

// TestSlowClusterNetworkPolicy runs upstream's conformance test, fields on trial included. CNP is a regular expression of the tests that
// are run, such as CNPAdminTierEgressTCP; without it all are. It takes ten minutes: what is denied is waited for, twice.
func TestSlowClusterNetworkPolicy(t *testing.T) {
	c := Up(t, Images(t)...)
	c.DefineClusterNetworkPolicies() // first: the controllers need some seconds to notice a kind
	etcd := c.Install(Manifest(t))
	for _, n := range c.Nodes {
		if out, err := n.ctr("images", "tag", Agnhost, conformanceImage).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.bin, "clusterpolicy.test"), "-test.v", "-all-features",
		"-test.run=^TestConformance$/"+os.Getenv("CNP"), "-test.skip=^TestConformance$/"+strings.Join(needSCTP, "|^TestConformance$/"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "\n        --- PASS: ")
	if err != nil || passed == 0 || os.Getenv("CNP") == "" && passed != 72 {
		t.Errorf("%d passed: %v\n%s", passed, err, out)
	}
	t.Logf("%d passed", passed)
	for _, name := range []string{"gryffindor", "slytherin", "hufflepuff", "ravenclaw", "forbidden-forrest"} {
		c.Kubectl("wait", "--for=delete", "namespace/network-policy-conformance-"+name, "--timeout=180s")
	}
	c.AwaitClean(etcd)
}
