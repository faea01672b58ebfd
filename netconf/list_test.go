// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

const listHead = `{"name": "net", "cniVersion": "1.0.0", "plugins": [`

func TestParseList(t *testing.T) {
	data, err := os.ReadFile("testdata/10-calico.conflist")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ParseList(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"calico", "calico-ipam", "portmap", "bandwidth"}, l.Programs()); diff != "" {
		t.Error(diff)
	}
	if string(l.Text()) != string(data) {
		t.Error("the text is another")
	}
	for _, tt := range []struct{ in, want string }{
		{`[]`, "network configuration: want a JSON object, got list"},
		{``, "network configuration: unexpected end of JSON input"},
		{`{"name": "n", "type": "calico"}`, `plugins: missing: this is the configuration of one plugin; write {"name": …, "cniVersion": …, "plugins": [{"type": …, …}]}`},
		{`{"name": "n"}`, "plugins: want a list of at least one plugin, got nothing"},
		{`{"name": "n", "plugins": []}`, "plugins: want a list of at least one plugin, got list"},
		{`{"name": "n", "plugins": {}}`, "plugins: want a list of at least one plugin, got object"},
		{`{"name": "n", "plugins": [7]}`, "plugins[0]: want an object, got number"},
		{`{"name": "n", "plugins": [{"type": "calico"}, null]}`, "plugins[1]: want an object, got null"},
		{`{"name": "n", "plugins": [{}]}`, "plugins[0].type: missing: the name of a plugin"},
		{`{"plugins": [{"type": "calico"}]}`, "name: missing: every network needs a name"},
		{`{"name": "a b", "plugins": [{"type": "calico"}]}`, "name: want letters, digits, '_', '.' and '-', got \"a b\""},
		{`{"name": "n", "plugins": [{"type": "ptp"}, {"type": "calico", "mtu": "1"}]}`, "plugins[1].mtu: want a whole number, got string"},
		{`{"name": "n", "plugins": [{"type": "bridge", "ipam": {"type": "calico-ipam", "assign_ipv4": 1}}]}`,
			"plugins[0].ipam.assign_ipv4: want true/false or \"true\"/\"false\", got number"},
		{`{"name": "n", "plugins": [{"type": "portmap", "snat": 7}]}`, ""}, // another's to say
	} {
		got := ""
		if _, err := ParseList([]byte(tt.in)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.in, got, tt.want)
		}
	}
}

func mustList(t *testing.T, text string) *List {
	t.Helper()
	l, err := ParseList([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMend(t *testing.T) {
	const (
		calico   = `{"type": "calico", "mtu": 1400}`
		changed  = `{"type": "calico", "mtu": 1500}`
		portmap  = `{"type": "portmap", "snat": true}`
		istio    = `{"type": "istio-cni", "log_level": "info"}`
		tuning   = `{"type": "tuning", "sysctl": {"net.core.somaxconn": "512"}}`
		linkerd  = `{"type": "linkerd-cni"}`
		ours     = listHead + calico + ", " + portmap + "]}"
		same     = "" // as it was
		replaced = ours
	)
	withIstio := "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"net\",\n  \"plugins\": [\n    {\n      \"type\": \"calico\",\n      \"mtu\": 1400\n    },\n" +
		"    {\n      \"type\": \"portmap\",\n      \"snat\": true\n    },\n    {\n      \"type\": \"istio-cni\",\n      \"log_level\": \"info\"\n    }\n  ]\n}\n"
	for _, tt := range []struct{ name, there, former, want string }{
		{"as written", ours, "", same},
		{"other white space and order of fields", `{"plugins":[{"mtu":1400,"type":"calico"},` + portmap + `],"cniVersion":"1.0.0","name":"net"}`, "", same},
		{"missing", "", "", replaced},
		{"cut off", ours[:40], "", replaced},
		{"no object", "[]", "", replaced},
		{"plugins of another shape", `{"name": "net", "cniVersion": "1.0.0", "plugins": [7]}`, "", replaced},
		{"one changed", listHead + changed + ", " + portmap + "]}", "", replaced},
		{"one gone", listHead + calico + "]}", "", replaced},
		{"another order", listHead + portmap + ", " + calico + "]}", "", replaced},
		{"another name", `{"name": "x", "cniVersion": "1.0.0", "plugins": [` + calico + ", " + portmap + "]}", "", replaced},
		{"one field more", `{"disableCheck": true, "name": "net", "cniVersion": "1.0.0", "plugins": [` + calico + ", " + portmap + "]}", "", replaced},
		{"another's at the end", listHead + calico + ", " + portmap + ", " + istio + "]}", "", same},
		{"another's between", listHead + calico + ", " + istio + ", " + portmap + "]}", "", same},
		{"another's, and ours changed", listHead + changed + ", " + portmap + ", " + istio + "]}", "", withIstio},
		{"another's, and the former's that is ours no more", listHead + calico + ", " + portmap + ", " + tuning + ", " + istio + "]}",
			listHead + calico + ", " + portmap + ", " + tuning + "]}", withIstio},
		{"the former's that is ours no more", listHead + calico + ", " + portmap + ", " + tuning + "]}", listHead + calico + ", " + tuning + "]}", replaced},
		{"not the former's", listHead + calico + ", " + portmap + ", " + linkerd + "]}", listHead + calico + "]}", same},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var former *List
			if tt.former != "" {
				former = mustList(t, tt.former)
			}
			l := mustList(t, ours)
			got := l.Mend([]byte(tt.there), former)
			want := tt.want
			if want == same {
				want = tt.there
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := l.Mend(got, former); string(again) != string(got) {
				t.Errorf("mended again: %s", again)
			}
		})
	}
}

func TestIsOurs(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type": "calico"}`: true,
		`{"plugins": [{"type": "ptp"}, {"type": "calico"}]}`:  true,
		`{"plugins": [{"type": "cilium-cni"}]}`:               false,
		`{"type": "bridge", "ipam": {"type": "calico-ipam"}}`: false,
		`nonsense`: false,
	} {
		if got := IsOurs([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// FuzzMend: what was mended needs no mending, and holds the list.
func FuzzMend(f *testing.F) {
	f.Add([]byte(listHead+`{"type": "calico"}]}`), []byte(listHead+`{"type": "calico", "mtu": 1400}, {"type": "x"}]}`))
	f.Add([]byte(listHead+`{"type": "calico"}, {"type": "calico"}]}`), []byte(`{"plugins": [null, {"type": "calico"}]}`))
	f.Fuzz(func(t *testing.T, ours, there []byte) {
		l, err := ParseList(ours)
		if err != nil {
			return
		}
		got := l.Mend(there, nil)
		if again := l.Mend(got, nil); string(again) != string(got) {
			t.Errorf("%q mended is %q, and again %q", there, got, again)
		}
	})
}

// TestFiles: libcni says which files of a directory a runtime reads.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"10-b.conflist", "20-a.json", "05-c.conf", "00-d.conf" + BackupSuffix, "README"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "01-e.conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	paths, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	var want []string
	for _, path := range paths {
		want = append(want, filepath.Base(path))
	}
	if got, err := Files(dir); err != nil || len(got) != 3 || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := Files(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
