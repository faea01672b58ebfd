// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// stored returns the entries that a document makes beside others.
func stored(t *testing.T, text string, entries ...model.Entry) ([]model.Entry, model.Change, error) {
	t.Helper()
	all, err := resource.Decode("doc", []byte("apiVersion: projectcalico.org/v3\n"+text))
	if err != nil {
		return nil, model.Change{}, err
	}
	kind, err := resource.Find(all[0].Kind)
	if err != nil {
		t.Fatal(err)
	}
	change, _, err := kind.Write(kind.Ranges(), entries, all[0], resource.Apply)
	for _, put := range change.Puts {
		data, err := model.FormatValue(put.Value)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry(t, put.Key.Path(), data, 7))
	}
	return entries, change, err
}

// TestPrintedAsWritten: policies are printed with the selectors that people wrote, not with those that are stored.
func TestPrintedAsWritten(t *testing.T) {
	for _, spec := range []string{
		"namespaceSelector: team == 'a'\nselector: app == 'x'",
		"namespaceSelector: projectcalico.org/name in { 'a', 'b' }",
		"namespaceSelector: all()", "namespaceSelector: global()\nselector: (a == 'b') && (c == 'd')",
		"namespaceSelector: team == 'a'\nserviceAccountSelector: role == 'db'\nselector: (a == 'b') && (c == 'd')",
		"serviceAccountSelector: role == 'db'\nselector: a == ') && ('", "selector: a == 'b'",
		"selector: projectcalico.org/serviceaccount in {\"x\"}",
	} {
		for _, doc := range []string{
			"kind: GlobalNetworkPolicy\nmetadata: {name: p}\nspec:\n  types: [Ingress]\n  " + strings.ReplaceAll(spec, "\n", "\n  "),
			"kind: NetworkPolicy\nmetadata: {name: p, namespace: n}\nspec:\n  types: [Ingress]\n  selector: all()\n  ingress:\n  - action: Allow\n    source:\n      " +
				strings.ReplaceAll(strings.ReplaceAll(spec, "serviceAccountSelector: role == 'db'", "serviceAccounts: {names: [x, y], selector: role == 'db'}"), "\n", "\n      "),
		} {
			entries, _, err := stored(t, doc)
			if err != nil {
				t.Errorf("%s: %v", doc, err)
				continue
			}
			all, err := resource.Decode("doc", []byte("apiVersion: projectcalico.org/v3\n"+doc))
			if err != nil {
				t.Fatal(err)
			}
			kind, err := resource.Find(all[0].Kind)
			if err != nil {
				t.Fatal(err)
			}
			got := kind.All(entries)[0].Resource
			got.Metadata.ResourceVersion = ""
			all[0].Spec.(*resource.Policy).Tier = "default"
			want, err := yaml.Marshal(all[0])
			if err != nil {
				t.Fatal(err)
			}
			have, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			// A rule about names is printed with names, whether they were written so or in the selector.
			if diff := cmp.Diff(string(want), string(have)); diff != "" && !strings.Contains(doc, "serviceaccount in") {
				t.Errorf("%s", diff)
			}
			if _, change, err := stored(t, strings.Replace(string(have), "apiVersion: projectcalico.org/v3\n", "", 1), entries...); err != nil || !change.Empty() {
				t.Errorf("%s is written again: %v %v", have, change.Puts, err)
			}
		}
	}
}

