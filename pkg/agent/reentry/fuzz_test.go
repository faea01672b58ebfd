// SPDX-License-Identifier: Apache-2.0

package reentry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/kernel/link"
	"github.com/calico-go/calico/pkg/model"
)

// FuzzRecord: a file that this host didn't write at this place is ignored, and only endpoints whose link exists are entered.
func FuzzRecord(f *testing.F) {
	const path = "/calico/v1/host/h/workload/k8s/w/endpoint/eth0"
	const spec = `{"state":"active","name":"cali1","mac":null,"profile_ids":[],"ipv4_nets":["10.0.0.5/32"],"ipv6_nets":[],"container_id":"c"}`
	f.Add([]byte(`{"path":"`+path+`","revision":7,"value":`+spec+`}`), "00112233445566778899aabbccddeeff")
	f.Add([]byte(`{"path":"/calico/v1/host/other/workload/k8s/w/endpoint/eth0","revision":9223372036854775807,"value":null}`), "no GUID")
	dir := f.TempDir()
	r := record{dir: filepath.Join(dir, recordName)}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, guid string) {
		for file, text := range map[string]string{r.file(path): string(data), filepath.Join(dir, GUIDName): guid} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := readGUID(dir); err != nil || got != "" && (len(got) != 2*guidSize || got != strings.TrimSpace(guid)) {
			t.Fatal(got, err)
		}
		k := &Pods{Config: Config{Node: "h"}, record: openRecord(dir)}
		if len(k.record.endpoints) > 1 || len(k.record.endpoints) == 1 && k.record.endpoints[path].Path != path {
			t.Fatal(k.record.endpoints)
		}
		for _, l := range k.alive([]link.Link{{Name: "cali1", Alias: "calico net.c.eth0", Kind: "veth"}}) {
			if l.key.Path() != path || l.spec.Name != "cali1" || l.handle == "" {
				t.Fatalf("%+v", l)
			}
			if _, err := model.FormatValue(l.spec); err != nil {
				t.Fatal(err)
			}
		}
	})
}
