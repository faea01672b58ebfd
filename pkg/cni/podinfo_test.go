// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/gate"
	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/long"
)

// kubernetes is what a test's agent knows about the pod default/web.
func kubernetes(annotations map[string]string) gate.Pod {
	return gate.Pod{
		UID: "uid-of-web", ServiceAccount: "robot", Annotations: annotations, Unshaped: true,
		Labels:   map[string]string{"app": "web", "calico/k8s_ns": "kube-system", "projectcalico.org/serviceaccount": "root"},
		Ports:    []model.EndpointPort{{Name: "http", Protocol: model.ProtocolTCP, Port: 8080}, {Name: "http", Protocol: model.ProtocolTCP, Port: 9090}},
		PodCIDRs: []netip.Prefix{prefix("10.9.7.0/24"), prefix("fd09:7::/64")},
	}
}

// answer is an agent that has programmed everything and knows one pod.
func answer(p gate.Pod, err error) *agent {
	return &agent{
		wait: func(context.Context, gate.Request) error { return nil },
		pod: func(_ context.Context, r gate.PodRequest) (gate.Pod, error) {
			if r.Name == "" {
				return gate.Pod{PodCIDRs: p.PodCIDRs}, err
			}
			if want := (gate.PodRequest{Namespace: "default", Name: "web", UID: "uid-of-web"}); r != want {
				return gate.Pod{}, fmt.Errorf("asked for %+v", r)
			}
			return p, err
		},
	}
}

// k8s returns a call for default/web in a network with policy.type k8s.
func (r *rig) k8s(netns string, change map[string]any) lab.Call {
	r.Helper()
	fields := map[string]any{"policy": map[string]any{"type": "k8s"}}
	for k, v := range change {
		fields[k] = v
	}
	c := call(netns, r.conf(fields))
	c.Args = k8sArgs + ";K8S_POD_UID=uid-of-web"
	return c
}

// TestPodOfKubernetes: an endpoint has the API's data about its pod from the first write on, without additional round
// trips to etcd.
func TestPodOfKubernetes(t *testing.T) {
	r := newRig(t, small())
	plain := call(r.pod("plain"), r.conf(nil))
	r.must(plain)
	costs := r.roundTrips()
	r.must(verb("DEL", plain))
	r.serve(answer(kubernetes(map[string]string{"cni.projectcalico.org/maxConnections": "300"}), nil))
	c := r.k8s(r.pod("pod"), nil)
	r.must(c)
	if got := r.roundTrips(); got > costs {
		t.Errorf("%d round trips, without Kubernetes %d", got, costs)
	}
	for range 2 { // and again, by the same
		ep := r.endpoints()["k8s default.web eth0"]
		want := model.WorkloadEndpoint{
			Labels:     map[string]string{"app": "web", "calico/k8s_ns": "default", "projectcalico.org/serviceaccount": "robot"},
			ProfileIDs: []string{"k8s_ns.default", "ksa.default.robot"}, PodUID: "uid-of-web", Ports: kubernetes(nil).Ports, MaxConnections: 300,
		}
		got := model.WorkloadEndpoint{Labels: ep.Labels, ProfileIDs: ep.ProfileIDs, PodUID: ep.PodUID, Ports: ep.Ports, MaxConnections: ep.MaxConnections}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("endpoint (-want +got):\n%s", diff)
		}
		r.must(c)
	}
	r.must(verb("STATUS", c))
	r.must(verb("DEL", c))
	r.empty()
}

