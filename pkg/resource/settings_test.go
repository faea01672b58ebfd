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
