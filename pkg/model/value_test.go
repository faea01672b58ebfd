// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/model"
)

// TestValues shows what is behind the samples' canonical form.
func TestValues(t *testing.T) {
	ten, eight := 10.0, uint8(8)
	free := []int{model.Free, model.Free, model.Free}
	for _, tt := range []struct {
		key   model.Key
		value string
		want  any
	}{
		{model.ReadyKey{}, "true", model.Ready(true)},
		{model.GlobalConfigKey{"a"}, " x\n", model.Text(" x\n")},
		{model.BGPHostKey{"a", model.BGPHostIPv4}, " 192.0.2.1\n", model.Text("192.0.2.1")},
		{model.BGPGlobalASKey{}, "", model.ASNumber(0)},
		{model.BGPGlobalASKey{}, "1.10", model.ASNumber(65546)},
		{model.AffinityKey{"a", cidr("10.0.0.0/26")}, "anything", model.Affinity{}},
		{model.HostMetadataKey{"a"}, "", model.HostMetadata{}},
		{model.HostMetadataKey{"a"}, `{"k8s":{"name":"n","uid":"u"}}`, model.HostMetadata{Kubernetes: model.KubernetesNode{Name: "n", UID: "u"}}},
		{model.ProfileTagsKey{"a"}, `["a"]`, model.Tags{"a"}},
		{model.ProfileLabelsKey{"a"}, `{"a":"b"}`, model.Labels{"a": "b"}},
		{model.TierKey{"a"}, `{"order":10}`, model.Tier{Order: &ten}},
		{model.TierKey{"a"}, `{"order":10,"default_action":"pass"}`, model.Tier{Order: &ten, DefaultAction: model.TierPass}},
		{model.TierKey{"a"}, `{"default_action":"deny"}`, model.Tier{}},
		{model.WorkloadEndpointKey{"a", "o", "w", "e"}, `{"state":"active","name":"cali1","mac":"02:00:00:00:00:01","ipv4_nets":["10.0.0.1/32"],
			"ipv4_nat":[{"int_ip":"10.0.0.1","ext_ip":"192.0.2.1"}],"ports":[{"name":"http","protocol":"tcp","port":80}]}`,
			model.WorkloadEndpoint{
				State: model.StateActive, Name: "cali1", MAC: model.MAC{2, 0, 0, 0, 0, 1},
				IPv4Nets: []netip.Prefix{cidr("10.0.0.1/32")},
				IPv4NAT:  []model.NAT{{IntIP: ip("10.0.0.1"), ExtIP: ip("192.0.2.1")}},
				Ports:    []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 80}},
			}},
		{model.PolicyKey{"default", "p"}, `{"selector":"has(a)","order":10,"types":["outbound"],"untracked":true,"inbound_rules":[{
			"action":"pass","protocol":"tcp","src_net":"10.0.0.0/8","src_nets":["fd00::/8"],"dst_ports":["1:2",3,"x"],"!src_selector":"","log_prefix":"p"},
			{"ip_version":4,"protocol":1,"!icmp_type":8}]}`,
			model.Policy{
				Selector: "has(a)", Order: &ten, Untracked: true, Types: []model.Direction{model.Outbound},
				Inbound: []model.Rule{{
					Action: model.ActionNextTier,
					Match: model.Match{
						Protocol: model.ProtocolTCP,
						SrcNets:  []netip.Prefix{cidr("10.0.0.0/8"), cidr("fd00::/8")},
						DstPorts: []model.Port{{Min: 1, Max: 2}, {Min: 3, Max: 3}, {Name: "x"}},
					},
					Not:       model.Match{HasSrcSelector: true},
					LogPrefix: "p",
				}, {
					Action: model.ActionAllow, IPVersion: 4,
					Match: model.Match{Protocol: model.ProtocolICMP},
					Not:   model.Match{ICMPType: &eight},
				}},
			}},
		{model.PoolKey{cidr("10.0.0.0/16")}, `{}`, model.Pool{CIDR: cidr("10.0.0.0/16"), IPAM: true, BlockSize: 26}},
		{model.PoolKey{cidr("10.0.0.0/29")}, `{}`, model.Pool{CIDR: cidr("10.0.0.0/29"), IPAM: true, BlockSize: 29}},
		{model.PoolKey{cidr("fd00::/64")}, `{"ipip":""}`, model.Pool{CIDR: cidr("fd00::/64"), IPAM: true, BlockSize: 122}},
		{model.PoolKey{cidr("10.0.0.0/16")}, `{"ipip":"tunl0"}`, model.Pool{CIDR: cidr("10.0.0.0/16"), IPIP: "tunl0", IPIPMode: model.EncapAlways, IPAM: true, BlockSize: 26}},
		{model.BlockKey{cidr("10.0.0.0/30")}, `{"hostAffinity":"a","allocations":[null,0,null,null],"attributes":[{"primary":"h"}]}`,
			model.Block{
				CIDR: cidr("10.0.0.0/30"), Affinity: "a", Allocations: append([]int{model.Free, 0}, free[:2]...),
				Unallocated: []int{0, 2, 3}, Attributes: []model.Attributes{{HandleID: "h"}},
			}},
		{model.HandleKey{ID: "h", Legacy: true}, `{"block":{"10.0.0.0/26":2}}`, model.Handle{ID: "h", Blocks: map[netip.Prefix]int{cidr("10.0.0.0/26"): 2}}},
		{model.IPAMConfigKey{}, `{}`, model.DefaultIPAMConfig},
		{model.BGPPeerKey{IP: ip("192.0.2.1")}, `{"as_num":1.10}`, model.BGPPeer{IP: ip("192.0.2.1"), AS: 65546}},
		{model.StatusKey{"a"}, `{"time":"2026-01-02T15:04:05+01:00","uptime":1.5,"first_update":true}`,
			model.Status{Time: time.Date(2026, 1, 2, 14, 4, 5, 0, time.UTC), Uptime: 1500 * time.Millisecond, FirstUpdate: true}},
		{model.WorkloadStatusKey{"a", "o", "w", "e"}, `{"status":"up"}`, model.EndpointUp},
	} {
		got, err := model.ParseValue(tt.key, []byte(tt.value))
		if err != nil {
			t.Errorf("%s: %v", tt.key.Path(), err)
		} else if diff := cmp.Diff(tt.want, got, compare); diff != "" {
			t.Errorf("%s:\n%s", tt.key.Path(), diff)
		}
	}
}

