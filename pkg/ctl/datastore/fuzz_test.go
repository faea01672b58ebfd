// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/calico-go/calico/pkg/ctl/session"
)

// FuzzImport: export prints an accepted file as what it was parsed as; the error of a refused one names the file.
func FuzzImport(f *testing.F) {
	const own = `{"format":"calico-datastore/1","revision":7,"keys":2}
{"key":"/calico/v1/Ready","value":"true"}
{"key":"/calico/v1/config/LogSeverityScreen","value":"info"}
`
	f.Add([]byte(own))
	f.Add([]byte(strings.Replace(own, `"true"}`, `"true"} {"key":"/calico/v1/config/IpInIpEnabled"}`, 1)))
	f.Add([]byte(strings.Replace(own, `:2}`, `:2}{}`, 1)))
	script, err := os.ReadFile("../testdata/script/datastore.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range txtar.Parse(script).Files {
		f.Add(file.Data)
	}
	f.Add([]byte("kind: Node\n===\n{}\n===\n" + `{"blocks":[{"Key":"/calico/ipam/v2/config","Value":{"strict_affinity":true}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		nodes, err := parseNodes(nil)
		if err != nil {
			t.Fatal(err)
		}
		nodes.to["node-1"] = "n"
		c, err := readContent(&session.Env{Stdin: bytes.NewReader(data)}, "-", nodes)
		if err != nil {
			if lines := strings.Split(err.Error(), "\n"); !strings.HasPrefix(err.Error(), "standard input") || len(lines) > 50*maxProblems {
				t.Fatal(err)
			}
			return
		}
		for line := range bytes.Lines(data) {
			if !isCalico(data) && !isDump(data) && !json.Valid(line) {
				t.Fatalf("a part of it is passed over: %q", line)
			}
		}
		var text bytes.Buffer
		if err := dump(&text, 7, c.records); err != nil {
			t.Fatal(err)
		}
		again, err := parse("again", text.Bytes())
		if err != nil || len(again) != len(c.records) {
			t.Fatal(err)
		}
		for i, r := range c.records {
			if a := again[i]; a.key != r.key || a.text != r.text {
				t.Errorf("%v is %v", r, a)
			}
		}
	})
}
