// SPDX-License-Identifier: Apache-2.0

package classic

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/test/long"
)

// examples are the messages of the documentation, by type: the request or publication, and the response.
func examples(t *testing.T) map[string][]message {
	t.Helper()
	page, err := os.ReadFile("../../docs/classic-api.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]message{}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for d := json.NewDecoder(strings.NewReader(block[1])); ; {
			var m message
			if err := d.Decode(&m); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", block[1], err)
			}
			kind, _ := m["type"].(string)
			out[kind] = append(out[kind], m)
		}
	}
	return out
}

// alike wants the fields of an example.
func alike(t *testing.T, got, example message) {
	t.Helper()
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(example)); !slices.Equal(a, b) {
		t.Errorf("%v has the fields %v, the example %v", got, a, b)
	}
}

// TestExamples: each message of the documentation is sent to the role that it is for, or comes from the role that sends it.
func TestExamples(t *testing.T) {
	long.Test(t)
	all := examples(t)
	same := func(got, example message) {
		t.Helper()
		if !reflect.DeepEqual(got, example) {
			t.Errorf("%v came, the example is %v", got, example)
		}
	}
	f := newFelix(t)
	request, answer := f.plugin.next()
	alike(t, request, all["RESYNCSTATE"][0])
	answer(all["RESYNCSTATE"][1])
	for _, kind := range []string{"ENDPOINTCREATED", "ENDPOINTUPDATED", "ENDPOINTDESTROYED", "ENDPOINTCREATED", "HEARTBEAT"} {
		same(f.to.ask(all[kind][0].String()), all[kind][1])
	}
	id, _ := all["ENDPOINTCREATED"][0]["endpoint_id"].(string)
	f.rule(map[string]message{id: all["ACLUPDATE"][0]})
	f.says(felixHealth, "/debug/invalid", "every object and setting is in order")

	m := newManager(t)
	m.has(all["GROUPUPDATE"][0])
	m.acls.Subscribe(id)
	m.allows(id, "10.65.0.0/24", "10.65.0.2/32")
	same(m.felix.ask(all["GETACLSTATE"][0].String()), all["GETACLSTATE"][1])
	alike(t, read(t, m.acls.Receive()[1]), all["ACLUPDATE"][0])
	m.acls.Subscribe("aclheartbeat")
	for parts := m.acls.Receive(); ; parts = m.acls.Receive() {
		if parts[0] == "aclheartbeat" {
			alike(t, read(t, parts[1]), all["HEARTBEAT"][2])
			break
		}
	}

	p := newPlugin(t)
	p.put(endpointPath("h", id), endpointSpec(id, "10.65.0.2"))
	p.says(pluginHealth, "/readiness", "200 ok")
	alike(t, p.felix.ask(all["RESYNCSTATE"][0].with(message{"hostname": "h"}).String()), all["RESYNCSTATE"][1])
	created, answer := p.told.next()
	alike(t, created, all["ENDPOINTCREATED"][0])
	answer(all["ENDPOINTCREATED"][1])
	p.put(endpointPath("h", id), endpointSpec(id, "10.65.0.3"))
	updated, answer := p.told.next()
	alike(t, updated, all["ENDPOINTUPDATED"][0])
	answer(all["ENDPOINTUPDATED"][1])
	same(p.acl.ask(all["GETGROUPS"][0].String()), all["GETGROUPS"][1])
	p.groups.Subscribe("groups")
	alike(t, read(t, p.groups.Receive()[1]), all["GROUPUPDATE"][0])
	p.put(endpointPath("h", id), "")
	destroyed, answer := p.told.next()
	alike(t, destroyed, all["ENDPOINTDESTROYED"][0])
	answer(all["ENDPOINTDESTROYED"][1])
}
