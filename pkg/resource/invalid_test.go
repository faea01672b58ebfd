// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/calico-go/calico/pkg/resource"
)

var update = flag.Bool("update", false, "write the messages to testdata/invalid, and docs/reference")

// TestInvalid compares the error of each document in testdata/invalid with the message that follows it.
func TestInvalid(t *testing.T) {
	files, err := filepath.Glob("testdata/invalid/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		archive := txtar.Parse(data)
		for i := 0; i+1 < len(archive.Files); i += 2 {
			doc, want := archive.Files[i], strings.TrimSpace(string(archive.Files[i+1].Data))
			if archive.Files[i+1].Name != "error" {
				t.Fatalf("%s: %s has no error", file, doc.Name)
			}
			got := "nothing is wrong"
			all, err := resource.Decode(doc.Name, doc.Data)
			for _, r := range all {
				if err == nil {
					err = resource.Check(r)
				}
			}
			if err != nil {
				got = err.Error()
			}
			if *update {
				archive.Files[i+1].Data = []byte(got + "\n")
			} else if got != want {
				t.Errorf("%s: %s", filepath.Base(file), cmp.Diff(want, got))
			}
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestParameters compares the settings of FelixConfiguration with the agents' parameters, and refuses those on which etcd doesn't decide.
func TestParameters(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	local := 0
	_, table, _ := strings.Cut(string(page), "| Name | What it does |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			want = append(want, name)
			cells := strings.Split(strings.TrimSuffix(line, " |"), " | ")
			if initial := strings.Trim(strings.Replace(cells[len(cells)-2], "nothing", "", 1), "`"); strings.Contains(line, "etcd does not decide on it") {
				local++
				for value, good := range map[string]bool{initial: true, "/x": false, "192.0.2.1": false} {
					err := acceptable(t, name, value)
					if (err == nil) != good {
						t.Errorf("%s %q: %v", name, value, err)
					}
				}
			}
		}
	}
	got := resource.Parameters()
	for _, name := range want {
		found := false
		for _, g := range got {
			found = found || g == name
		}
		if !found {
			t.Errorf("%s is in docs/configuration.md, and no resource sets it", name)
		}
	}
	if len(got) != len(want) || len(want) == 0 || local == 0 {
		t.Errorf("%d parameters, want %d", len(got), len(want))
	}
}
