// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/calico-go/calico/pkg/model"
	"github.com/google/go-cmp/cmp"
)

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		fields, want string
	}{
		{`"ipam": {"assign_ipv4": 1}`, `ipam.assign_ipv4: want true/false or "true"/"false", got number`},
		{`"ipam": {"assign_ipv6": "yes"}`, `ipam.assign_ipv6: want true/false or "true"/"false", got "yes"`},
		{`"ipam": []`, `ipam: want an object, got list`},
		{`"ipam": {"type": "../sh"}`, `ipam.type: want the name of a plugin in CNI_PATH, got "../sh"`},
		{`"ipam": {"ipv4_pools": "10.0.0.0/8"}`, `ipam.ipv4_pools: want a list of strings, got string`},
		{`"ipam": {"ipv4_pools": ["10.0.0.0/8", 7]}`, `ipam.ipv4_pools[1]: want a string, got number`},
		{`"ipam": {"ipv4_pools": ["10.0.0.0/8", null]}`, `ipam.ipv4_pools[1]: want a string, got null`},
		{`"ipam": {"ipv4_pools": ["fd00::/64"]}`, `ipam.ipv4_pools[0]: fd00::/64 is of the wrong family`},
		{`"ipam": {"ipv6_pools": ["10.0.0.0/8"]}`, `ipam.ipv6_pools[0]: 10.0.0.0/8 is of the wrong family`},
		{`"ipam": {"ipv4_pools": ["10.0.0.1/8"]}`, `ipam.ipv4_pools[0]: 10.0.0.1/8 has bits set after its length: want 10.0.0.0/8`},
		{`"ipam": {"ipv4_pools": ["10.0.0.1"]}`, `ipam.ipv4_pools[0]: want the CIDR or the name of a pool, got "10.0.0.1"`},
		{`"mtu": "1500"`, `mtu: want a whole number, got string`},
		{`"mtu": 1500.5`, `mtu: want a whole number, got 1500.5`},
		{`"log_file_max_age": 3000000000`, `log_file_max_age: want a number from 0 to 2147483647, got 3000000000`},
		{`"mtu": 100000000000000000000`, `mtu: want a number from 0 to 2147483647, got 100000000000000000000`},
		{`"mtu": 1e9`, `mtu: want a whole number, got 1e9`},
		{`"mtu": -1`, `mtu: want at least 0, got -1`},
		{`"mtu": 10`, `mtu: want 0 or 68 to 65535 bytes, got 10`},
		{`"etcd_endpoints": "http://a:1", "etcd_discovery_srv": "b"`, `etcd_discovery_srv: set together with etcd_endpoints: keep one of the two`},
		{`"etcd_endpoints": "ftp://a:1"`, `etcd_endpoints: "ftp://a:1": want http:// or https://`},
		{`"etcd_endpoints": "http://"`, `etcd_endpoints: "http://": want a host and port like https://10.0.0.1:2379`},
		{`"etcd_scheme": "tcp"`, `etcd_scheme: want "http" or "https", got "tcp"`},
		{`"etcd_cert_file": "a"`, `etcd_cert_file: etcd_cert_file and etcd_key_file belong together: set both or neither`},
		{`"etcd_username": "a"`, `etcd_username: etcd_username and etcd_password_file belong together: set both or neither`},
		{`"policy": {"type": "k8s-annotations"}`, `policy.type: k8s-annotations: policy isn't read from annotations: want "k8s", and Kubernetes' NetworkPolicies, or no such field`},
		{`"policy": {"type": "openshift"}`, `policy.type: want "k8s" or no such field, got "openshift"`},
		{`"datastore_type": "kubernetes"`, `datastore_type: kubernetes: data in the Kubernetes API isn't read: take the field away, and say in etcd_endpoints where etcd is`},
		{`"datastore_type": "etcd"`, `datastore_type: want "etcdv3" or no such field, got "etcd"`},
		{`"log_level": "loud"`, `log_level: want debug, info, warning or error, got "loud"`},
		{`"datastore_timeout_seconds": 0`, `datastore_timeout_seconds: want at least 1, got 0`},
		{`"agent_socket": "agent.sock"`, `agent_socket: want an absolute path, got "agent.sock"`},
		{`"nodename_file": "nodename"`, `nodename_file: want an absolute path, got "nodename"`},
		{`"log_file_path": "cni.log"`, `log_file_path: want an absolute path, got "cni.log"`},
		{`"log_file_path": " "`, `log_file_path: want an absolute path, got " "`},
		{`"runtimeConfig": {"ips": ["10.0.0.300"]}`, `runtimeConfig.ips[0]: want an IP address, got "10.0.0.300"`},
		{`"runtimeConfig": {"mac": "02:00"}`, `runtimeConfig.mac: MAC address "02:00": want six bytes like 02:00:00:00:00:01`},
		{`"runtimeConfig": {"mac": "ff:ff:ff:ff:ff:ff"}`, `runtimeConfig.mac: MAC address ff:ff:ff:ff:ff:ff: want that of a single interface, like 02:00:00:00:00:01`},
		{`"plugins": [{"type": "calico"}]`, `plugins: this is a list of plugins: pass the configuration of one, with the name and the cniVersion of the list`},
		{`"args": {"cni": {"ips": ["0.0.0.0"]}}`, `args.cni.ips[0]: want an IP address, got "0.0.0.0"`},
		{`"cni.dev/valid-attachments": {}`, `cni.dev/valid-attachments: want a list, got object`},
		{`"cni.dev/valid-attachments": [null]`, `cni.dev/valid-attachments[0]: want an object, got null`},
		{`"cni.dev/valid-attachments": [{}]`, `cni.dev/valid-attachments[0].containerID: missing`},
		{`"cni.dev/valid-attachments": [{"containerID": "", "ifname": "eth0"}]`, `cni.dev/valid-attachments[0].containerID: missing`},
		{`"cni.dev/valid-attachments": [{"containerID": "c1", "ifName": "eth0"}]`, `cni.dev/valid-attachments[0].ifname: missing`},
		{`"cni.dev/valid-attachments": ["c1"]`, `cni.dev/valid-attachments[0]: want an object, got string`},
		{`"cni.dev/valid-attachments": [{"containerID": 1}]`, `cni.dev/valid-attachments[0].containerID: want a string, got number`},
		{`"prevResult": []`, `prevResult: want an object, got list`},
		{`"ipam": {"type": "calico-ipam", "gateway": "x"}`, `ipam.gateway: want an IP address, got "x"`},
	} {
		_, err := Parse([]byte(`{"name": "n", ` + tt.fields + `}`))
		var field *FieldError
		if !errors.As(err, &field) {
			t.Errorf("%s: %v, want a FieldError", tt.fields, err)
			continue
		}
		if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.fields, diff)
		}
	}
}

