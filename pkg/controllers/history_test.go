// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package controllers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/kubernetes"
	"github.com/calico-go/calico/pkg/model"
)

var (
	seed  = flag.Uint64("seed", 0, "of the random history, 0 = any")
	steps = flag.Int("steps", 100, "of the random history")
)

// What a proxy before the API does to answers.
const (
	honest int32 = iota
	failing
	cutting
	lost // it doesn't know the API: a page with status 404
	faults
)

// proxied starts a proxy before the API, and returns a kubeconfig that uses it.
func (w *world) proxied(fault *atomic.Int32) string {
	w.Helper()
	target, err := url.Parse(w.plane.URL)
	if err != nil {
		w.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	proxy.FlushInterval = -1
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ModifyResponse = func(r *http.Response) error {
		if fault.Load() != cutting || r.Request.URL.Query().Get("watch") != "" {
			return nil
		}
		data, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(data[:len(data)/2]))
		r.ContentLength = int64(len(data) / 2)
		r.Header.Set("Content-Length", fmt.Sprint(len(data)/2))
		return err
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch fault.Load() {
		case failing:
			http.Error(rw, "the proxy has no wish to", http.StatusInternalServerError)
		case lost:
			http.NotFound(rw, r)
		case cutting:
			if r.URL.Query().Get("sendInitialEvents") != "" {
				http.Error(rw, "lists only", http.StatusInternalServerError)
				return
			}
			proxy.ServeHTTP(rw, r)
		default:
			proxy.ServeHTTP(rw, r)
		}
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS() // no client sends its token elsewhere
	w.Cleanup(server.Close)
	w.Cleanup(server.CloseClientConnections)
	token := w.plane.Kubectl("config", "view", "--raw", "-o", "jsonpath={.users[0].user.token}")
	path := filepath.Join(w.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: %q, insecure-skip-tls-verify: true}}],
