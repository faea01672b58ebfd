// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-go/calico/pkg/model"
)

func TestDifferences(t *testing.T) {
	pool, block := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.0/30")
	entries := []model.Entry{
		{Key: model.PoolKey{CIDR: pool}, Value: model.Pool{CIDR: pool, IPAM: true}},
		{Key: model.BlockKey{CIDR: block}, Value: model.Block{CIDR: block, Affinity: "n", Allocations: []int{0, 0, model.Free, model.Free}, Unallocated: []int{2, 3}, Attributes: []model.Attributes{{HandleID: "h"}}}},
	}
	endpoint := func(pod, uid, addr string) {
		key := model.WorkloadEndpointKey{Host: "n", Orchestrator: "k8s", Workload: "shop." + pod, Endpoint: "eth0"}
		value := model.WorkloadEndpoint{PodUID: uid, IPv4Nets: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(addr), 32)}}
		entries = append(entries, model.Entry{Key: key, Path: key.Path(), Value: value})
	}
	var pods []*corev1.Pod
	pod := func(name, uid string, phase corev1.PodPhase, addr string, change ...func(*corev1.Pod)) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase, PodIPs: []corev1.PodIP{{IP: addr}}}}
		for _, c := range change {
			c(p)
		}
		pods = append(pods, p)
	}
	hostNetwork := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	static := func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	}

	endpoint("well", "1", "10.0.0.0")
	pod("well", "1", corev1.PodRunning, "10.0.0.0")
	endpoint("static.v1", "hash", "10.0.0.1")
	pod("static.v1", "2", corev1.PodRunning, "10.0.0.1", static)
	endpoint("starting", "3", "10.0.0.1")
	pod("starting", "3", corev1.PodPending, "")
	pod("elsewhere", "4", corev1.PodRunning, "192.0.2.1")
	pod("host", "5", corev1.PodRunning, "10.0.0.200", hostNetwork)
	pod("done", "6", corev1.PodSucceeded, "10.0.0.9")
	if got := differences(entries, pods); got != nil {
		t.Errorf("nothing is wrong: %v", got)
	}

	endpoint("gone", "1", "10.0.0.1")
	endpoint("again", "1", "10.0.0.1")
	pod("again", "2", corev1.PodPending, "")
	endpoint("finished", "1", "10.0.0.1")
	pod("finished", "1", corev1.PodFailed, "10.0.0.1")
	endpoint("moved", "1", "10.0.0.1")
	pod("moved", "1", corev1.PodRunning, "10.0.0.1", hostNetwork)
	pod("unknown", "1", corev1.PodRunning, "10.0.0.1")
	endpoint("another", "1", "10.0.0.1")
	pod("another", "1", corev1.PodRunning, "10.0.0.0")
	endpoint("free", "1", "10.0.0.2")
	pod("free", "1", corev1.PodRunning, "10.0.0.2")
	var got []string
	for _, m := range differences(entries, pods) {
		text, _, _ := strings.Cut(m.Text, ": ")
		got = append(got, m.Pod+": "+text)
	}
	want := `shop/again: etcd has the addresses of a former pod of this name, 10.0.0.1
shop/another: it has 10.0.0.0, and its endpoint in etcd 10.0.0.1
shop/finished: it has finished (phase Failed), and etcd still has its addresses, 10.0.0.1
shop/free: it has 10.0.0.2, which no block has as in use, so that another may get it
shop/gone: there is no such pod, and etcd has its addresses, 10.0.0.1
shop/moved: it has its node's network, and etcd has addresses of a pod of this name that is gone, 10.0.0.1
shop/unknown: it has 10.0.0.1 of a pool, and etcd has no endpoint of it, so that no policy counts`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s\nwant:\n%s", text, want)
	}
}
