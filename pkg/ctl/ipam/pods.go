// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/ctl/session"
	"github.com/calico-go/calico/pkg/ipam/usage"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
)

// A mismatch is what etcd and the Kubernetes API say otherwise of a pod.
type mismatch struct {
	Pod  string `json:"pod"` // <namespace>/<name>
	Text string `json:"text"`
}

// mismatches compares the pods of the Kubernetes API with etcd's endpoints and addresses. Both change meanwhile: it reports what stands twice.
func mismatches(ctx context.Context, env *session.Env, kubeconfig string) ([]mismatch, error) {
	api, err := env.Kubernetes(kubeconfig)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	look := func() ([]mismatch, error) {
		snapshot, err := env.Read(ctx, usage.Ranges()...)
		if err != nil {
			return nil, err
		}
		pods, err := kube.List[corev1.Pod](ctx, api, kube.Select{})
		return differences(snapshot.Entries(), pods), err
	}
	all, err := look()
	if err != nil || len(all) == 0 {
		return all, err
	}
	again, err := look()
	return slices.DeleteFunc(all, func(m mismatch) bool { return !slices.Contains(again, m) }), err
}

// differences returns what etcd and the pods of the API say otherwise, sorted.
func differences(entries []model.Entry, pods []*corev1.Pod) (all []mismatch) {
	tell := func(pod, format string, args ...any) { all = append(all, mismatch{pod, fmt.Sprintf(format, args...)}) }
	addrs := map[string][]netip.Addr{} // of the pods' endpoints
	uids := map[string]string{}
	for _, e := range entries {
		key, is := e.Key.(model.WorkloadEndpointKey)
		value, readable := e.Value.(model.WorkloadEndpoint)
		if namespace, name, named := strings.Cut(key.Workload, "."); is && readable && named && key.Orchestrator == "k8s" {
			pod := namespace + "/" + name
			addrs[pod] = append(addrs[pod], value.Addrs()...)
			uids[pod] = cmp.Or(uids[pod], value.PodUID)
		}
	}
	used := usage.New(entries)
	allocated := map[netip.Addr]bool{}
	for _, a := range used.All() {
		allocated[a.Addr] = true
	}
	there := map[string]bool{}
	const freed = "calico-controllers free them some minutes after the pod has gone; see their log if they don't"
	for _, p := range pods {
		pod := p.Namespace + "/" + p.Name
		has, known := addrs[pod]
		there[pod] = true
		switch uid := cmp.Or(p.Annotations[corev1.MirrorPodAnnotationKey], string(p.UID)); {
		case !known:
		case p.Spec.HostNetwork:
			tell(pod, "it has its node's network, and etcd has addresses of a pod of this name that is gone, %s: %s", texts(has), freed)
			continue
		case uids[pod] != "" && uids[pod] != uid:
			tell(pod, "etcd has the addresses of a former pod of this name, %s: %s", texts(has), freed)
			continue
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
			tell(pod, "it has finished (phase %s), and etcd still has its addresses, %s: %s", p.Status.Phase, texts(has), freed)
			continue
		}
		if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			switch a, err := netip.ParseAddr(ip.IP); {
			case err != nil, used.Pool(a) == nil: // another plugin gave it the address
			case !known:
				tell(pod, "it has %s of a pool, and etcd has no endpoint of it, so that no policy counts: delete the pod, for it to be made anew", a)
			case !slices.Contains(has, a):
				tell(pod, "it has %s, and its endpoint in etcd %s: delete the pod, for it to be made anew", a, texts(has))
			case !allocated[a]:
				tell(pod, "it has %s, which no block has as in use, so that another may get it: see calicoctl ipam repair", a)
			}
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(addrs)) {
		if !there[pod] {
			tell(pod, "there is no such pod, and etcd has its addresses, %s: %s", texts(addrs[pod]), freed)
		}
	}
	slices.SortFunc(all, func(a, b mismatch) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Text, b.Text)) })
	return all
}

// texts returns addresses as a list.
func texts(addrs []netip.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return strings.Join(all, " and ")
}