users: [{name: x, user: {token: %q}}], contexts: [{name: x, context: {cluster: x, user: x}}]}`, server.URL, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	return path
}

// history is what etcd should hold at each time.
type history struct {
	*world
	random *rand.Rand
	ctx    context.Context

	mu       sync.Mutex
	live     map[model.Key]int64 // keys that were there at a revision and must not be deleted after it; 0 = they may
	policies map[string]bool
	accounts map[string]bool
	pods     map[string]model.WorkloadEndpoint // as they should be
}

func (h *history) alive(since int64, keys ...model.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range keys {
		h.live[k] = since
	}
}

// judge fails the test if etcd loses what lives.
func (h *history) judge() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Store.Watch(ctx, []string{"/calico/v1/policy/", "/calico/v1/host/"}, func(u model.Update) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, e := range u.Entries {
				if since := h.live[e.Key]; !e.Exists() && since > 0 && u.Revision > since { // a watch that was interrupted tells late
					h.Errorf("revision %d: %s is deleted although it lives", u.Revision, e.Path)
				}
			}
			return nil
		})
	}()
	h.Cleanup(func() { stop(); <-done })
}

func policyKey(name string) model.Key {
	return model.PolicyKey{Tier: "default", Policy: "knp.shop." + name}
}

func accountKey(name string) model.Key {
	return model.ProfileLabelsKey{Profile: "ksa.shop." + name}
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// change changes an object in the API, or an endpoint, as users and plugins do.
func (h *history) change() {
	h.Helper()
	name := fmt.Sprint("o", h.random.IntN(12))
	about := metav1.ObjectMeta{Namespace: "shop", Name: name}
	switch h.random.IntN(6) {
	case 0, 1:
		if h.policies[name] {
			h.alive(0, policyKey(name))
			h.must(kube.Delete[networkingv1.NetworkPolicy](h.ctx, h.api, "shop", name, ""))
		} else {
			_, err := kube.Create(h.ctx, h.api, &networkingv1.NetworkPolicy{ObjectMeta: about})
			h.must(err)
		}
		h.policies[name] = !h.policies[name]
	case 2:
		if h.accounts[name] {
			if h.pods[name].PodUID == "" { // no endpoint has the profile
				h.alive(0, accountKey(name))
			}
			h.must(kube.Delete[corev1.ServiceAccount](h.ctx, h.api, "shop", name, ""))
		} else {
			_, err := kube.Create(h.ctx, h.api, &corev1.ServiceAccount{ObjectMeta: about})
			h.must(err)
		}
		h.accounts[name] = !h.accounts[name]
	case 3, 4:
		if e, ok := h.pods[name]; ok && h.random.IntN(2) == 0 {
			p, err := kube.Get[corev1.Pod](h.ctx, h.api, "shop", name)
			h.must(err)
			p.Labels = map[string]string{"round": fmt.Sprint(h.random.IntN(1000))}
			_, err = kube.Update(h.ctx, h.api, p)
			h.must(err)
			e.Labels = model.PodLabels("shop", name, p.Labels)
			h.pods[name] = e
		} else if ok {
			if !h.accounts[name] {
				h.alive(0, accountKey(name))
			}
			h.alive(0, key("shop", name))
			h.must(kube.Delete[corev1.Pod](h.ctx, h.api, "shop", name, ""))
			delete(h.pods, name)
			h.Remove(key("shop", name))
		} else {
			h.start(name, about)
		}
	case 5: // another writer meddles
		for k := range h.live {
			if h.live[k] > 0 {
				if _, endpoint := k.(model.WorkloadEndpointKey); !endpoint {
					h.alive(0, k)
					h.Remove(k)
				}
				break
			}
		}
	}
}

// start makes a pod, and its endpoint as the plugin would.
func (h *history) start(name string, about metav1.ObjectMeta) {
	p, err := kube.Create(h.ctx, h.api, &corev1.Pod{ObjectMeta: about, Spec: corev1.PodSpec{
		ServiceAccountName: name, Containers: []corev1.Container{{Name: "a", Image: "none"}},
	}})
	h.must(err)
	e := model.WorkloadEndpoint{
		State: model.StateActive, Name: "cali0", PodUID: string(p.UID), IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")},
		ProfileIDs: model.PodProfiles("shop", name), Labels: model.PodLabels("shop", name, nil),
	}
	h.pods[name] = e
	h.alive(h.Put(key("shop", name), e), key("shop", name))
}

// settle waits until etcd holds what it should; from then on that must not be deleted.
func (h *history) settle() {
	h.Helper()
	eventually.Within(h, kubernetes.Patience, "etcd holds what it should", h.settled)
	now, err := h.Store.Read(h.ctx, model.KeyRange(model.LeaderKey{}))
	h.must(err)
	since := map[bool]int64{true: now.Revision}
	for name, there := range h.policies {
		h.alive(since[there], policyKey(name))
	}
	for name, there := range h.accounts {
		h.alive(since[there], accountKey(name))
	}
}

// settled returns what etcd lacks, or still holds, and shouldn't.
func (h *history) settled() error {
	for i := range 12 {
		name := fmt.Sprint("o", i)
		if have := h.Get(policyKey(name)) != nil; have != h.policies[name] {
			return fmt.Errorf("policy %s is there: %v", name, have)
		}
		if have := h.Get(accountKey(name)) != nil; h.accounts[name] && !have || have && !h.accounts[name] && h.pods[name].Name == "" {
			return fmt.Errorf("profile of %s is there: %v", name, have)
		}
		want, ok := h.pods[name]
		have, there := h.Get(key("shop", name)).(model.WorkloadEndpoint)
		if ok != there || !have.Equal(want) {
			return fmt.Errorf("endpoint %s: %+v, want %+v", name, have, want)
		}
	}
	return nil
}

// TestHistory: the API, etcd and two programs fail at random while objects change. Nothing that lives is deleted, and in the
// end etcd holds what it should.
func TestHistory(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	w := newWorld(t)
	w.plane.Apply(`{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`)
	h := &history{
		world: w, random: rand.New(rand.NewPCG(*seed, 0)), ctx: context.Background(),
		live: map[model.Key]int64{}, policies: map[string]bool{}, accounts: map[string]bool{}, pods: map[string]model.WorkloadEndpoint{},
	}
	h.judge()
	var fault atomic.Int32
	kubeconfig := w.proxied(&fault)
	programs := []*program{startProgram(t, w, kubeconfig), startProgram(t, w, kubeconfig)}
	for range *steps {
		switch h.random.IntN(12) {
		case 0:
			i := h.random.IntN(len(programs))
			programs[i].kill()
			programs[i] = startProgram(t, w, kubeconfig)
		case 1:
			fault.Store(int32(h.random.IntN(int(faults))))
		case 2:
			fault.Store(honest)
		case 3:
			w.plane.KillAPI()
			w.plane.StartAPI()
		case 4:
			w.Stop()
			w.Start()
		case 5: // as it is where all goes well
			fault.Store(honest)
			h.settle()
		default:
			h.change()
		}
	}
	fault.Store(honest)
	h.settle()
}
