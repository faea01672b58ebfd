// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// People copy from the tables of the documents: these tests compare them with the code.

func readText(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// found are the distinct strings of one group of the pattern, sorted.
func found(pattern, text string, group int) []string {
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[group])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestFieldsDocumented compares the fields that netconf reads with the first
// column of docs/network-configuration.md.
func TestFieldsDocumented(t *testing.T) {
	sources, err := filepath.Glob("netconf/*.go")
	if err != nil {
		t.Fatal(err)
	}
	sources = slices.DeleteFunc(sources, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	code := readText(t, sources...)
	read := found(`\.(?:str|strings|boolean|boolOrString|integer|seconds|object|pools|addrs|get)\("([^"]+)"|field = "([^"]+)"`, code, 1)
	read = append(read, found(`field = "([^"]+)"`, code, 1)...)
	page := readText(t, "docs/network-configuration.md")
	for _, field := range read {
		if field != "" && !regexp.MustCompile(`\b`+regexp.QuoteMeta(field)+`\b`).MatchString(page) {
			t.Errorf("docs/network-configuration.md does not have %s, which netconf reads", field)
		}
	}
	table, rest, _ := strings.Cut(page, "## Annotations of pods")
	annotations, _, _ := strings.Cut(rest, "\n## ")
	known := found(`"(kubernetes\.io/[^"]+)"`, code, 1)
	for _, name := range found(`annotationPrefix *\+ *"([^"]+)"`, code, 1) {
		known = append(known, "cni.projectcalico.org/"+name)
	}
	var listed []string
	for _, column := range found("(?m)^\\| (`[^|]*)\\|", annotations, 1) {
		listed = append(listed, found("`([^`]+)`", column, 1)...)
	}
	slices.Sort(listed)
	listed = slices.DeleteFunc(listed, func(name string) bool { return name == "qos.projectcalico.org/*" })
	slices.Sort(known)
	if diff := cmp.Diff(known, listed); diff != "" {
		t.Errorf("annotations of netconf (-) and of docs/network-configuration.md (+):\n%s", diff)
	}
	for _, column := range found("(?m)^\\| (`[^|]*)\\|", table, 1) {
		for _, path := range found("`([^`]+)`", column, 1) {
			last := path[strings.LastIndexByte(path, '.')+1:]
			if !slices.Contains(read, path) && !slices.Contains(read, last) {
				t.Errorf("docs/network-configuration.md has %s, which netconf doesn't read", path)
			}
		}
	}
}

// TestRoutingFieldsDocumented compares the fields of pools, peers and subnets with the documents' tables.
func TestRoutingFieldsDocumented(t *testing.T) {
	page := readText(t, "docs/routing.md")
	for _, tt := range []struct{ file, function, page, heading string }{
		{"pkg/model/pool.go", "parsePool", "docs/routing.md", "## Pools"},
		{"pkg/model/bgp.go", "parsePeer", "docs/routing.md", "### Peers"},
		{"pkg/model/subnet.go", "parseSubnet", "docs/virtual-machines.md", "## Subnets"},
	} {
		_, code, _ := strings.Cut(readText(t, tt.file), "func "+tt.function+"(")
		code, _, _ = strings.Cut(code, "\n}\n")
		_, table, _ := strings.Cut(readText(t, tt.page), tt.heading+"\n")
		table, _, _ = strings.Cut(table, "\n#")
		var got []string
		for _, column := range found("(?m)^\\| (`[^|]*)\\|", table, 1) {
			got = append(got, found("`([^`]+)`", column, 1)...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(found(`(?:into\(|field\{)"([a-z_]+)",`, code, 1), got); diff != "" {
			t.Errorf("fields of %s (-) and of %s, %s (+):\n%s", tt.function, tt.page, tt.heading, diff)
		}
	}
	for _, key := range found(`"bgp/v1/([^"]+)", func`, readText(t, "pkg/model/kinds.go"), 1) {
		for _, version := range []string{"4", "6"} {
			key := strings.NewReplacer("host/*", "host/<host>", "peer/*", "peer/<name>", "filter/*", "filter/<name>", "v?/*", "v"+version+"/<address>").Replace(key)
			if !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/routing.md does not have bgp/v1/%s", key)
			}
		}
	}
}

// TestErrorCodesDocumented compares the list in pkg/cni with the table of docs/errors.md.
func TestErrorCodesDocumented(t *testing.T) {
	files, err := filepath.Glob("pkg/cni/*.go")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("pkg/cni/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	want := found(`(?m)^//\t *([0-9]+)  `, readText(t, append(files, deeper...)...), 1)
	if len(want) == 0 {
		t.Fatal("pkg/cni lists no codes")
	}
	got := found(`(?m)^\| ([0-9]+) \|`, readText(t, "docs/errors.md"), 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error codes of pkg/cni (-) and of docs/errors.md (+):\n%s", diff)
	}
}

// TestLinks follows the documents' links to other files and to headings.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CHANGELOG.md") {
		for _, link := range found(`\]\(([^)\s]+)\)`, readText(t, page), 1) {
			if strings.Contains(link, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link %s: %v", page, link, err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readText(t, file)), anchor) {
				t.Errorf("%s: link %s: %s has no such heading", page, link, file)
			}
		}
	}
}

// anchors are what the headings of a page are linked by.
func anchors(page string) []string {
	notInAnchor := regexp.MustCompile(`[^a-z0-9_\- ]`)
	var out []string
	for _, heading := range found(`(?m)^#+ (.*)$`, page, 1) {
		name := notInAnchor.ReplaceAllString(strings.ToLower(heading), "")
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

// TestVersion holds the version that each command has without the linker's help to that of the Makefile and the
// changelog.
func TestVersion(t *testing.T) {
	want := found(`(?m)^RELEASE +:= ([0-9.]+)`, readText(t, "Makefile"), 1)
	mains, err := filepath.Glob("cmd/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range mains {
		if diff := cmp.Diff(want, found(`(?m)^var version = "(.*)"`, readText(t, file), 1)); diff != "" {
			t.Errorf("version of the Makefile (-) and of %s (+):\n%s", file, diff)
		}
	}
	if diff := cmp.Diff(want, found(`(?m)^## ([0-9.]+)`, readText(t, "CHANGELOG.md"), 1)); diff != "" {
		t.Errorf("version of the Makefile (-) and of the changelog (+):\n%s", diff)
	}
}
