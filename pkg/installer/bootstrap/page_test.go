// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestPage: what docs/security.md tells an administrator to grant a node in an existing etcd is what a node is granted here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	loop := regexp.MustCompile(`(?s)for prefix in (.*?); do\n.* --prefix=true readwrite ` + model.Root + `\$prefix\n`).FindSubmatch(page)
	if loop == nil {
		t.Fatal("docs/security.md has no loop over prefixes")
	}
	var got []string
	for _, prefix := range strings.Fields(string(loop[1])) {
		got = append(got, model.Root+prefix)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(nodeUser("NODE", "").Write)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("prefixes (-given +in the page):\n%s", diff)
	}
}
