// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// recorded is the plugin that this test's own binary stands in front of where a test wants to see how it is called.
const recorded = "calico"

// record notes the call and becomes the plugin.
func record() {
	dir := filepath.Dir(os.Args[0])
	log, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(log, "%s %s %s\n", os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_NETNS"))
	}
	if err == nil {
		err = syscall.Exec(filepath.Join(dir, "plugin"), []string{recorded}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "record:", err)
	os.Exit(1)
}

// recordCalls puts this binary in the plugin's place.
func recordCalls(t *testing.T, bin string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(bin, recorded)
	if err := os.Rename(plugin, filepath.Join(bin, "plugin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, plugin); err != nil {
		t.Fatal(err)
	}
}

// calls are the commands that were given for a container, each followed by whether there was a namespace.
func calls(t *testing.T, bin, container string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(bin, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case fields[1] != container:
		case fields[2] == "":
			got = append(got, fields[0]+" without netns")
		default:
			got = append(got, fields[0])
		}
	}
	return got
}
