// SPDX-License-Identifier: Apache-2.0

package params

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestConfigFile(t *testing.T) {
	tests := []struct {
		name, text string
		want       map[string]string
		err        string
	}{
		{"empty", "", map[string]string{}, ""},
		{"usual", "\ufeff# of this host\r\n[global]\r\nInterfacePrefix = tap,cali\r\n\r\n; more\nLogPrefix=a=b\nHealthHost =\n",
			map[string]string{"InterfacePrefix": "tap,cali", "LogPrefix": "a=b", "HealthHost": ""}, ""},
		{"no section, no end", "A = 1\n [ log ] \n B= 2", map[string]string{"A": "1", "B": "2"}, ""},
		{"one said again", "A = 1\nB = 2\nA = 3\nB=2\nA=4", map[string]string{"A": "4", "B": "2"},
			"line 1: \"A = 1\": line 3 says it again, and counts\nline 3: \"A = 3\": line 5 says it again, and counts"},
		{"what isn't understood", "A = 1\nnonsense\n= 2\n[open\n[x = 3\nB = 4", map[string]string{"A": "1", "B": "4"},
			"line 2: \"nonsense\": want [section], Name = value or # comment\nline 3: \"= 2\": want [section], Name = value or # comment\n" +
				"line 4: \"[open\": want [section], Name = value or # comment\nline 5: \"[x = 3\": want [section], Name = value or # comment"},
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "felix.cfg")
	for _, test := range tests {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadFile(path)
		if diff := cmp.Diff(test.want, got); diff != "" || text(err) != test.err {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
	for _, none := range []string{"", filepath.Join(dir, "none"), filepath.Join(dir, "no", "directory")} {
		if got, err := ReadFile(none); got != nil || err != nil {
			t.Errorf("%q: %v, %v", none, got, err)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "not a file", pipe: "not a file", big: "1048577 bytes: at most 1048576", path + "/x": "not a directory"} {
		if _, err := ReadFile(path); !strings.Contains(text(err), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("[global]\nInterfacePrefix = tap\n#x\nnonsense\n")
	f.Fuzz(func(t *testing.T, text string) {
		settings, _ := parseFile(strings.NewReader(text))
		for name, value := range settings {
			if name == "" || name != strings.TrimSpace(name) || value != strings.TrimSpace(value) {
				t.Errorf("%q = %q", name, value)
			}
		}
	})
}

// text returns an error's text, "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