// TestPoolsAndReservations: what is written is stored so, and read back; what says the same is not written.
func TestPoolsAndReservations(t *testing.T) {
	pool := func(spec string) string {
		return "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.0/16" + spec + "}"
	}
	for _, tc := range []struct{ doc, stored, same string }{
		{pool(", namespaceSelector: \"team == 'a' || projectcalico.org/name in {'b'}\", assignmentMode: manual"),
			`{"cidr":"10.0.0.0/16","masquerade":false,"namespace_selector":"team == 'a' || projectcalico.org/name in {'b'}","assignment_mode":"Manual","meta":{"name":"p"}}`,
			pool(", namespaceSelector: \"team == 'a' || projectcalico.org/name in {'b'}\", assignmentMode: Manual")},
		{pool(""), `{"cidr":"10.0.0.0/16","masquerade":false,"meta":{"name":"p"}}`, pool(", namespaceSelector: all(), assignmentMode: Automatic")},
		{"kind: IPReservation\nmetadata: {name: r.x}\nspec: {reservedCIDRs: [10.80.0.0/28, 10.80.0.5, 'fd00:80::/124']}", `{"cidrs":["10.80.0.0/28","10.80.0.5/32","fd00:80::/124"]}`,
			"kind: IPReservation\nmetadata: {name: r.x}\nspec: {reservedCIDRs: [10.80.0.0/28, 10.80.0.5/32, 'fd00:80::/124']}"},
		{"kind: IPReservation\nmetadata: {name: none}", `{"cidrs":[]}`, "kind: IPReservation\nmetadata: {name: none}\nspec: {reservedCIDRs: []}"},
	} {
		entries, change, err := stored(t, tc.doc)
		if err != nil || len(change.Puts) != 1 {
			t.Errorf("%s: %v, %v", tc.doc, change, err)
			continue
		}
		data, err := model.FormatValue(change.Puts[0].Value)
		if diff := cmp.Diff(tc.stored, string(data)); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", tc.doc, err, diff)
		}
		for _, doc := range []string{tc.doc, tc.same} {
			if _, change, err := stored(t, doc, entries...); err != nil || !change.Empty() {
				t.Errorf("%s is written over %s: %v, %v", doc, tc.stored, change.Puts, err)
			}
		}
		printed(t, entries)
	}
}