func TestFormatPoolDefaults(t *testing.T) {
	got, err := model.FormatValue(model.Pool{CIDR: cidr("10.0.0.0/16"), IPAM: true})
	if want := `{"cidr":"10.0.0.0/16","masquerade":false}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestPoolOfNoWorkload: what is the loopback's, one link's or a group's is no pool, nor is what has it inside.
func TestPoolOfNoWorkload(t *testing.T) {
	for _, tt := range []struct{ pool, inside string }{
		{"127.1.0.0/16", "127.0.0.0/8"}, {"169.254.128.0/17", "169.254.0.0/16"}, {"224.0.0.0/4", "224.0.0.0/4"},
		{"0.0.0.0/0", "127.0.0.0/8"}, {"fe80::/64", "fe80::/10"}, {"ff05::/16", "ff00::/8"},
	} {
		_, err := model.ParseValue(model.PoolKey{CIDR: cidr(tt.pool)}, []byte(`{}`))
		if want := fmt.Sprintf("cidr: %s has addresses of %s inside, which no workload can have", tt.pool, tt.inside); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", tt.pool, err, want)
		}
	}
	for _, pool := range []string{"10.0.0.0/8", "169.0.0.0/9", "240.0.0.0/8", "fd00::/8", "2001:db8::/32"} {
		if _, err := model.ParseValue(model.PoolKey{CIDR: cidr(pool)}, []byte(`{}`)); err != nil {
			t.Errorf("%s: %v", pool, err)
		}
	}
}

func TestWorkloadEndpointAddrs(t *testing.T) {
	e := model.WorkloadEndpoint{
		IPv4Nets: []netip.Prefix{cidr("10.0.0.1/32"), cidr("10.0.0.2/32")},
		IPv6Nets: []netip.Prefix{cidr("fd00::1/128")},
		IPv4NAT:  []model.NAT{{IntIP: ip("10.0.0.1"), ExtIP: ip("192.0.2.1")}},
	}
	want := []netip.Addr{ip("10.0.0.1"), ip("10.0.0.2"), ip("fd00::1")}
	if diff := cmp.Diff(want, e.Addrs(), compare); diff != "" {
		t.Error(diff)
	}
}

// TestWorkloadEndpointEqual changes each field in turn, so that none that is added later is forgotten.
func TestWorkloadEndpointEqual(t *testing.T) {
	empty := model.WorkloadEndpoint{
		ProfileIDs: []string{}, IPv4NAT: []model.NAT{}, IPv4Nets: []netip.Prefix{}, IPv6NAT: []model.NAT{}, IPv6Nets: []netip.Prefix{},
		Labels: map[string]string{}, IPv4SubnetIDs: []string{}, IPv6SubnetIDs: []string{}, Ports: []model.EndpointPort{},
	}
	if !empty.Equal(model.WorkloadEndpoint{}) {
		t.Error("empty and nil differ")
	}
	for i := range reflect.TypeFor[model.WorkloadEndpoint]().NumField() {
		var e model.WorkloadEndpoint
		switch f := reflect.ValueOf(&e).Elem().Field(i); f.Interface().(type) {
		case netip.Addr:
			f.Set(reflect.ValueOf(ip("10.0.0.1")))
		case model.MAC:
			f.Set(reflect.ValueOf(model.MAC{1}))
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"a": ""}))
		case int:
			f.SetInt(1)
		default:
			if f.Kind() == reflect.String {
				f.SetString("x")
			} else {
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			}
		}
		if e.Equal(model.WorkloadEndpoint{}) || !e.Equal(e) {
			t.Errorf("Equal does not look at %s", reflect.TypeFor[model.WorkloadEndpoint]().Field(i).Name)
		}
	}
}

func TestPolicyApplies(t *testing.T) {
	for _, tt := range []struct {
		types   []model.Direction
		in, out bool
	}{
		{nil, true, true},
		{[]model.Direction{model.Inbound}, true, false},
		{[]model.Direction{model.Outbound}, false, true},
		{[]model.Direction{model.Outbound, model.Inbound}, true, true},
	} {
		p := model.Policy{Types: tt.types}
		if p.Applies(model.Inbound) != tt.in || p.Applies(model.Outbound) != tt.out {
			t.Errorf("%v applies inbound %v, outbound %v", tt.types, p.Applies(model.Inbound), p.Applies(model.Outbound))
		}
	}
}

func TestProtocols(t *testing.T) {
	for n := range 256 {
		p := model.Protocol(n)
		got, err := model.ParseProtocol(p.String())
		if n == 0 {
			if err == nil || p.String() != "any" {
				t.Errorf("protocol 0 is %s", p)
			}
		} else if err != nil || got != p {
			t.Errorf("ParseProtocol(%s) = %d, %v, want %d", p, got, err, n)
		}
	}
	for _, s := range []string{"", "0", "256", "-1", "+6", "any", "tcp ", strings.Repeat("1", 1000)} {
		if p, err := model.ParseProtocol(s); err == nil {
			t.Errorf("ParseProtocol(%q) = %d, want an error", s, p)
		}
	}
}

func TestPorts(t *testing.T) {
	for _, tt := range []struct {
		text string
		want model.Port
		back string
	}{
		{"80", model.Port{Min: 80, Max: 80}, "80"},
		{"080", model.Port{Min: 80, Max: 80}, "80"},
		{"0", model.Port{}, "0"},
		{"1:65535", model.Port{Min: 1, Max: 65535}, "1:65535"},
		{"7:7", model.Port{Min: 7, Max: 7}, "7"},
		{"http", model.Port{Name: "http"}, "http"},
		{"1a", model.Port{Name: "1a"}, "1a"},
	} {
		got, err := model.ParsePort(tt.text)
		if err != nil || got != tt.want || got.String() != tt.back {
			t.Errorf("ParsePort(%q) = %+v %s, %v, want %+v %s", tt.text, got, got, err, tt.want, tt.back)
		}
	}
	for _, s := range []string{"", ":", "1:", ":1", "1:2:3", "a:b", "2:1", "65536", "-", "a-", ".a", "a b", "é", strings.Repeat("a", 64), strings.Repeat("1:", 500)} {
		if p, err := model.ParsePort(s); err == nil {
			t.Errorf("ParsePort(%q) = %+v, want an error", s, p)
		}
	}
}

func TestASNumbers(t *testing.T) {
	for _, tt := range []struct {
		text string
		want model.ASNumber
	}{
		{"1", 1}, {"65535", 65535}, {"4294967295", 4294967295}, {"0.1", 1}, {"1.0", 65536}, {"1.1", 65537}, {"1.10", 65546}, {"65535.65535", 4294967295},
	} {
		if got, err := model.ParseASNumber(tt.text); err != nil || got != tt.want {
			t.Errorf("ParseASNumber(%q) = %d, %v, want %d", tt.text, got, err, tt.want)
		}
	}
	for _, s := range []string{"", "0", "0.0", "-1", "4294967296", "65536.0", "1.65536", "1.", ".1", "1.2.3", "1e3", " 1", "x"} {
		if n, err := model.ParseASNumber(s); err == nil {
			t.Errorf("ParseASNumber(%q) = %d, want an error", s, n)
		}
	}
}

func TestMAC(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"02:00:00:00:00:01", "02:00:00:00:00:01"},
		{"EE-EE-ee-Ee-eE-EE", "ee:ee:ee:ee:ee:ee"},
		{"0200.ABcd.0001", "02:00:ab:cd:00:01"},
		{"00:00:00:00:00:00", "00:00:00:00:00:00"},
	} {
		if m, err := model.ParseMAC(tt.text); err != nil || m.String() != tt.want {
			t.Errorf("ParseMAC(%q) = %s, %v, want %s", tt.text, m, err, tt.want)
		}
	}
	for _, s := range []string{
		"", "x", "02:00:00:00:00:0g", "0g:00:00:00:00:00", "02:00:00:00:00:00:00:01", "02:00:00:00:00", "02:00-00:00:00:01", "02.00.00.00.00.01",
		"020:0:00:00:00:01", "0200.0000:0001", "0200.00000.001", "020000000001", "02 00 00 00 00 01", strings.Repeat("02:", 1000),
	} {
		if m, err := model.ParseMAC(s); err == nil {
			t.Errorf("ParseMAC(%q) = %s, want an error", s, m)
		}
	}
	if !(model.MAC{}).IsZero() || (model.MAC{5: 1}).IsZero() {
		t.Error("IsZero")
	}
}

// fuzzKeys has one key per kind of value.
func fuzzKeys(t testing.TB) (dirs []string, keys []model.Key) {
	t.Helper()
	for dir := range sampleKeys {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		keys = append(keys, sampleKey(t, dir))
	}
	return dirs, keys
}

func FuzzParseValue(f *testing.F) {
	dirs, keys := fuzzKeys(f)
	eachSample(f, func(_, dir string, data []byte) {
		if len(data) < 1024 {
			f.Add(uint8(slices.Index(dirs, dir)), data)
		}
	})
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		k := keys[int(kind)%len(keys)]
		v, err := model.ParseValue(k, data)
		if err != nil {
			if v != nil || len(err.Error()) > 8192 {
				t.Fatalf("%s: %q: value %v, error %v", k.Path(), data, v, err)
			}
			return
		}
		canonical, err := model.FormatValue(v)
		if err != nil {
			t.Fatalf("%s: %q is %#v: %v", k.Path(), data, v, err)
		}
		again, err := model.ParseValue(k, canonical)
		if err != nil {
			t.Fatalf("%s: %q became %s: %v", k.Path(), data, canonical, err)
		}
		if !reflect.DeepEqual(v, again) {
			t.Fatalf("%s: %q became %s:\n%s", k.Path(), data, canonical, cmp.Diff(v, again, compare))
		}
		twice, err := model.FormatValue(again)
		if err != nil || string(twice) != string(canonical) {
			t.Fatalf("%s: %q became %s became %s, %v", k.Path(), data, canonical, twice, err)
		}
		if b, ok := v.(model.Block); ok {
			useBlock(t, b)
		}
	})
}

// useBlock does what allocation does, without looking first.
func useBlock(t *testing.T, b model.Block) {
	free := make([]bool, b.Size())
	for _, o := range b.Unallocated {
		if free[o] {
			t.Fatalf("ordinal %d is free twice", o)
		}
		free[o] = true
	}
	for o, a := range b.Allocations {
		if (a == model.Free) != free[o] {
			t.Fatalf("ordinal %d is %d and free: %v", o, a, free[o])
		}
		if a != model.Free {
			_ = b.Attributes[a].HandleID
		}
	}
}

// block64 is a block as most are: half full.
func block64() model.Block {
	b := model.Block{CIDR: cidr("10.0.0.0/26"), Affinity: "node-17"}
	for i := range 64 {
		if i < 32 {
			b.Allocations = append(b.Allocations, i)
			b.Attributes = append(b.Attributes, model.Attributes{
				HandleID:  "k8s-pod-network.0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.eth0",
				Secondary: map[string]string{"namespace": "default", "pod": "web-0", "node": "node-17"},
			})
		} else {
			b.Allocations = append(b.Allocations, model.Free)
			b.Unallocated = append(b.Unallocated, i)
		}
	}
	return b
}

func benchmarkValue(b *testing.B, k model.Key, v any) {
	data, err := model.FormatValue(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := model.ParseValue(k, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("format", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if _, err := model.FormatValue(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkBlock(b *testing.B) {
	empty := model.Block{CIDR: cidr("10.0.0.0/26"), Affinity: "node-17"}
	for i := range 64 {
		empty.Allocations = append(empty.Allocations, model.Free)
		empty.Unallocated = append(empty.Unallocated, i)
	}
	b.Run("empty", func(b *testing.B) { benchmarkValue(b, model.BlockKey{empty.CIDR}, empty) })
	half := block64()
	b.Run("half", func(b *testing.B) { benchmarkValue(b, model.BlockKey{half.CIDR}, half) })
}

func BenchmarkWorkloadEndpoint(b *testing.B) {
	benchmarkValue(b, model.WorkloadEndpointKey{"a", "k8s", "default.web", "eth0"}, model.WorkloadEndpoint{
		State: model.StateActive, Name: "cali0123456789a", MAC: model.MAC{2, 0, 0, 0, 0, 1}, ProfileIDs: []string{"k8s_ns.default"},
		IPv4Nets: []netip.Prefix{cidr("10.0.0.1/32")}, IPv6Nets: []netip.Prefix{cidr("fd00::1/128")},
		Labels: map[string]string{"app": "web", "calico/k8s_ns": "default"}, ContainerID: strings.Repeat("0a", 32),
	})
}

func BenchmarkPolicy(b *testing.B) {
	p := model.Policy{Selector: "app == 'web' && calico/k8s_ns == 'default'"}
	for range 10 {
		p.Inbound = append(p.Inbound, model.Rule{Action: model.ActionAllow, Match: model.Match{
			Protocol: model.ProtocolTCP, SrcSelector: "app == 'front'", DstPorts: []model.Port{{Min: 80, Max: 80}, {Min: 8000, Max: 8099}},
		}})
	}
	benchmarkValue(b, model.PolicyKey{"default", "p"}, p)
}

// TestMeta: what a resource has besides its spec is written as it was read, and if it isn't in order, it hurts nothing.
func TestMeta(t *testing.T) {
	const full = `{"name":"n","owner":"k8s:u","labels":{"a":"1","b":""},"annotations":{"x/y":"z\"\n"},"source":{"types":["Ingress"]}}`
	values := map[string]string{
		"/calico/v1/policy/tier/default/policy/p": `{"selector":"all()","inbound_rules":[],"outbound_rules":[]`, "/calico/v1/policy/tier/t/metadata": `{"order":1`,
		"/calico/v1/host/a/endpoint/e": `{"name":"eth0","profile_ids":[],"labels":{"own":"1"}`, "/calico/v1/ipam/v4/pool/10.0.0.0-16": `{"cidr":"10.0.0.0/16","masquerade":false`,
		"/calico/bgp/v1/global/peer_v4/192.0.2.1": `{"ip":"192.0.2.1","as_num":"1"`, "/calico/dhcp/v1/subnet/s": `{"network_id":"calico","cidr":"10.0.0.0/16","gateway_ip":"10.0.0.1"`,
		"/calico/bgp/v1/filter/f": `{"import_v4":[{"action":"Accept"}]`, "/calico/bgp/v1/peer/p": `{"peer_selector":"all()"`,
		"/calico/v1/netset/s": `{"nets":["10.0.0.0/28"],"labels":{"own":"1"}`, "/calico/ipam/v2/reservation/r": `{"cidrs":["10.0.0.0/28"]`, "/calico/ipam/v2/config": `{"strict_affinity":false,"auto_allocate_blocks":true`,
	}
	for path, value := range values {
		key, err := model.ParseKey(path)
		if err != nil {
			t.Fatal(err)
		}
		for meta, want := range map[string]string{
			full: full, `{"labels":{},"annotations":null,"later":[1]}`: "", `null`: "", `7`: "", `{"name":"n","labels":{"a":1}}`: "", `{"name":"n","name":"m"}`: "",
		} {
			v, err := model.ParseValue(key, []byte(value+`,"meta":`+meta+`}`))
			if err != nil {
				t.Errorf("%s %s: %v", path, meta, err)
				continue
			}
			got, err := model.FormatValue(v)
			if want != "" {
				want = `,"meta":` + want
			}
			if err != nil || string(got) != value+want+"}" {
				t.Errorf("%s %s: %s, %v, want %s", path, meta, got, err, value+want+"}")
			}
			if err := model.UnknownFields(key, []byte(value+`,"meta":`+meta+`}`)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// TestRouteFilter: which prefixes a filter matches, and how it is said.
func TestRouteFilter(t *testing.T) {
	const prefixes = "0.0.0.0/0 10.0.0.0/8 10.0.0.0/16 10.1.2.0/26 10.1.2.3/32 11.0.0.0/8 fd00::/64"
	ten := cidr("10.0.0.0/8")
	for _, tt := range []struct {
		f          model.RouteFilter
		text, want string
	}{
		{model.RouteFilter{Action: "accept"}, "accept", prefixes},
		{model.RouteFilter{Action: "accept", CIDR: ten}, "accept 10.0.0.0/8", "10.0.0.0/8 10.0.0.0/16 10.1.2.0/26 10.1.2.3/32"},
		{model.RouteFilter{Action: "accept", CIDR: ten, Match: model.MatchEqual}, "accept equal 10.0.0.0/8", "10.0.0.0/8"},
		{model.RouteFilter{Action: "reject", CIDR: ten, Match: model.MatchNotEqual}, "reject notequal 10.0.0.0/8", "0.0.0.0/0 10.0.0.0/16 10.1.2.0/26 10.1.2.3/32 11.0.0.0/8"},
		{model.RouteFilter{Action: "reject", CIDR: ten, Match: model.MatchIn, Min: 9, Max: 26}, "reject in 10.0.0.0/8{9,26}", "10.0.0.0/16 10.1.2.0/26"},
		{model.RouteFilter{Action: "reject", CIDR: ten, Match: model.MatchNotIn, Max: 26}, "reject notin 10.0.0.0/8{8,26}", "0.0.0.0/0 10.1.2.3/32 11.0.0.0/8"},
		{model.RouteFilter{Action: "reject", Learned: true, PeerType: model.ExternalPeer, Community: "1:2", ASPath: "1 2"}, "reject learned peer eBGP community 1:2 as path 1 2", prefixes},
	} {
		var got []string
		for s := range strings.FieldsSeq(prefixes) {
			if tt.f.Matches(cidr(s)) {
				got = append(got, s)
			}
		}
		if s := strings.Join(got, " "); s != tt.want || tt.f.String() != tt.text {
			t.Errorf("%s matches %s\nwant %s matches %s", tt.f, s, tt.text, tt.want)
		}
	}
}