func TestAnnotations(t *testing.T) {
	long.Test(t)
	const cni = "cni.projectcalico.org/"
	features := map[string]any{"feature_control": map[string]any{"ip_addrs_no_ipam": true, "floating_ips": true}}
	hostLocal := map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": t.TempDir(), "ranges": []any{
		[]any{map[string]any{"subnet": "usePodCidr"}}, []any{map[string]any{"subnet": "usePodCidrIPv6"}},
	}}}
	has := func(addrs ...string) func(*rig, *types100.Result, model.WorkloadEndpoint) {
		return func(r *rig, _ *types100.Result, ep model.WorkloadEndpoint) {
			var got []string
			for _, a := range ep.Addrs() {
				got = append(got, a.String())
			}
			if !slices.Equal(got, addrs) {
				r.Errorf("addresses %v, want %v", got, addrs)
			}
		}
	}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		change      map[string]any
		check       func(*rig, *types100.Result, model.WorkloadEndpoint)
		code        uint
		err         string
	}{
		{"pools", map[string]string{cni + "ipv4pools": `["10.2.0.0/26"]`, cni + "ipv6pools": `["fd02::/122"]`}, map[string]any{"ipam": map[string]any{
			"type": "calico-ipam", "assign_ipv6": true, "ipv4_pools": []string{"10.1.0.0/26"},
		}}, func(r *rig, _ *types100.Result, ep model.WorkloadEndpoint) {
			if a := ep.Addrs(); len(a) != 2 || !prefix("10.2.0.0/26").Contains(a[0]) || !prefix("fd02::/122").Contains(a[1]) {
				r.Errorf("addresses %v", a)
			}
		}, 0, ""},
		{"unknown pool", map[string]string{cni + "ipv4pools": `["10.77.0.0/26"]`}, nil, nil, 103, "requested pool 10.77.0.0/26: no such pool, .*"},
		{"addresses", map[string]string{cni + "ipAddrs": `["10.1.0.33","fd01::33"]`}, nil, has("10.1.0.33", "fd01::33"), 0, ""},
		{"bad addresses", map[string]string{cni + "ipAddrs": `10.1.0.33`}, nil, nil, 7, `annotation cni.projectcalico.org/ipAddrs, "10.1.0.33": want a JSON list of strings, like \["…"\]`},
		{"addresses of other IPAM", map[string]string{cni + "ipAddrs": `["10.1.0.33"]`}, hostLocal, nil, 7,
			`annotation cni.projectcalico.org/ipAddrs, .*: ipam.type is host-local, which gives addresses as it is configured, not as a pod asks for`},
		{"without IPAM", map[string]string{cni + "ipAddrsNoIpam": `["192.0.2.9","2001:db8::9"]`}, features, func(r *rig, res *types100.Result, ep model.WorkloadEndpoint) {
			has("192.0.2.9", "2001:db8::9")(r, res, ep)
			if got := r.handles(); len(got) != 0 {
				r.Errorf("handles %v", got)
			}
		}, 0, ""},
		{"without IPAM, not allowed", map[string]string{cni + "ipAddrsNoIpam": `["192.0.2.9"]`}, nil, nil, 7,
			`annotation cni.projectcalico.org/ipAddrsNoIpam, .*: feature_control.ip_addrs_no_ipam of the network configuration doesn't allow it`},
		{"floating", map[string]string{cni + "ipAddrs": `["10.1.0.34","fd01::34"]`, cni + "floatingIPs": `["192.0.2.7","2001:db8::7","192.0.2.8"]`}, features,
			func(r *rig, _ *types100.Result, ep model.WorkloadEndpoint) {
				v4, v6 := netip.MustParseAddr("10.1.0.34"), netip.MustParseAddr("fd01::34")
				if !slices.Equal(ep.IPv4NAT, []model.NAT{{IntIP: v4, ExtIP: netip.MustParseAddr("192.0.2.7")}, {IntIP: v4, ExtIP: netip.MustParseAddr("192.0.2.8")}}) ||
					!slices.Equal(ep.IPv6NAT, []model.NAT{{IntIP: v6, ExtIP: netip.MustParseAddr("2001:db8::7")}}) {
					r.Errorf("NAT %v %v", ep.IPv4NAT, ep.IPv6NAT)
				}
			}, 0, ""},
		{"floating of another family", map[string]string{cni + "ipFamilies": `["IPv4"]`, cni + "floatingIPs": `["2001:db8::7"]`}, features, nil, 7,
			`annotation cni.projectcalico.org/floatingIPs: 2001:db8::7: the pod has no address of its family`},
		{"floating, not allowed", map[string]string{cni + "floatingIPs": `["192.0.2.7"]`}, nil, nil, 7,
			`annotation cni.projectcalico.org/floatingIPs, .*: feature_control.floating_ips of the network configuration doesn't allow it`},
		{"families", map[string]string{cni + "ipFamilies": `["IPv6"]`, cni + "ipAddrs": `["fd01::35"]`}, nil, has("fd01::35"), 0, ""},
		{"MAC", map[string]string{cni + "hwAddr": "02:00:00:00:00:77"}, nil, func(r *rig, res *types100.Result, ep model.WorkloadEndpoint) {
			if ep.MAC != (model.MAC{2, 0, 0, 0, 0, 0x77}) || res.Interfaces[1].Mac != "02:00:00:00:00:77" {
				r.Errorf("MAC %s, %s", ep.MAC, res.Interfaces[1].Mac)
			}
		}, 0, ""},
		{"the host's MAC", map[string]string{cni + "hwAddr": "ee:ee:ee:ee:ee:ee"}, nil, nil, 7, "annotation cni.projectcalico.org/hwAddr: ee:ee:ee:ee:ee:ee is the host's end's, .*"},
		{"bad connections", map[string]string{cni + "maxConnections": "many"}, nil, nil, 7, `annotation cni.projectcalico.org/maxConnections, "many": want a number, 1 to 1073741824`},
		{"refused", map[string]string{cni + "allowedSourcePrefixes": `["10.0.0.0/8"]`, "qos.projectcalico.org/ingressBandwidth": "1M"}, nil, nil, 7,
			`annotation cni.projectcalico.org/allowedSourcePrefixes, .*: this version has no such thing: take the annotation away; annotation qos.projectcalico.org/ingressBandwidth, .*`},
		{"podCIDR", nil, hostLocal, func(r *rig, _ *types100.Result, ep model.WorkloadEndpoint) {
			if a := ep.Addrs(); len(a) != 2 || !prefix("10.9.7.0/24").Contains(a[0]) || !prefix("fd09:7::/64").Contains(a[1]) {
				r.Errorf("addresses %v", a)
			}
		}, 0, ""},
		{"bandwidth", map[string]string{"kubernetes.io/ingress-bandwidth": "8M", "kubernetes.io/egress-bandwidth": "16M"}, nil, func(r *rig, res *types100.Result, _ model.WorkloadEndpoint) {
			if got := r.sh("tc qdisc show dev " + res.Interfaces[0].Name); !strings.Contains(got, "rate 8Mbit ") {
				r.Errorf("what the pod receives: %s", got)
			}
			if got := r.sh("nsenter --net=" + res.Interfaces[1].Sandbox + " tc qdisc show dev eth0"); !strings.Contains(got, "rate 16Mbit ") {
				r.Errorf("what the pod sends: %s", got)
			}
		}, 0, ""},
		{"bandwidth of the runtime", nil, map[string]any{"runtimeConfig": map[string]any{"bandwidth": map[string]any{"ingressRate": 4000000}}},
			func(r *rig, res *types100.Result, _ model.WorkloadEndpoint) {
				if got := r.sh("tc qdisc show dev " + res.Interfaces[0].Name); !strings.Contains(got, "rate 4Mbit ") {
					r.Errorf("what the pod receives: %s", got)
				}
			}, 0, ""},
		{"bad bandwidth", map[string]string{"kubernetes.io/egress-bandwidth": "fast"}, nil, nil, 7,
			`annotation kubernetes.io/egress-bandwidth, "fast": want a number of bits per second from 1k to 1P, like 10M`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, lab.Config{CNIPath: []string{reference(t)}, Pools: []netip.Prefix{
				prefix("10.1.0.0/26"), prefix("10.2.0.0/26"), prefix("fd01::/122"), prefix("fd02::/122"),
			}})
			r.serve(answer(kubernetes(tt.annotations), nil))
			c := r.k8s(r.pod("pod"), tt.change)
			if tt.err != "" {
				reply := r.failsLike(c, tt.code, tt.err)
				if tt.name == "bad connections" && !strings.Contains(string(reply.Stdout), "correct it, at pod default/web or at its namespace") {
					t.Errorf("it names no pod: %s", reply.Stdout)
				}
			} else {
				reply := r.must(c)
				tt.check(r, r.result(reply), r.endpoints()["k8s default.web eth0"])
				if tt.name == "without IPAM" || tt.name == "podCIDR" {
					r.must(verb("CHECK", withResult(r, c, reply)))
				}
			}
			r.must(verb("DEL", c))
			r.empty()
		})
	}
}

