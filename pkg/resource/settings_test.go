// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// setTo returns the FelixConfiguration of a node where etcd has a value of a parameter.
func setTo(t *testing.T, parameter, value string) ([]model.Entry, resource.Resource) {
	t.Helper()
	kind, err := resource.Find("FelixConfiguration")
	if err != nil {
		t.Fatal(err)
	}
	entries := []model.Entry{entry(t, "/calico/v1/host/n/config/"+parameter, []byte(value), 7)}
	all := kind.All(entries)
	if len(all) != 1 {
		t.Fatalf("%s: %d resources", parameter, len(all))
	}
	return entries, all[0].Resource
}

// acceptable returns why a resource can't set a parameter so.
func acceptable(t *testing.T, parameter, value string) error {
	t.Helper()
	_, r := setTo(t, parameter, value)
	return resource.Check(r)
}

// TestSettingsSchema: what a parameter may be is what the schema says, and is printed so that it is read again.
func TestSettingsSchema(t *testing.T) {
	schema := schemas(t)["FelixConfiguration"]
	for _, parameter := range resource.Parameters() {
		taken := 0
		for _, value := range []string{
			"", "true", "yes", "FALSE", "0", "1", "0s", "7", "67", "68", "0.05", "1.5", "30", "+30", "90s", "1m30s", "70000", "soon", "none", "None", "DROP", "drop", "Info", "append",
			"any", "cali,tap", "192.0.2.1", "127.0.0.1", "tcp:22,udp:68", "22", "10.1.0.0/16=64512:100", "a b", "-1",
		} {
			entries, r := setTo(t, parameter, value)
			if resource.Check(r) == nil {
				taken++
				printed(t, entries)
				continue
			}
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(t, schema, text); err == nil && !lenient(parameter, value) {
				t.Errorf("%s: the schema takes %q", parameter, value)
			}
		}
		if taken == 0 {
			t.Errorf("%s: no value is taken", parameter)
		}
	}
}

// lenient are the parameters and values about which the schema doesn't say it all: rules of the Kubernetes API, ranges of durations, and text.
func lenient(parameter, value string) bool {
	durations := strings.HasSuffix(parameter, "Secs") || strings.HasSuffix(parameter, "Interval")
	return slices.Contains([]string{"InterfacePrefix", "MetadataAddr", "BGPCommunities", "LogFilePath", "HealthHost", "PrometheusMetricsHost", "BGPListenAddresses"}, parameter) ||
		strings.Contains(strings.ToLower(parameter), "mtu") && strings.Trim(value, "+0123456789") == "" ||
		strings.HasSuffix(parameter, "Ports") || durations && value != "" && strings.Trim(value, "0123456789.ms") == ""
}

// TestFieldsHaveTypes: no field of FelixConfiguration takes just any value.
func TestFieldsHaveTypes(t *testing.T) {
	kind, err := resource.Find("FelixConfiguration")
	if err != nil {
		t.Fatal(err)
	}
	for name, field := range kind.Schema().Properties["spec"].Properties {
		if field.Type == nil && !strings.HasPrefix(field.Description, "Without effect") {
			t.Errorf("%s has no type", name)
		}
	}
}

// TestTunnelsOff: Calico's fields that turn tunnels off are refused where a pool has such tunnels.
func TestTunnelsOff(t *testing.T) {
	for _, tc := range []struct{ pool, spec, err string }{
		{"ipipMode: CrossSubnet", "ipipEnabled: true, vxlanEnabled: false", ""},
		{"ipipMode: CrossSubnet", "ipipEnabled: false", "spec.ipipEnabled: false: the ipipMode of IPPool p decides"},
		{"vxlanMode: Always", "ipipEnabled: false, vxlanEnabled: true", ""},
		{"vxlanMode: Always", "vxlanEnabled: False", "spec.vxlanEnabled: false: the vxlanMode of IPPool p decides"},
		{"natOutgoing: true", "ipipEnabled: false, vxlanEnabled: false", ""},
		{"natOutgoing: true", "ipipEnabled: true, vxlanEnabled: true", ""},
	} {
		entries, _, err := stored(t, "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.0/16, "+tc.pool+"}")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"default", "node.n"} {
			doc := "kind: FelixConfiguration\nmetadata: {name: " + name + "}\nspec: {" + tc.spec + "}"
			all, err := resource.Decode("doc", []byte("apiVersion: projectcalico.org/v3\n"+doc))
			if err != nil {
				t.Fatal(err)
			}
			kind, err := resource.Find("FelixConfiguration")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(kind.WriteRanges(all[0]), model.PrefixRange(model.PoolPrefix())) {
				t.Error("a write doesn't read the pools")
			}
			if _, _, err := stored(t, doc, entries...); (err == nil) != (tc.err == "") || err != nil && !strings.HasSuffix(err.Error(), tc.err) {
				t.Errorf("%s, %s: %v, want %q", tc.pool, doc, err, tc.err)
			}
		}
	}
}