func TestEtcdOfTheEnvironment(t *testing.T) {
	environ := map[string]string{"ETCD_ENDPOINTS": "https://a:1,https://b:1", "ETCD_CA_CERT_FILE": "/ca", "ETCD_USERNAME": "u", "ETCD_PASSWORD_FILE": "/p"}
	for _, tt := range []struct {
		name, fields string
		environ      map[string]string
		want         Etcd
		err          string
	}{
		{"nothing", ``, nil, Etcd{Unnamed: true, Endpoints: []string{defaultEndpoint}}, ""},
		{"environment", ``, environ, Etcd{Endpoints: []string{"https://a:1", "https://b:1"}, CAFile: "/ca", Username: "u", PasswordFile: "/p"}, ""},
		{"files of the configuration", `,"etcd_ca_cert_file":"/own"`, environ,
			Etcd{Endpoints: []string{"https://a:1", "https://b:1"}, CAFile: "/own", Username: "u", PasswordFile: "/p"}, ""},
		{"configuration", `,"etcd_endpoints":"http://c:1"`, environ, Etcd{Endpoints: []string{"http://c:1"}}, ""},
		{"older configuration", `,"etcd_authority":"c:1"`, environ, Etcd{Endpoints: []string{"http://c:1"}}, ""},
		{"older environment", ``, map[string]string{"ETCD_AUTHORITY": "d:1", "ETCD_SCHEME": "https"}, Etcd{Endpoints: []string{"https://d:1"}}, ""},
		{"with a CA", ``, map[string]string{"ETCD_AUTHORITY": "d:1", "ETCD_CA_CERT_FILE": "/ca"}, Etcd{Endpoints: []string{"https://d:1"}, CAFile: "/ca"}, ""},
		{"both environments", ``, map[string]string{"ETCD_AUTHORITY": "d:1", "ETCD_ENDPOINTS": "http://a:1"}, Etcd{Endpoints: []string{"http://a:1"}}, ""},
		{"scheme alone", ``, map[string]string{"ETCD_SCHEME": "https"}, Etcd{Unnamed: true, Endpoints: []string{"https://127.0.0.1:2379"}}, ""},
		{"configuration, older environment", `,"etcd_endpoints":"http://c:1"`, map[string]string{"ETCD_AUTHORITY": "d:1"}, Etcd{Endpoints: []string{"http://c:1"}}, ""},
		{"discovery", ``, map[string]string{"ETCD_DISCOVERY_SRV": "d"}, Etcd{DiscoverySRV: "d"}, ""},
		{"nonsense", ``, map[string]string{"ETCD_ENDPOINTS": "ftp://a"}, Etcd{Endpoints: []string{"ftp://a"}},
			`environment.etcd_endpoints: "ftp://a": want http:// or https://`},
	} {
		c, err := Parse([]byte(`{"name":"n"` + tt.fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Etcd.Environ(func(name string) string { return tt.environ[name] })
		if diff := cmp.Diff(tt.want, c.Etcd); diff != "" || text(err) != tt.err {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
		}
	}
}

func TestParseDEL(t *testing.T) {
	for _, tt := range []struct{ in, passed, err, raw string }{
		{`{"name": "n", "prevResult": {}}`, "", "", `{"name": "n", "prevResult": {}}`},
		{`{"name": "n", "runtimeConfig": {"mac": "x", "ips": ["y"]}, "args": []}`,
			"runtimeConfig.ips[0]: want an IP address, got \"y\"\n" +
				"runtimeConfig.mac: MAC address \"x\": want six bytes like 02:00:00:00:00:01\nargs: want an object, got list",
			"", `{"name":"n"}`},
		{`{"name": "n", "prevResult": [], "args": {"cni": {}}}`, "prevResult: want an object, got list", "", `{"args":{"cni":{}},"name":"n"}`},
		{`{"name": "n", "prevResult": [], "mtu": "x"}`, "prevResult: want an object, got list", "mtu: want a whole number, got string", `{"mtu":"x","name":"n"}`},
		{`{"mtu": "x", "name": "n"}`, "", "mtu: want a whole number, got string", `{"mtu": "x", "name": "n"}`},
	} {
		c, passed, err := ParseDEL([]byte(tt.in))
		if diff := cmp.Diff([]string{tt.passed, tt.err, tt.raw}, []string{text(passed), text(err), string(c.Raw)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, diff)
		}
	}
	if c, _, err := ParseDEL([]byte("[]")); c != nil || err == nil {
		t.Errorf("a list: %v, %v", c, err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseName(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:              "name: missing: every network needs a name",
		`{"name": ""}`:    "name: missing: every network needs a name",
		`{"name": "a b"}`: `name: want letters, digits, '_', '.' and '-', got "a b"`,
		`{"name": 7}`:     "name: want a string, got number",
	} {
		if _, err := Parse([]byte(in)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestParseSyntax(t *testing.T) {
	for in, want := range map[string]string{
		``:                 "network configuration: unexpected end of JSON input",
		`null`:             "network configuration: want a JSON object, got null",
		`[]`:               "network configuration: want a JSON object, got list",
		`"x"`:              "network configuration: want a JSON object, got string",
		`{"name": "n"`:     "network configuration: unexpected end of JSON input",
		"\x00\xff garbage": "network configuration: invalid character '\\x00' looking for beginning of value",
	} {
		_, err := Parse([]byte(in))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || err.Error() != want {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// TestEveryFieldOfTheWrongType gives each known field every JSON type. Those
// that are refused name the field; no field takes an unrelated type.
func TestEveryFieldOfTheWrongType(t *testing.T) {
	types := map[string]string{"string": `"s"`, "number": `7`, "boolean": `true`, "list": `[7]`, "object": `{"a": 7}`}
	fields := map[string]string{ // field → the types that it may have
		"cniVersion": "string", "name": "string", "type": "string",
		"etcd_endpoints": "string", "etcd_ca_cert_file": "string", "etcd_cert_file": "string", "etcd_key_file": "string",
		"etcd_discovery_srv": "string", "etcd_authority": "string", "etcd_scheme": "string", "etcd_username": "string", "etcd_password_file": "string",
		"nodename": "string", "nodename_file": "string", "hostname": "string", "nodename_file_optional": "boolean",
		"ipam": "object", "ipam.type": "string", "ipam.assign_ipv4": "string boolean", "ipam.assign_ipv6": "string boolean",
		"ipam.ipv4_pools": "list", "ipam.ipv6_pools": "list", "ipam.subnet": "string",
		"mtu": "number", "policy": "object", "policy.type": "string", "policy.k8s_api_root": "string", "policy.k8s_auth_token": "string",
		"policy.k8s_client_certificate": "string", "policy.k8s_client_key": "string", "policy.k8s_certificate_authority": "string",
		"kubernetes": "object", "kubernetes.kubeconfig": "string", "kubernetes.k8s_api_root": "string", "kubernetes.node_name": "string",
		"container_settings": "object", "container_settings.allow_ip_forwarding": "boolean",
		"include_default_routes": "boolean", "feature_control": "object",
		"feature_control.ip_addrs_no_ipam": "boolean", "feature_control.floating_ips": "boolean",
		"log_level": "string", "log_file_path": "string", "log_file_max_size": "number", "log_file_max_age": "number", "log_file_max_count": "number",
		"agent_socket": "string", "policy_setup_timeout_seconds": "number", "datastore_timeout_seconds": "number",
		"runtimeConfig": "object", "runtimeConfig.ips": "list", "runtimeConfig.mac": "string", "runtimeConfig.dns": "object",
		"runtimeConfig.dns.servers": "list", "runtimeConfig.dns.searches": "list", "runtimeConfig.dns.options": "list",
		"dns": "object", "dns.nameservers": "list", "dns.domain": "string", "dns.search": "list", "dns.options": "list",
		"args": "object", "args.cni": "object", "args.cni.ips": "list", "isGateway": "boolean", "isDefaultGateway": "boolean", "prevResult": "object", "cni.dev/valid-attachments": "list",
	}
	for field, allowed := range fields {
		for kind, value := range types {
			if strings.Contains(allowed, kind) {
				continue
			}
			in := value
			parts := strings.Split(field, ".")
			if strings.HasPrefix(field, "cni.dev") {
				parts = []string{field}
			}
			for i := len(parts) - 1; i >= 0; i-- {
				in = fmt.Sprintf(`{%q: %s}`, parts[i], in)
			}
			if field != "name" {
				in = `{"name": "n", ` + in[1:]
			}
			_, err := Parse([]byte(in))
			if err == nil || !strings.HasPrefix(err.Error(), field+": want ") || !strings.Contains(err.Error(), "got "+kind) {
				t.Errorf("%s: %v", in, err)
			}
		}
	}
}

func TestNullIsAbsent(t *testing.T) {
	c, err := Parse([]byte(`{"name": "n", "mtu": null, "ipam": null, "prevResult": null, "etcd_endpoints": null}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.PrevResult != nil || c.ValidAttachments != nil || !c.IPAM.AssignIPv4 || len(c.Etcd.Endpoints) != 1 {
		t.Errorf("%+v", c)
	}
	for _, none := range []string{"[]", "null"} { // a list of Go's that is nil is written so
		c, err = Parse([]byte(`{"name": "n", "cni.dev/valid-attachments": ` + none + `}`))
		if err != nil || c.ValidAttachments == nil || len(c.ValidAttachments) > 0 {
			t.Errorf("%s: no attachments must differ from no field: %v %v", none, c.ValidAttachments, err)
		}
	}
}

func TestParseArgs(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Args
		err  string
	}{
		{in: ""},
		{in: "IgnoreUnknown=1;;", want: Args{IgnoreUnknown: true}},
		{
			in: "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=u;X=y=z",
			want: Args{
				IgnoreUnknown: true, PodNamespace: "default", PodName: "web-0", InfraContainerID: "abc", PodUID: "u",
			},
		},
		{
			in: "IP=10.0.0.5, fd00::5/64 ;MAC=02:00:00:00:00:05",
			want: Args{
				IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")},
				MAC: model.MAC{2, 0, 0, 0, 0, 5},
			},
		},
		{in: "IP=;MAC=", want: Args{}},
		{in: "K8S_POD", err: `CNI_ARGS: "K8S_POD" is no pair: want KEY=VALUE;KEY=VALUE`},
		{in: "IgnoreUnknown=1;=x", want: Args{IgnoreUnknown: true}, err: `CNI_ARGS: "=x" is no pair: want KEY=VALUE;KEY=VALUE`},
		{in: "A=1;B=2", err: "CNI_ARGS: unknown A, B: correct the name, or add IgnoreUnknown=1"},
		{in: "IgnoreUnknown=maybe", err: `CNI_ARGS: IgnoreUnknown: want 1, true, 0 or false, got "maybe"`},
		{
			in:   "A;IP=here,10.0.0.5;MAC=here;K8S_POD_NAME=web-0;B=1",
			want: Args{PodName: "web-0", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}},
			err:  `CNI_ARGS: "A" is no pair: want KEY=VALUE;KEY=VALUE`,
		},
		{in: "IP=here", err: `CNI_ARGS: IP: want an IP address, got "here"`},
		{in: "MAC=00:00:00:00:00:00", err: `CNI_ARGS: MAC: MAC address 00:00:00:00:00:00: want that of a single interface, like 02:00:00:00:00:01`},
		{in: "MAC=here", err: `CNI_ARGS: MAC: MAC address "here": want six bytes like 02:00:00:00:00:01`},
	} {
		got, err := ParseArgs(tt.in)
		if err != nil || tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%q: %v, want %s", tt.in, err, tt.err)
			}
		}
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.in, diff)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"name":"n","ipam":{"type":"calico-ipam","ipv4_pools":["10.0.0.0/8"]}}`))
	f.Add([]byte(`{"name":"n","ipam":{"type":"host-local","subnet":"usePodCidr","ranges":[[{"subnet":"usePodCidrIPv6"}]]}}`))
	f.Add([]byte(`{"name":"n","runtimeConfig":{"ips":["10.0.0.1/8"]},"args":{"cni":{"ips":[""]}},"cni.dev/valid-attachments":[{}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		_ = IsOurs(in)
		if d, _, err := ParseDEL(in); err == nil && d.Name == "" {
			t.Errorf("%+v", d)
		}
		c, err := Parse(in)
		if err != nil {
			var syntax *SyntaxError
			var field *FieldError
			if !errors.As(err, &syntax) && !errors.As(err, &field) {
				t.Errorf("%v is neither kind of error", err)
			}
			return
		}
		if rest, err := c.WithoutPodCIDR(); err != nil || !json.Valid(rest) {
			t.Errorf("%s: %v", rest, err)
		}
		if c.Name == "" || len(c.Etcd.Endpoints) == 0 && c.Etcd.DiscoverySRV == "" || c.DatastoreTimeout <= 0 {
			t.Errorf("%+v", c)
		}
	})
}

func FuzzParseArgs(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.0.0.1")
	f.Fuzz(func(t *testing.T, in string) {
		a, err := ParseArgs(in)
		if err != nil && !strings.HasPrefix(err.Error(), "CNI_ARGS: ") {
			t.Errorf("%v doesn't say where", err)
		}
		for _, ip := range a.IPs {
			if !ip.IsValid() {
				t.Errorf("%q: invalid address", in)
			}
		}
	})
}
