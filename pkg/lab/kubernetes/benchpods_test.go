// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
)

const (
	startNamespace = "starts"
	each           = 4  // pods that start on a node, one after another, in a round
	burst          = 30 // pods that start at once
)

// contenders: our network is the one that is installed, the other's comes first by its name while it is there.
var contenders = []struct {
	name   string
	pods   netip.Prefix
	theirs bool
}{{"calico", netip.MustParsePrefix(PodCIDR), false}, {"ptp", netip.MustParsePrefix("10.245.0.0/16"), true}}

const otherList = "/etc/cni/net.d/00-other.conflist"

// use has the runtimes start and end pods by a contender's plugins from now on.
func (w *contest) use(theirs bool) {
	w.Helper()
	if w.theirs == theirs {
		return
	}
	w.theirs = theirs
	for i, n := range w.Nodes {
		loaded := n.loaded()
		if theirs {
			// Our list has portmap, too.
			n.Write("/etc/cni/net.d/.other", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "other", "plugins": [
				{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.245.%d.0/24"}},
				{"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}]}`, i))
			n.Run("mv", "/etc/cni/net.d/.other", otherList)
		} else {
			n.Run("rm", otherList)
		}
		eventually.True(w, n.Name+" to notice", func() bool { return n.loaded() > loaded })
	}
}

// loaded is how often the runtime has read the networks again since it started.
func (n *Node) loaded() int {
	n.c.tb.Helper()
	log, err := os.ReadFile(n.containerd.log)
	if err != nil {
		n.c.tb.Fatal(err)
	}
	return bytes.Count(log, []byte("receiving change event from cni conf dir"))
}

// running are the pods of a namespace that run, and since when they were seen to.
type running struct {
	mu   sync.Mutex
	pods map[string]seen
}

type seen struct {
	at time.Time // zero = it doesn't run yet
	ip netip.Addr
}

// watchPods follows a namespace's pods until the benchmark ends.
func (w *contest) watchPods(namespace string) *running {
	r := &running{pods: map[string]seen{}}
	type pod struct {
		name, ip string
		runs     bool
	}
	go func() {
		keep := func(p *corev1.Pod) pod { return pod{p.Name, p.Status.PodIP, p.Status.Phase == corev1.PodRunning} }
		_ = kube.Watch(w.Context(), w.api, kube.Select{Namespace: namespace}, keep, kube.Handler[pod]{ // nil at the end
			Set: func(p pod) {
				r.mu.Lock()
				defer r.mu.Unlock()
				s := r.pods[p.name]
				if p.runs && s.at.IsZero() {
					s.at = time.Now()
					s.ip, _ = netip.ParseAddr(p.ip) // a pod that runs has one
				}
				r.pods[p.name] = s
			},
			Deleted: func(_, name string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.pods, name)
			},
		})
	}()
	return r
}

// get is a pod that runs.
func (r *running) get(name string) (seen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pods[name]
	if s.at.IsZero() {
		return s, fmt.Errorf("%s doesn't run", name)
	}
	return s, nil
}

// all are the addresses of the pods that are there.
func (r *running) all() map[string]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]netip.Addr{}
	for name, s := range r.pods {
		out[name] = s.ip
	}
	return out
}

// pod makes one on a node.
func (w *contest) pod(namespace, name, node string) error {
	second := int64(1)
	_, err := kube.Create(w.Context(), w.api, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &second, Containers: []corev1.Container{{Name: "main", Image: PauseImage}},
		},
	})
	return err
}

// start makes a pod and waits until it runs with an address of its contender's.
func (w *contest) start(r *running, k int, name, node string) {
	w.Helper()
	if err := w.pod(startNamespace, name, node); err != nil {
		w.Fatal(err)
	}
	w.await(r, k, name)
}

// await waits until a pod runs with an address of its contender's, and returns since when it does.
func (w *contest) await(r *running, k int, name string) (since time.Time) {
	w.Helper()
	eventually.Within(w, Patience, name+" to run", func() error {
		s, err := r.get(name)
		since = s.at
		if err == nil && !contenders[k].pods.Contains(s.ip) {
			w.Fatalf("%s has the address %s, and not one of %s's", name, s.ip, contenders[k].name)
		}
		return err
	})
	return since
}

