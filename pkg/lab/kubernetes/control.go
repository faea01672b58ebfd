// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed" // the audit policy
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/pki"
	"github.com/calico-go/calico/pkg/lab/ports"
)

// serviceCIDR has the addresses of services; the first is the API server's.
const serviceCIDR, apiService = "10.96.0.0/16", "10.96.0.1"

//go:embed config/audit.yaml
var auditPolicy string

// A Plane is a control plane: an API server with its own etcd, and more in a cluster. Any failure fails the test.
type Plane struct {
	// URL is the API server's URL.
	URL string
	// Kubeconfig is a file with the rights of system:masters.
	Kubeconfig string

	tb        *current
	dir, bin  string
	enter     []string // a command that enters a network namespace, put before each program
	etcd      *process
	apiserver *process
	client    *http.Client
}

// address has a plane's host, and the host:port of its programs.
type address struct {
	host, api, etcd, peer string
	flags                 []string
}

// Control starts an API server and its etcd on the loopback address, without controllers: pods are mere objects,
// without a service account, and a deleted namespace stays. It takes a few seconds, and ends with the test.
func Control(tb testing.TB) *Plane {
	tb.Helper()
	free := ports.Free(tb, 3)
	p := newPlane(tb, nil)
	p.start(address{host: "127.0.0.1", api: free[0], etcd: free[1], peer: free[2], flags: []string{
		"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount",
	}})
	return p
}

// newPlane makes the directory, in memory and with a short name.
func newPlane(tb testing.TB, enter []string) *Plane {
	tb.Helper()
	bin := Bin(tb)
	dir, err := os.MkdirTemp("/run", "kubernetes")
	if err != nil {
		tb.Fatalf("make a folder (run the test by bin/tools/isolate): %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // whatever a mount still holds is removed along with it
	return &Plane{tb: &current{tb, tb}, dir: dir, bin: bin, enter: enter}
}

// file returns the path of a file in the plane's directory.
func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }

func (p *Plane) write(name, text string) string {
	p.tb.Helper()
	path := p.file(name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.tb.Fatal(err)
	}
	return path
}

// program returns one of the plane's programs, not yet started.
func (p *Plane) program(name string, args ...string) *process {
	argv := append(append([]string{}, p.enter...), filepath.Join(p.bin, name))
	return &process{tb: p.tb, name: name, argv: append(argv, args...), log: p.file(name + ".log")}
}

// users returns the users with a token, and their groups. The token is the name with dashes for colons.
func users(nodes ...string) map[string]string {
	all := map[string]string{
		"admin": "system:masters", "system:kube-controller-manager": "", "system:kube-scheduler": "", "system:kube-proxy": "",
	}
	for _, n := range nodes {
		all["system:node:"+n] = "system:nodes"
	}
	return all
}

func token(user string) string { return strings.ReplaceAll(user, ":", "-") }

func (p *Plane) start(at address) {
	p.tb.Helper()
	p.URL = "https://" + at.api
	p.certificates(at.host)
	var tokens strings.Builder
	for user, group := range users(nodeNames...) {
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token(user), user, user, group)
	}
	p.Kubeconfig = p.kubeconfig("admin", "")
	p.etcd = p.program("etcd", "--data-dir="+p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://"+at.etcd, "--advertise-client-urls=http://"+at.etcd,
		"--listen-peer-urls=http://"+at.peer, "--initial-advertise-peer-urls=http://"+at.peer, "--initial-cluster=default=http://"+at.peer)
	p.etcd.start()
	_, port, err := net.SplitHostPort(at.api)
	if err != nil {
		p.tb.Fatal(err)
	}
	p.apiserver = p.program("kube-apiserver", append([]string{
		"--etcd-servers=http://" + at.etcd, "--bind-address=" + at.host, "--advertise-address=" + at.host, "--secure-port=" + port,
		"--tls-cert-file=" + p.file("apiserver.crt"), "--tls-private-key-file=" + p.file("apiserver.key"),
		"--token-auth-file=" + p.write("tokens.csv", tokens.String()), "--authorization-mode=Node,RBAC", "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=" + serviceCIDR,
		"--service-account-key-file=" + p.file("accounts.key"), "--service-account-signing-key-file=" + p.file("accounts.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file=" + p.write("audit.yaml", auditPolicy), "--audit-log-path=" + p.file("audit.log"),
	}, at.flags...)...)
	p.apiserver.start()
	p.awaitAPI()
}

// certificates makes the cluster's authority, the API server's certificate, and the key for service accounts' tokens.
func (p *Plane) certificates(host string) {
	p.tb.Helper()
	ca, err := pki.NewAuthority(p.dir, "ca", "kubernetes")
	if err != nil {
		p.tb.Fatal(err)
	}
	err = ca.Issue(p.dir, "apiserver", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(host), net.ParseIP(apiService), net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		p.tb.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.tb.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.tb.Fatal(err)
	}
	p.write("accounts.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	pool := x509.NewCertPool()
	data, err := os.ReadFile(p.file("ca.crt"))
	if err != nil {
		p.tb.Fatal(err)
	}
	pool.AppendCertsFromPEM(data)
	p.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}
}

// KubeconfigAs writes a kubeconfig that impersonates a user, such as system:serviceaccount:kube-system:calico-node,
// with that user's rights. extra are key=value pairs, as in tokens of pods.
func (p *Plane) KubeconfigAs(user string, extra ...string) string {
	p.tb.Helper()
	return p.kubeconfig("admin", user, extra...)
}

// kubeconfig writes a kubeconfig for a user with a token, impersonating another unless as is empty.
func (p *Plane) kubeconfig(user, as string, extra ...string) string {
	p.tb.Helper()
	name := token(user + as + strings.ReplaceAll(strings.Join(extra, ""), "/", "-"))
	if as != "" {
		as = fmt.Sprintf(", as: %q", as)
	}
	if len(extra) > 0 {
		as += ", as-user-extra: {"
		for _, e := range extra {
			key, value, _ := strings.Cut(e, "=")
			as += fmt.Sprintf("%q: [%q], ", key, value)
		}
		as += "}"
	}
	return p.write("kubeconfig-"+name, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: user, user: {token: %q%s}}]
contexts: [{name: test, context: {cluster: test, user: user}}]
current-context: test
`, p.URL, p.file("ca.crt"), token(user), as))
}

// awaitAPI waits until the API server is ready and has created its own namespaces.
func (p *Plane) awaitAPI() {
	p.tb.Helper()
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"} {
		eventually.Within(p.tb, Patience, "the API server to answer "+path, func() error {
			for _, p := range []*process{p.etcd, p.apiserver} {
				if err := p.running(); err != nil {
					return err
				}
			}
			return p.get(path)
		})
	}
}

func (p *Plane) get(path string) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, p.URL+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token("admin"))
	reply, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }() // read
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, reply.Status, text)
	}
	return err
}

// KillAPI ends the API server at once; StartAPI starts it again.
func (p *Plane) KillAPI() { p.apiserver.kill() }

// StopAPI ends the API server gracefully; StartAPI starts it again.
func (p *Plane) StopAPI() { p.apiserver.stop() }

// StartAPI starts the API server and waits until it serves.
func (p *Plane) StartAPI() {
	p.tb.Helper()
	p.apiserver.start()
	p.awaitAPI()
}

// Audit returns the API server's audit log: one JSON object per line, without administrators' requests.
func (p *Plane) Audit() string {
	p.tb.Helper()
	data, err := os.ReadFile(p.file("audit.log"))
	if err != nil {
		p.tb.Fatal(err)
	}
	return string(data)
}
