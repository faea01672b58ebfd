// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/test/etcd"
)

// api is the part of the Kubernetes API that the signer uses.
type api struct {
	mu      sync.Mutex
	objects map[string]any    // by path
	patches map[string]string // by path
	got     map[string]int    // how often each request for a certificate was sent
	most    int               // of them in one answer
}

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// listKinds are the kinds of lists, by path.
var listKinds = map[string][2]string{"/api/v1/nodes": {"v1", "NodeList"}, requestsPath: {"certificates.k8s.io/v1", "CertificateSigningRequestList"}}

// count records how many requests for certificates one answer contains.
func (a *api) count(names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most = max(a.most, len(names))
	for _, name := range names {
		a.got[name]++
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(code int, o any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(o)
	}
	failed := func(code int, reason string) {
		reply(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "details": map[string]any{"name": path.Base(r.URL.Path)}})
	}
	query := r.URL.Query()
	kind, listed := listKinds[r.URL.Path]
	a.mu.Lock()
	objects := maps.Clone(a.objects)
	a.mu.Unlock()
	switch {
	case r.Method == http.MethodPatch:
		data, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.patches[r.URL.Path] = string(data)
		a.mu.Unlock()
		reply(http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	case !listed && objects[r.URL.Path] == nil:
		failed(http.StatusNotFound, "NotFound")
	case r.Method == http.MethodPut:
		o := map[string]interface{ Unmarshal([]byte) error }{"secrets": new(corev1.Secret), "configmaps": new(corev1.ConfigMap)}[path.Base(path.Dir(r.URL.Path))]
		data, _ := io.ReadAll(r.Body)
		var u runtime.Unknown // protobuf, after a magic number
		if u.Unmarshal(data[4:]) != nil || o.Unmarshal(u.Raw) != nil {
			failed(http.StatusBadRequest, "BadRequest")
			return
		}
		a.mu.Lock()
		a.objects[r.URL.Path] = o
		a.mu.Unlock()
		reply(http.StatusOK, o)
	case !listed:
		a.count(path.Base(r.URL.Path))
		reply(http.StatusOK, objects[r.URL.Path])
	case query.Get("sendInitialEvents") != "":
		failed(http.StatusUnprocessableEntity, "Invalid")
	case query.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		var all []string
		for at := range maps.Keys(objects) {
			if path.Dir(at) == r.URL.Path {
				all = append(all, at)
			}
		}
		slices.Sort(all)
		from, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		meta := map[string]string{"resourceVersion": "1"}
		all = all[from:]
		if limit > 0 && limit < len(all) {
			all, meta["continue"] = all[:limit], strconv.Itoa(from+limit)
		}
		var items []any
		for _, at := range all {
			items = append(items, objects[at])
		}
		if r.URL.Path == requestsPath {
			a.count(all...)
		}
		reply(http.StatusOK, map[string]any{"apiVersion": kind[0], "kind": kind[1], "metadata": meta, "items": items})
	}
}

// bootstrapperOf returns a bootstrapper that uses this API.
func bootstrapperOf(t *testing.T, a *api) *bootstrapper {
	t.Helper()
	a.patches, a.got = map[string]string{}, map[string]int{}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	b, err := open(Config{Kube: kube.Config{Name: "test", APIRoot: s.URL}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kube.Close)
	return b
}

func object(name string, more map[string]any) map[string]any {
	o := map[string]any{"metadata": map[string]any{"name": name, "uid": "uid"}}
	maps.Copy(o, more)
	return o
}

// TestLargeRequests: whatever requests a node makes, the signer holds few of them at a time, and denies those that no agent makes.
func TestLargeRequests(t *testing.T) {
	p, err := newAuthority("calico-etcd-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{clusterKey: "n1=https://127.0.0.1:2480"}
	a := &api{objects: map[string]any{
		"/api/v1/namespaces/kube-system/configmaps/calico-etcd": object(membersConfig, map[string]any{"data": config}),
		"/api/v1/namespaces/kube-system/secrets/calico-etcd-ca": object("calico-etcd-ca", map[string]any{"data": map[string][]byte{"tls.crt": p.cert, "tls.key": p.key}}),
	}}
	const n = 40
	for i := range n {
		name := fmt.Sprintf("r%02d", i)
		a.objects[requestsPath+"/"+name] = object(name, map[string]any{"spec": map[string]any{
			"signerName": signerName, "username": "system:serviceaccount:kube-system:calico-node", "extra": map[string]any{nodeExtra: []string{"n1"}}, "request": bytes.Repeat([]byte("x"), maxRequest+1),
		}})
	}
	b := bootstrapperOf(t, a)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.signEtcd(ctx) }()
	eventually.Nil(t, "all to be denied", func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		denied := 0
		for at, patch := range a.patches {
			if strings.HasSuffix(at, "/approval") && strings.Contains(patch, `"Denied"`) && strings.Contains(patch, "it has 8193 bytes, more than 8192") {
				denied++
			}
		}
		if denied != n {
			return fmt.Errorf("%d are", denied)
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if a.most > 4 {
		t.Errorf("it was sent %d at once", a.most)
	}
	for name, times := range a.got {
		if strings.HasPrefix(name, "r") && times > 2 {
			t.Errorf("it got %s %d times", name, times)
		}
	}
}

// TestSignNSM: a manager of network services gets a certificate of the published authority, which lasts; others get none.
func TestSignNSM(t *testing.T) {
	const config, secret, pods = "/api/v1/namespaces/kube-system/configmaps/calico-nsm", "/api/v1/namespaces/kube-system/secrets/calico-nsm-ca", "/api/v1/namespaces/kube-system/pods/"
	in := func(name string, spec map[string]any) map[string]any {
		return object(name, map[string]any{"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec})
	}
	a := &api{objects: map[string]any{
		config: in("calico-nsm", nil), secret: in("calico-nsm-ca", nil), "/api/v1/nodes/n1": object("n1", nil),
		pods + "manager": in("manager", map[string]any{"nodeName": "n1", "serviceAccountName": "calico-nsm"}),
		pods + "agent":   in("agent", map[string]any{"nodeName": "n1", "serviceAccountName": "calico-node"}),
	}}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "root"}, DNSNames: []string{"n2.calico-nsm"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := []struct{ name, account, extra, value, denied string }{
		{"on-node", "calico-nsm", nodeExtra, "n1", ""},
		{"in-pod", "calico-nsm", podExtra, "manager", ""},
		{"agent", "calico-node", nodeExtra, "n1", "only system:serviceaccount:kube-system:calico-nsm may ask"},
		{"agents-pod", "calico-nsm", podExtra, "agent", "its pod is another account's"},
		{"no-node", "calico-nsm", nodeExtra, "n2", "there is no Node n2"},
	}
	for _, r := range requests {
		a.objects[requestsPath+"/"+r.name] = object(r.name, map[string]any{"spec": map[string]any{
			"signerName": nsmSigner, "username": "system:serviceaccount:kube-system:" + r.account, "extra": map[string]any{r.extra: []string{r.value}},
			"request": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		}})
	}
	published := ""
	for range 2 { // it is ended, and runs again
		b := bootstrapperOf(t, a)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.signNSM(ctx) }()
		var patches map[string]string
		eventually.Nil(t, "all to be answered", func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if patches = maps.Clone(a.patches); len(patches) != len(requests)+2 {
				return fmt.Errorf("%v", patches)
			}
			return nil
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c, err := kube.Get[corev1.ConfigMap](t.Context(), b.kube, namespace, "calico-nsm")
		if err != nil || published != "" && c.Data["ca.crt"] != published {
			t.Fatalf("there is another authority now: %v, %v", c, err)
		}
		published = c.Data["ca.crt"]
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(published))
		for _, r := range requests {
			approval, status := patches[requestsPath+"/"+r.name+"/approval"], patches[requestsPath+"/"+r.name+"/status"]
			if r.denied != "" {
				if !strings.Contains(approval, `"Denied"`) || !strings.Contains(approval, r.denied) || status != "" {
					t.Errorf("%s: %s%s, want %s", r.name, approval, status, r.denied)
				}
				continue
			}
			var signed certificatesv1.CertificateSigningRequest
			if err := json.Unmarshal([]byte(status), &signed); err != nil || !strings.Contains(approval, `"Approved"`) {
				t.Fatalf("%s: %s%s: %v", r.name, approval, status, err)
			}
			block, _ := pem.Decode(signed.Status.Certificate)
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
					t.Errorf("%s: usage %v: %v", r.name, usage, err)
				}
			}
			if cert.Subject.CommonName != "node:n1:uid" || !slices.Equal(cert.DNSNames, []string{"calico-nsm", "n1.calico-nsm"}) || !key.PublicKey.Equal(cert.PublicKey) {
				t.Errorf("%s: %v, %v", r.name, cert.Subject, cert.DNSNames)
			}
			if life := cert.NotAfter.Sub(cert.NotBefore); life != nodeLife+skew {
				t.Errorf("%s: it lives for %v", r.name, life)
			}
		}
	}
}

// TestSweepCompletes: whichever request about a node's user was the last of a signer that ended, the user can do nothing until it can do
// everything, and the next signer completes it.
func TestSweepCompletes(t *testing.T) {
	ctx, s := t.Context(), etcd.New(t)
	a := &api{objects: map[string]any{"/api/v1/nodes/old": object("old", nil)}}
	if err := s.Store.AddUser(ctx, nodeUser("old", "uid").Name); err != nil { // as an older signer might have left it
		t.Fatal(err)
	}
	want := 1 + len(nodeUser("n", "uid").Write)
	rights := func(node string) (is, can int) {
		name := nodeUser(node, "uid").Name
		s.Client(func(ctx context.Context, c *clientv3.Client) error {
			all, err := c.UserList(ctx)
			if err != nil || !slices.Contains(all.Users, name) {
				return err
			}
			is = 1
			user, err := c.UserGet(ctx, name)
			if err != nil || len(user.Roles) == 0 {
				return err
			}
			role, err := c.RoleGet(ctx, name)
			if err == nil {
				can = len(role.Perm)
			}
			return err
		})
		return is, can
	}
	for after, ended := 0, true; ended; after++ {
		node := fmt.Sprintf("n%d", after)
		a.objects["/api/v1/nodes/"+node] = object(node, nil)
		s.RefuseUser(after)
		ended = admit(ctx, s.Store, node, nodeUser(node, "uid")) != nil
		s.RefuseUser(-1)
		if _, can := rights(node); can != 0 && can != want {
			t.Errorf("after %d requests its user has %d rights, of %d", after, can, want)
		}
	}
	if len(a.objects) < 2+want {
		t.Fatalf("there are %d requests", len(a.objects))
	}
	b := bootstrapperOf(t, a)
	for _, lost := range []string{"none", "n0"} {
		if err := s.Store.RemoveUser(ctx, nodeUser(lost, "uid").Name); err != nil {
			t.Fatal(err)
		}
		if err := b.sweep(ctx, s.Store); err != nil {
			t.Fatal(err)
		}
		for at := range a.objects {
			if is, can := rights(path.Base(at)); is != 1 || can != want {
				t.Errorf("the user of %s: %d, with %d rights, want %d", path.Base(at), is, can, want)
			}
		}
	}
	s.RefuseUser(1)
	if err := b.sweep(ctx, s.Store); err != nil {
		t.Errorf("users that are whole are asked for by more than their list: %v", err)
	}
}

// TestRevoke: a revoked certificate never becomes valid again, and an unknown name is reported.
func TestRevoke(t *testing.T) {
	ctx, s := t.Context(), etcd.New(t).Store
	admitted := func(node, uid string) bool { return admit(ctx, s, node, nodeUser(node, uid)) == nil }
	for _, node := range []string{"n1", "n11", "gone"} {
		if !admitted(node, "a") {
			t.Fatal(node)
		}
	}
	if err := s.AddUser(ctx, revokedPrefix+"older"); err != nil { // as its marker was
		t.Fatal(err)
	}
	const no, unknown, still, never = "", "no node and no etcd user named %s", "node %s is still the Node that was revoked", "no node named %s is revoked"
	for i, step := range []struct {
		node, uid string // of the Node that there is
		undo      bool
		err       string
		admits    bool // afterwards
	}{
		{"nobody", "", false, unknown, true},
		{"nobody", "", true, never, true},
		{"n", "", false, unknown, true},
		{"n1", "a", true, never, true},
		{"n1", "a", false, no, false},
		{"n1", "a", true, still, false},
		{"n1", "b", false, no, false}, // again, and the Node has been made anew
		{"n1", "b", true, still, false},
		{"n1", "a", true, still, false},
		{"n1", "c", true, no, true},
		{"n11", "a", true, never, true},
		{"new", "a", false, no, false}, // its agent has yet to ask
		{"new", "", true, no, true},
		{"gone", "", false, no, false},
		{"gone", "a2", true, no, true},
		{"older", "a", true, still, false},
		{"older", "", true, no, true},
	} {
		err := revoke(ctx, s, step.node, step.uid, step.undo)
		want := strings.ReplaceAll(step.err, "%s", step.node)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("step %d, %+v: %v", i, step, err)
		}
		if step.err == unknown || step.err == never {
			if markers, err := s.Users(ctx, revokedPrefix+step.node); err != nil || revoked(markers)[step.node] != nil {
				t.Errorf("step %d leaves %v, %v", i, markers, err)
			}
		}
		uid := step.uid
		if uid == "" {
			uid = "next"
		}
		if got := admitted(step.node, uid); got != step.admits {
			t.Errorf("step %d, %+v: the node is admitted: %v", i, step, got)
		}
		if !admitted("n11", "a") {
			t.Errorf("step %d: n11 isn't admitted", i)
		}
	}
}