// remove removes all pods, each contender's by its own plugins.
func (w *contest) remove(r *running) {
	w.Helper()
	for _, k := range contenders {
		var gone []string
		for name, ip := range r.all() {
			if k.pods.Contains(ip) {
				gone = append(gone, name)
			}
		}
		if len(gone) > 0 {
			w.use(k.theirs)
		}
		for _, name := range gone {
			if err := kube.Delete[corev1.Pod](w.Context(), w.api, startNamespace, name, ""); err != nil {
				w.Fatal(err)
			}
		}
		eventually.True(w, "pods to be gone", func() bool {
			left := r.all()
			return !slices.ContainsFunc(gone, func(name string) bool { _, there := left[name]; return there })
		})
	}
}

// starts measures the runtimes' calls of the plugins, and how long many pods take that start at once.
func (w *contest) starts() {
	w.Kubectl("create", "namespace", startNamespace)
	w.Eventually("a service account", func(string) error { return nil }, "get", "serviceaccount", "-n", startNamespace, "default")
	r := w.watchPods(startNamespace)
	single := map[string]*[2][]time.Duration{}
	for round := range 1 + *rounds { // the first warms up
		for _, n := range w.Nodes {
			if single[n.Name] == nil || round == 1 {
				single[n.Name] = new([2][]time.Duration)
			}
			for i := range each {
				for turn := range contenders {
					k := (turn + i) % len(contenders)
					w.use(contenders[k].theirs)
					began := time.Now()
					w.start(r, k, fmt.Sprintf("%s-%s-%d", contenders[k].name, n.Name, i), n.Name)
					adds := n.adds(began)
					if len(adds) != 1 {
						w.Fatalf("%s: the runtime's log tells of the calls %v since %v", n.Name, adds, began)
					}
					single[n.Name][k] = append(single[n.Name][k], adds...)
				}
			}
		}
		w.remove(r)
	}
	var crowd, last [2][]time.Duration
	for round := range *bursts {
		for turn := range contenders {
			k := (turn + round) % len(contenders)
			w.use(contenders[k].theirs)
			adds, latest := w.burst(r, k)
			crowd[k], last[k] = append(crowd[k], adds...), append(last[k], latest)
			w.remove(r)
		}
	}
	w.use(false)
	figures := map[string][2][]time.Duration{"last-of-30": last, "ADD-of-30": crowd}
	var all [2][]time.Duration
	for node, took := range single {
		figures["ADD-"+node] = *took
		for k := range took {
			all[k] = append(all[k], took[k]...)
		}
	}
	figures["ADD"] = all
	for name, took := range figures {
		for k, c := range contenders {
			w.report(took[k], name+"-"+c.name)
		}
		w.ratio(took[0], took[1], name)
	}
}

// burst starts many pods at once. It returns what the plugins took, and after what time the last pod ran.
func (w *contest) burst(r *running, k int) (adds []time.Duration, last time.Duration) {
	w.Helper()
	began := time.Now()
	var group errgroup.Group
	name := func(i int) string { return fmt.Sprintf("%s-burst-%d", contenders[k].name, i) }
	for i := range burst {
		group.Go(func() error { return w.pod(startNamespace, name(i), w.Nodes[i%len(w.Nodes)].Name) })
	}
	if err := group.Wait(); err != nil {
		w.Fatal(err)
	}
	for i := range burst {
		last = max(last, w.await(r, k, name(i)).Sub(began))
	}
	for _, n := range w.Nodes {
		adds = append(adds, n.adds(began)...)
	}
	return adds, last
}

// setup is a line of the runtime's log: a plugin is called, or has answered.
var setup = regexp.MustCompile(`(?m)^time="([^"]+)".* msg="(begin cni setup|cni result)[: ]?.*podsandboxid="?([0-9a-f]+)`)

// adds are the times that plugins took that were called since some time, as the runtime logs them.
func (n *Node) adds(since time.Time) (all []time.Duration) {
	n.c.tb.Helper()
	log, err := os.ReadFile(n.containerd.log)
	if err != nil {
		n.c.tb.Fatal(err)
	}
	began := map[string]time.Time{}
	for _, line := range setup.FindAllStringSubmatch(string(log), -1) {
		at, err := time.Parse(time.RFC3339Nano, line[1])
		if err != nil {
			n.c.tb.Fatal(err)
		}
		switch begin, called := began[line[3]]; {
		case strings.HasPrefix(line[2], "begin"):
			if at.After(since) {
				began[line[3]] = at
			}
		case called:
			all = append(all, at.Sub(begin))
		}
	}
	return all
}