// TestNetworkSetsWritten: networks are stored without host bits, addresses as networks, and each of two sets with one name in its own place.
func TestNetworkSetsWritten(t *testing.T) {
	const spec = "labels: {role: x}}\nspec: {nets: [10.1.2.3/8, 192.0.2.1, '2001:DB8::1/32', '::/0']}"
	entries, _, err := stored(t, "kind: GlobalNetworkSet\nmetadata: {name: office, "+spec)
	if err != nil {
		t.Fatal(err)
	}
	entries, change, err := stored(t, "kind: NetworkSet\nmetadata: {name: office, namespace: shop, "+spec, entries...)
	if err != nil || len(change.Puts) != 1 {
		t.Fatal(change.Puts, err)
	}
	for i, want := range []string{"/calico/v1/netset/office", "/calico/v1/netset/shop%2Foffice"} {
		data, err := model.FormatValue(entries[i].Value)
		if diff := cmp.Diff(want+` {"nets":["10.0.0.0/8","192.0.2.1/32","2001:db8::/32","::/0"],"labels":{"role":"x"}}`, entries[i].Path+" "+string(data)); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	if n := printed(t, entries); n != 2 {
		t.Errorf("%d resources, want 2", n)
	}
	kind, err := resource.Find("gns")
	if err != nil {
		t.Fatal(err)
	}
	all := kind.All(entries)
	if len(all) != 1 || all[0].ID() != "office" || kind.Columns[0].Cell(all[0].Resource) != "10.0.0.0/8,192.0.2.1/32,2001:db8::/32,::/0" {
		t.Errorf("%+v", all)
	}
	many := all[0].Resource
	many.Spec = &resource.NetworkSet{Nets: slices.Repeat(all[0].Spec.(*resource.NetworkSet).Nets, 3)}
	if got, want := kind.Columns[0].Cell(many), "10.0.0.0/8,192.0.2.1/32,2001:db8::/32,::/0,10.0.0.0/8,192.0.2.1/32,..."; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestOthersJudged: other objects that a write depends on are compared in its commit.
func TestOthersJudged(t *testing.T) {
	pool := "kind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.50.0.0/24, blockSize: 29}"
	blocks := []model.Entry{entry(t, "/calico/ipam/v2/assignment/ipv4/block/10.50.0.8-29", []byte("{"), 5), entry(t, "/calico/ipam/v2/assignment/ipv4/block/10.50.0.16-29", []byte("{"), 5)}
	for _, tc := range []struct {
		doc     string
		entries []model.Entry
		want    []string
		err     string
	}{
		{doc: pool, entries: blocks, want: []string{model.PoolPrefix(), model.BlockPrefix(false)}},
		{doc: strings.Replace(pool, ", blockSize: 29", "", 1), entries: blocks, err: "spec.blockSize: 26 beside 2 blocks of /29 in 10.50.0.0/24: write blockSize 29"},
		{doc: strings.Replace(pool, "29", "30", 1), entries: append(blocks, entry(t, "/calico/v1/ipam/v4/pool/10.50.0.0-24", []byte(`{"cidr":"10.50.0.0/24","block_size":29,"meta":{"name":"p"}}`), 3)), err: "spec.blockSize: 30 beside 2 blocks of /29"},
		{doc: strings.Replace(pool, "29", "29, disabled: true", 1), entries: append(blocks, entry(t, "/calico/v1/ipam/v4/pool/10.50.0.0-24", []byte(`{"cidr":"10.50.0.0/24","block_size":29,"meta":{"name":"p"}}`), 3))},
		{doc: strings.Replace(pool, "name: p", "name: 10.9.0.0/24", 1), err: "lower case letters"},
		{doc: "kind: GlobalNetworkPolicy\nmetadata: {name: p}\nspec: {tier: net}", entries: []model.Entry{entry(t, "/calico/v1/policy/tier/net/metadata", []byte("{}"), 4)}},
		{doc: "kind: BGPPeer\nmetadata: {name: p}\nspec: {peerIP: 192.0.2.1, asNumber: 1}", want: []string{model.BGPPrefix()}},
	} {
		_, change, err := stored(t, tc.doc, tc.entries...)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %s", tc.doc, err, tc.err)
			}
			continue
		}
		var got []string
		for _, n := range change.NoneSince {
			got = append(got, n.Prefix)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil || change.Empty() {
			t.Errorf("%s: %v, %s", tc.doc, err, diff)
		}
	}
	_, change, err := stored(t, "kind: GlobalNetworkPolicy\nmetadata: {name: p}\nspec: {tier: net}", entry(t, "/calico/v1/policy/tier/net/metadata", []byte("{}"), 4))
	for _, want := range []model.Compare{{Key: model.TierKey{Tier: "net"}, Revision: 4}, {Key: model.PolicyKey{Tier: model.DefaultTier, Policy: "p"}}} {
		if err != nil || !slices.Contains(change.Compares, want) {
			t.Errorf("the tier may go, or a policy of this name appear in another, meanwhile: %v, %v", change.Compares, err)
		}
	}
}

// TestPeerPlaces: a peer that the older keys can say is at one of them, and moves when that changes.
func TestPeerPlaces(t *testing.T) {
	const named, global, own = "/calico/bgp/v1/peer/p", "/calico/bgp/v1/global/peer_v4/192.0.2.1", "/calico/bgp/v1/host/a/peer_v4/192.0.2.1"
	other := entry(t, "/calico/bgp/v1/peer/q", []byte(`{"peer_selector":"has(rr)"}`), 3)
	now, at := []model.Entry{other}, ""
	for _, step := range []struct{ spec, path string }{
		{"{peerIP: 192.0.2.1, asNumber: 1}", global}, {"{peerIP: 192.0.2.1, asNumber: 1, filters: [f]}", global},
		{"{peerIP: 192.0.2.1, asNumber: 1, nodeSelector: has(rr)}", named}, {"{node: a, peerSelector: has(rr)}", named}, {"{node: a, peerIP: 192.0.2.1, asNumber: 1}", own},
	} {
		_, change, err := stored(t, "kind: BGPPeer\nmetadata: {name: p}\nspec: "+step.spec, now...)
		if err != nil || len(change.Puts) != 1 || change.Puts[0].Key.Path() != step.path {
			t.Fatalf("%s: %v, %v, want it at %s", step.spec, change.Puts, err, step.path)
		}
		if moved := at != "" && at != step.path; (len(change.Deletes) == 1) != moved || moved && change.Deletes[0].Path() != at {
			t.Errorf("%s: deletes %v, and it was at %s", step.spec, change.Deletes, at)
		}
		data, err := model.FormatValue(change.Puts[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		at, now = step.path, []model.Entry{other, entry(t, step.path, data, 4)}
	}
	if _, _, err := stored(t, "kind: BGPPeer\nmetadata: {name: r}\nspec: {node: a, peerIP: 192.0.2.1, asNumber: 1}", now...); err == nil || !strings.Contains(err.Error(), "is a peer already, at "+own) {
		t.Errorf("another peer of the same node and address: %v", err)
	}
}

// TestDeletedMeanwhile: nothing appears unnoticed on a node, or in a tier, while it is deleted.
func TestDeletedMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		kind, name, path string
		want             []string
	}{
		{"tier", "net", "/calico/v1/policy/tier/net/metadata", []string{"/calico/v1/policy/tier/net/"}},
		{"node", "n", "/calico/v1/host/n/metadata", []string{"/calico/v1/host/n/", "/calico/felix/v1/host/n/", "/calico/ipam/v2/host/n/", "/calico/bgp/v1/host/n/"}},
	} {
		kind, err := resource.Find(tc.kind)
		if err != nil {
			t.Fatal(err)
		}
		change, err := kind.Delete([]model.Entry{entry(t, tc.path, []byte("{}"), 4)}, resource.Resource{Metadata: resource.Metadata{Name: tc.name}})
		var got []string
		for _, n := range change.NoneSince {
			got = append(got, n.Prefix)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", tc.kind, err, diff)
		}
	}
}

// TestWords: errors name the resource's own fields, all of them at once.
func TestWords(t *testing.T) {
	for _, tc := range []struct{ doc, want string }{
		{"kind: GlobalNetworkPolicy\nmetadata: {name: p}\nspec: {preDNAT: true, egress: [{action: Allow}]}",
			"doc:4:17: spec.preDNAT: such a policy is asked of what comes in: want no egress, and no types but Ingress"},
		{"kind: BGPConfiguration\nmetadata: {name: default}\nspec: {holdTime: 1s, keepaliveTime: x}",
			"doc:4:18: spec.holdTime: \"1s\": want seconds, 3 to 65535\ndoc:4:37: spec.keepaliveTime: \"x\": want seconds, 1 to 21845"},
		{"kind: FelixConfiguration\nmetadata: {name: default}\nspec: {vxlanPort: 0, logSeverityScreen: loud, nope: 1}",
			"doc:4:41: spec.logSeverityScreen: \"loud\": want DEBUG, INFO, WARNING, ERROR, CRITICAL, NONE\ndoc:4:53: spec.nope: the agents have no such setting\ndoc:4:19: spec.vxlanPort: \"0\": want 1 to 65535"},
		{"kind: WorkloadEndpoint\nmetadata: {name: n-x-w-e, namespace: default}\nspec: {node: n, orchestrator: x, workload: w, endpoint: e, interfaceName: cali1, ipNetworks: [10.0.0.1], ipNATs: [{internalIP: 10.0.0.2, externalIP: 10.0.0.3}]}",
			"doc:4:128: spec.ipNATs[0].internalIP: 10.0.0.2: not an address of this endpoint"},
		{"kind: HostEndpoint\nmetadata: {name: h}\nspec: {node: n, interfaceName: much-too-long-for-a-link}", "doc:4:32: spec.interfaceName:"},
		{"kind: Node\nmetadata: {name: h, labels: {'a b': x}}", `doc:3:29: metadata.labels: "a b": want a label like rack`},
		{"kind: Node\nmetadata: {name: h, labels: {a: x y}}", `doc:3:33: metadata.labels.a: "x y": want 63 letters`},
		{"kind: Profile\nmetadata: {name: h}\nspec: {labelsToApply: {a: b, 'c d': e}}", `doc:4:23: spec.labelsToApply: "c d": want letters`},
		{"kind: Node\nmetadata: {name: h, namespace: x}", "doc:3:32: metadata.namespace: a Node is in no namespace"},
		{"kind: IPPool\nmetadata: {name: h, namespace: x}", "metadata.namespace: an IPPool is in no namespace"},
		{"kind: Profile\nmetadata: {name: h}\nspec: {egress: [{action: Allow, protocol: TCP, destination: {ports: [80, 0]}}]}", "spec.egress[0].destination.ports[1]: 0: want 1 to 65535"},
		{"kind: Profile\nmetadata: {name: h}\nspec: {egress: [{action: Allow, protocol: TCP, source: {notPorts: [\"0:9\"]}}]}", "spec.egress[0].source.notPorts[0]: 0:9: want 1 to 65535"},
		{"kind: Node\nmetadata: {name: h}\nspec: {bgp: {ipv4IPIPTunnelAddr: 10.0.0.1}}", "doc:4:7: spec: the addresses of tunnels are the agent's to choose: leave them as they are"},
		{"kind: ClusterInformation\nmetadata: {name: default}\nspec: {clusterGUID: x, datastoreReady: true}", "doc:4:7: spec: only datastoreReady can be written"},
		{"kind: BGPConfiguration\nmetadata: {name: default}\nspec: {listenPort: 0}", "spec.listenPort: 0: want 1 at least"},
	} {
		_, _, err := stored(t, tc.doc)
		if err == nil {
			err = errors.New("nothing is wrong")
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s\nhave %v\nwant %s", tc.doc, err, tc.want)
		}
	}
	for _, tc := range []struct {
		n           int
		thing, want string
	}{{1, "block", "1 block"}, {2, "policy", "2 policies"}, {0, "address", "0 addresses"}} {
		if got := resource.Count(tc.n, tc.thing); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

// TestNotes: labels and annotations of resources, and annotations of a policy's rules, are printed as they were written.
func TestNotes(t *testing.T) {
	for _, doc := range []string{
		"kind: IPPool\nspec: {cidr: 10.0.0.0/16}", "kind: Tier", "kind: HostEndpoint\nspec: {node: a, interfaceName: eth0}", "kind: IPAMConfiguration", "kind: NetworkSet\nspec: {nets: [10.0.0.0/28]}", "kind: IPReservation\nspec: {reservedCIDRs: [10.0.0.0/28]}",
		"kind: KubeControllersConfiguration\nspec: {controllers: {node: {}}}",
		"kind: BGPPeer\nspec: {peerIP: 192.0.2.1, asNumber: 1}", "kind: DHCPSubnet\nspec: {cidr: 10.0.0.0/16, gatewayIP: 10.0.0.1}",
		"kind: BGPPeer\nspec: {peerSelector: all()}", "kind: BGPFilter\nspec: {importV4: [{action: Reject}]}",
		"kind: GlobalNetworkPolicy\nspec: {order: 1, ingress: [{action: Allow}, {action: Deny, metadata: {annotations: {why: x}}}], egress: [{action: Log, metadata: {annotations: {a: b}}}]}",
		"kind: NetworkPolicy\nspec: {selector: all(), egress: [{action: Allow, metadata: {annotations: {why: x}}, destination: {selector: a == 'b'}}]}",
	} {
		name := "default"
		entries, _, err := stored(t, doc+"\nmetadata: {name: "+name+", labels: {a: b}, annotations: {x/y: \"1\\n2\"}}")
		if err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if printed(t, entries) == 0 {
			t.Errorf("%s: nothing is printed", doc)
		}
		kind, err := resource.Find(strings.TrimPrefix(strings.SplitN(doc, "\n", 2)[0], "kind: "))
		if err != nil {
			t.Fatal(err)
		}
		s := kind.All(entries)[0]
		if m := s.Metadata; m.Labels["a"] != "b" || m.Annotations["x/y"] != "1\n2" {
			t.Errorf("%s: labels %v, annotations %v", doc, m.Labels, m.Annotations)
		}
		spec, isPolicy := s.Spec.(*resource.Policy)
		if !isPolicy {
			continue
		}
		if notes := spec.Egress[0].Metadata; notes == nil || len(notes.Annotations) != 1 {
			t.Errorf("%s: %v", doc, notes)
		}
		// What somebody else has changed since is printed as it is stored.
		p := s.Entries[0].Value.(model.Policy)
		p.Outbound = append([]model.Rule{{Action: model.ActionDeny}}, p.Outbound...)
		data, err := model.FormatValue(p)
		if err != nil {
			t.Fatal(err)
		}
		spec = kind.All([]model.Entry{entry(t, s.Entries[0].Path, data, 8)})[0].Spec.(*resource.Policy)
		if len(spec.Egress) != 2 || spec.Egress[1].Metadata != nil {
			t.Errorf("%s: changed: %+v", doc, spec.Egress)
		}
	}
	if _, _, err := stored(t, "kind: Profile\nmetadata: {name: p}\nspec: {ingress: [{action: Allow, metadata: {annotations: {a: b}}}]}"); err == nil || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("a profile's rule: %v", err)
	}
}

// TestControllersStored: controllers run that are named, or all of them.
func TestControllersStored(t *testing.T) {
	for spec, want := range map[string]string{
		"{}": "{}", "{controllers: {}}": `{"disabled":["node","policy","workloadendpoint","serviceaccount","namespace"]}`,
		"{controllers: {node: {syncLabels: Enabled}, policy: null, namespace: {}, serviceAccount: {}}, logSeverityScreen: debug, prometheusMetricsPort: 0}": `{"disabled":["policy","workloadendpoint"],"log_severity_screen":"debug","prometheus_metrics_port":0}`,
		"{controllers: {node: {}, policy: {}, namespace: {}, serviceAccount: {}, workloadEndpoint: {}, loadBalancer: {}}, logSeverityScreen: Info}":         `{"log_severity_screen":"info"}`,
	} {
		entries, change, err := stored(t, "kind: KubeControllersConfiguration\nmetadata: {name: default}\nspec: "+spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if data, err := model.FormatValue(change.Puts[0].Value); err != nil || string(data) != want {
			t.Errorf("%s: %s, %v; want %s", spec, data, err, want)
		}
		if printed(t, entries) != 1 {
			t.Errorf("%s: nothing is printed", spec)
		}
	}
}
