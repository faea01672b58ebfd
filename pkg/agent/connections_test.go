// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/agent/pods"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// TestBound: the kernel counts a workload's connections up to the parameter's bound, or the endpoint's if that is lower. An endpoint whose
// own bound is invalid isn't connected; the others stay.
func TestBound(t *testing.T) {
	h := newHost(t)
	h.put(model.ReadyKey{}, model.Ready(true))
	parameter := model.GlobalConfigKey{Name: "MaxConnectionsPerEndpoint"}
	h.put(parameter, model.Text("1000"))
	h.start()
	less, more, unsaid := h.newPod(1), h.newPod(2), h.newPod(3)
	less.spec.MaxConnections, more.spec.MaxConnections = 300, 1500
	for _, p := range []*testPod{less, more, unsaid} {
		p.wire()
		h.mustPass(p.key, p.put())
	}
	wants := func(when string, want ...string) {
		t.Helper()
		h.until(when+": "+strings.Join(want, ", "), func() bool {
			out, err := exec.Command("nft", "list", "set", "inet", "calico", "connections").CombinedOutput()
			if err != nil {
				return len(want) == 0 // there is none
			}
			_, text, _ := strings.Cut(string(out), "elements = {")
			text, _, _ = strings.Cut(text, "}")
			got := strings.Split(strings.Join(strings.Fields(text), " "), ", ")
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
	wants("a parameter", `"cali1" ct count over 300`, `"cali2" ct count over 1000`, `"cali3" ct count over 1000`)
	h.put(parameter, model.Text("0"))
	wants("without the parameter", `"cali1" ct count over 300`, `"cali2" ct count over 1500`)
	good := less.spec
	h.client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, less.key.Path(), `{"state":"active","name":"cali1","mac":"02:00:00:00:00:01","profile_ids":[],"ipv4_nets":["10.65.0.1/32"],"ipv6_nets":[],"max_connections":"many"}`)
		return err
	})
	wants("a bound that can't be read", `"cali2" ct count over 1500`)
	h.until("the endpoint is listed", func() bool {
		_, body := h.fetch(h.health, "/debug/invalid")
		return strings.Contains(body, "object "+less.key.Path()+"\n") && strings.Contains(body, "max_connections: ")
	})
	less.spec = good
	h.mustPass(less.key, less.put())
	wants("it is mended", `"cali1" ct count over 300`, `"cali2" ct count over 1500`)
	less.spec.MaxConnections, more.spec.MaxConnections = 0, 0
	less.put()
	more.put()
	wants("no bound at all")
}

// TestTooManyConnections: a pod that reached its bound is listed, and gets one event, until it has been below the bound for a while.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		c := startClockwork(t, func(c *clockwork) {
			c.first[1] = put(model.GlobalConfigKey{Name: "NftablesRefreshInterval"}, model.Text("10"), 1)
			c.first = append(c.first, put(model.GlobalConfigKey{Name: "MaxConnectionsPerEndpoint"}, model.Text("500"), 1), put(testKey("b"), testSpec("cali2", "10.0.0.2"), 1))
			c.warnPod = func(key model.WorkloadEndpointKey, reason, message string) {
				events = append(events, key.Workload+" "+reason+": "+message)
			}
		})
		listed := func() (n int) {
			for _, p := range c.problems.All() {
				if p.Path == testKey("a").Path() {
					n++
				}
			}
			return n
		}
		const event = "a TooManyConnections: it begins connections beyond the 500 that it may have, which are dropped: have it keep fewer, " +
			"or raise MaxConnectionsPerEndpoint (where the agent's environment has it: FELIX_MAXCONNECTIONSPERENDPOINT) and, where the pod has it, the annotation cni.projectcalico.org/maxConnections"
		for _, step := range []struct {
			full   []string
			events []string
		}{
			{nil, nil}, {[]string{"cali1"}, []string{event}}, {nil, nil}, {[]string{"cali1", "cali9"}, []string{event}},
		} {
			events = nil
			c.kernelTable.Do(func() { c.kernelTable.Full = step.full })
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if diff := cmp.Diff(step.events, events); diff != "" {
				t.Errorf("%q are full: events (-want +got):\n%s", step.full, diff)
			}
			if got := listed(); got != len(step.events) {
				t.Errorf("%q are full: it is listed %d times", step.full, got)
			}
		}
	})
}

// TestPodEvents: events are about pods that the API has on this host; other endpoints get none.
func TestPodEvents(t *testing.T) {
	type call struct{ method, path, body string }
	calls := make(chan call, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of what is missing the test says so
		calls <- call{r.Method, r.URL.Path, string(body)}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}})
	}))
	t.Cleanup(server.Close)
	client, err := kube.New(kube.Config{Name: "calico-node", APIRoot: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	known := pods.New(pods.Config{Node: "h"})
	known.SetPod(pods.Pod{Namespace: "shop", Name: "web", UID: "u-1", Node: "h"})
	warn := podEvents(client, known)
	key := model.WorkloadEndpointKey{Host: "h", Orchestrator: "k8s", Workload: "shop.web", Endpoint: "eth0"}
	for _, other := range []model.WorkloadEndpointKey{{Host: "h", Orchestrator: "k8s", Workload: "kube-system.web"}, {Host: "h", Orchestrator: "k8s", Workload: "web"}, {Host: "h", Orchestrator: "cni", Workload: "shop.web"}} {
		warn(other, "TooManyConnections", "of nobody")
	}
	for _, method := range []string{http.MethodPost, http.MethodPatch} { // the same again is counted
		warn(key, "TooManyConnections", "many")
		got := eventually.Receive(t, "an event", calls)
		if got.method != method || !strings.HasPrefix(got.path, "/api/v1/namespaces/shop/events") {
			t.Errorf("%s %s, want %s below namespace shop", got.method, got.path, method)
		}
		for _, part := range []string{"Pod", "web", "u-1", corev1.EventTypeWarning, "TooManyConnections"} {
			if method == http.MethodPost && !strings.Contains(got.body, part) {
				t.Errorf("an event without %s: %q", part, got.body)
			}
		}
	}
}