// TestBandwidthInTheList: if the list has the reference plugin, that plugin limits the pod, and nothing interferes.
func TestBandwidthInTheList(t *testing.T) {
	r := newRig(t, small())
	p := kubernetes(map[string]string{"kubernetes.io/ingress-bandwidth": "8M"})
	p.Unshaped = false
	r.serve(answer(p, nil))
	c := r.k8s(r.pod("pod"), nil)
	reply := r.must(c)
	next := withResult(r, c, reply)
	next.Plugin, next.Path = "bandwidth", []string{reference(t)}
	next.Stdin = []byte(strings.Replace(string(next.Stdin), "{", `{"runtimeConfig":{"bandwidth":{"ingressRate":8000000,"ingressBurst":4294967295}},`, 1))
	r.must(next)
	if got := r.sh("tc qdisc show dev " + r.result(reply).Interfaces[0].Name); strings.Count(got, "tbf") != 1 || !strings.Contains(got, "rate 8Mbit ") {
		t.Errorf("what the pod receives: %s", got)
	}
	r.must(verb("DEL", next))
	r.must(verb("DEL", c))
	r.empty()
}

// TestNoPod: errors say why a pod isn't known, and what to do.
func TestNoPod(t *testing.T) {
	cfg := small()
	cfg.CNIPath = []string{reference(t)}
	r := newRig(t, cfg)
	c := r.k8s(r.pod("pod"), map[string]any{"policy_setup_timeout_seconds": 1})
	r.agentRan()
	r.failsLike(c, 11, "the agent didn't say within [0-9ms]+ what the Kubernetes API knows of the pod: .*no agent listens")
	for _, tt := range []struct {
		err  error
		code uint
		msg  string
	}{
		{&gate.RejectedError{Reason: "it doesn't read the Kubernetes API"}, 109, "ask the agent what the Kubernetes API knows of the pod: the agent refused: it doesn't read the Kubernetes API"},
		{fmt.Errorf("%w: the Kubernetes API has no pod default/web", gate.ErrNoPod), 11,
			"ask the agent what the Kubernetes API knows of the pod: no such pod: the Kubernetes API has no pod default/web"},
		{errors.New("the API server is away"), 11, "the agent didn't say within [0-9ms]+ what the Kubernetes API knows of the pod: the agent is not ready: the API server is away"},
	} {
		r.serve(answer(gate.Pod{}, tt.err))
		r.failsLike(c, tt.code, tt.msg)
	}
	// STATUS asks once.
	r.fails(verb("STATUS", c), 50, "the agent didn't say what the Kubernetes API knows of the pod: the agent is not ready: the API server is away")
	r.serve(answer(gate.Pod{}, nil))
	c.Stdin = r.conf(map[string]any{"ipam": map[string]any{"type": "host-local", "subnet": "usePodCidr"}, "policy_setup_timeout_seconds": 60})
	for _, v := range []string{"ADD", "STATUS"} {
		r.fails(verb(v, c), map[string]uint{"ADD": 11, "STATUS": 50}[v], "ipam.subnet: usePodCidr: the Kubernetes Node has no IPv4 podCIDR, of []")
	}
	r.empty()
}
