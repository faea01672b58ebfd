// SPDX-License-Identifier: Apache-2.0

//go:build e2ek8s

package kubernetes

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/nodecert"
	"github.com/calico-go/calico/pkg/store"
)

const (
	agentAccount = "system:serviceaccount:kube-system:calico-node"
	onNode       = "authentication.kubernetes.io/node-name="
	inPod        = "authentication.kubernetes.io/pod-name="
)

// own is an etcd as the manifest has it, and its signer, on the loopback address.
type own struct {
	*Plane
	t      *testing.T
	signer *process
}

// ownEtcd does what the manifest's Job, StatefulSet and Deployment do.
func ownEtcd(t *testing.T) own {
	o := own{Plane: Control(t), t: t}
	o.Kubectl("apply", "-f", filepath.Join(manifests, "calico.yaml"))
	o.node("n1", `{node-role.kubernetes.io/control-plane: ""}`)
	o.Kubectl("patch", "node", "n1", "--subresource=status", "-p", `{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}`)
	job := o.install("job", "bootstrap")
	var secret struct{ Data map[string]string }
	eventually.Within(t, Patience, "etcd's certificate", func() error {
		err := json.Unmarshal([]byte(o.Kubectl("get", "secret", "-n", kubeSystem, "calico-etcd-server", "-o", "json")), &secret)
		if err == nil && len(secret.Data) != 5 {
			err = errors.Join(errors.New("there is none"), job.running())
		}
		return err
	})
	for name, text := range secret.Data {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		o.write("own-"+name, string(data))
	}
	value := func(key string) string {
		return o.Kubectl("get", "configmap", "-n", kubeSystem, "calico-etcd", "-o", "go-template={{index .data \""+key+"\"}}")
	}
	cmd := exec.CommandContext(t.Context(), o.binary("calico-install"), "etcd", o.file("own.yaml"))
	cmd.Env = []string{"NODE_NAME=n1", "INITIAL_CLUSTER=" + value("initial-cluster"), "INITIAL_CLUSTER_TOKEN=" + value("initial-cluster-token")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config, err := os.ReadFile(o.file("own.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o.write("own.yaml", strings.NewReplacer("/certs/", o.file("own-"), "/var/lib/etcd/data", o.file("own-data")).Replace(string(config)))
	o.write("own-authority", value("etcd-ca"))
	etcd := o.program("etcd", "--config-file="+o.file("own.yaml"))
	etcd.log = o.file("own.log")
	etcd.start()
	eventually.Within(t, Patience, "the Job to end", func() error {
		if job.running() == nil {
			return errors.Join(errors.New("it runs"), etcd.running())
		}
		return nil
	})
	if !job.cmd.ProcessState.Success() {
		t.Fatal(job.running())
	}
	o.signer = o.install("signer", "bootstrap", "sign")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(o.signer.tail(50))
		}
	})
	return o
}

func (o own) binary(name string) string { return filepath.Join(root(o.t), "bin", name) }

// install starts calico-install with bootstrap's rights.
func (o own) install(name string, args ...string) *process {
	o.t.Helper()
	p := &process{tb: o.t, name: name, argv: append([]string{o.binary("calico-install")}, args...), log: o.file(name + ".log"), env: []string{"KUBECONFIG=" + o.KubeconfigAs(bootstrapAccount)}}
	p.start()
	return p
}

// do runs calico-install to its end.
func (o own) do(args ...string) {
	o.t.Helper()
	if out, err := o.try(args...); err != nil {
		o.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

func (o own) try(args ...string) (string, error) {
	cmd := exec.CommandContext(o.t.Context(), o.binary("calico-install"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+o.KubeconfigAs(bootstrapAccount))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// root connects as etcd's administrator.
func (o own) root() *store.Client {
	o.t.Helper()
	for name, field := range map[string]string{"authority.pem": `tls\.crt`, "authority.key": `tls\.key`} {
		text, err := base64.StdEncoding.DecodeString(o.Kubectl("get", "secret", "-n", kubeSystem, "calico-etcd-ca", "-o", "jsonpath={.data."+field+"}"))
		if err != nil {
			o.t.Fatal(err)
		}
		o.write(name, string(text))
	}
	o.request("root")
	out, err := exec.Command("openssl", "x509", "-req", "-in", o.file("by-hand.csr"), "-CA", o.file("authority.pem"), "-CAkey", o.file("authority.key"), "-CAcreateserial").Output()
	if err != nil {
		o.t.Fatal(err)
	}
	key, err := os.ReadFile(o.file("by-hand.key"))
	if err != nil {
		o.t.Fatal(err)
	}
	o.write("root.pem", string(key)+string(out))
	return o.etcd("root.pem")
}

func (o own) node(name, labels string) {
	o.Apply("{apiVersion: v1, kind: Node, metadata: {name: " + name + ", labels: " + labels + "}}\n")
}

// certificate asks for one as an agent of a node does, by what its token says.
func (o own) certificate(node, file string, says ...string) {
	o.t.Helper()
	client, err := kube.New(kube.Config{Kubeconfig: o.KubeconfigAs(agentAccount, says...), Name: "calico-node"})
	if err != nil {
		o.t.Fatal(err)
	}
	defer client.Close()
	log := slog.New(slog.NewTextHandler(o.t.Output(), nil))
	k := nodecert.New(nodecert.Config{Node: node, File: o.file(file), Kube: client, Problems: problems.New(log), Logger: log})
	if err := k.Ensure(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// etcd connects with a node's certificate.
func (o own) etcd(file string) *store.Client {
	o.t.Helper()
	client, err := store.Open(o.t.Context(), store.Config{Endpoints: []string{"https://127.0.0.1:2479"}, CAFile: o.file("own-authority"), CertFile: o.file(file), KeyFile: o.file(file)})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = client.Close() }) // everything was answered
	return client
}

func put(t *testing.T, etcd *store.Client, key model.Key, text string) error {
	_, err := etcd.Commit(t.Context(), model.Change{Puts: []model.Put{{Key: key, Value: model.Text(text)}}})
	return err
}

// TestSigner: each node gets a certificate of its own, writes what is its own and nothing else, and can be revoked.
func TestSigner(t *testing.T) {
	o := ownEtcd(t)
	o.node("n2", "{}")
	o.Apply("{apiVersion: v1, kind: Pod, metadata: {name: agent-2, namespace: kube-system}, spec: {nodeName: n2, serviceAccountName: calico-node, containers: [{name: a, image: none}]}}\n")
	o.certificate("n1", "n1.pem", onNode+"n1")
	o.certificate("n2", "n2.pem", inPod+"agent-2") // of an API server before 1.30
	one, two := o.etcd("n1.pem"), o.etcd("n2.pem")
	own := model.HostConfigKey{Host: "n1", Name: "LogSeverityScreen"}
	for key, want := range map[model.Key]bool{
		own: true,
		model.BGPHostKey{Host: "n1", Field: model.BGPHostAS}:      true,
		model.HostConfigKey{Host: "n2", Name: "InterfacePrefix"}:  false,
		model.HostConfigKey{Host: "n11", Name: "InterfacePrefix"}: false,
		model.BGPHostKey{Host: "n2", Field: model.BGPHostAS}:      false,
		model.GlobalConfigKey{Name: "InterfacePrefix"}:            false,
		model.GlobalConfigKey{Name: "ClusterGUID"}:                false,
	} {
		if err := put(t, one, key, "1"); (err == nil) != want || err != nil && !errors.Is(err, store.ErrDenied) {
			t.Errorf("n1 writes %s: %v, want allowed %v", key.Path(), err, want)
		}
	}
	for key, want := range map[model.Key]bool{
		model.HostMetadataKey{Host: "n2"}: false, model.StatusKey{Host: "n2"}: false, model.StatusKey{Host: "n1"}: true,
		model.WorkloadEndpointKey{Host: "n2", Orchestrator: "k8s", Workload: "a.b", Endpoint: "eth0"}: false, model.IPAMConfigKey{}: false,
		model.ReadyKey{}: false, model.HandleKey{ID: "none"}: true,
	} {
		if _, err := one.Commit(t.Context(), model.Change{Deletes: []model.Key{key}}); (err == nil) != want || err != nil && !errors.Is(err, store.ErrDenied) {
			t.Errorf("n1 deletes %s: %v, want allowed %v", key.Path(), err, want)
		}
	}
	if err := put(t, two, model.HostConfigKey{Host: "n2", Name: "LogSeverityScreen"}, "INFO"); err != nil {
		t.Error(err)
	}

	// Another certificate for the same node: connections that are there go on, and others are made with it.
	if err := os.Remove(o.file("n1.pem")); err != nil {
		t.Fatal(err)
	}
	o.certificate("n1", "n1.pem", onNode+"n1")
	for _, etcd := range []*store.Client{one, o.etcd("n1.pem")} {
		if err := put(t, etcd, own, "INFO"); err != nil {
			t.Error(err)
		}
	}

	// Who isn't an agent, or doesn't say where it runs, gets none.
	for name, as := range map[string]string{"admin": o.Kubeconfig, "nowhere": o.KubeconfigAs(agentAccount), "gone": o.KubeconfigAs(agentAccount, onNode+"n3")} {
		csr := o.request(name)
		if out, err := o.TryKubectl(csr, "--kubeconfig", as, "create", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		o.Eventually(name+" to be denied", func(out string) error {
			if out != "Denied" {
				return fmt.Errorf("it is %q", out)
			}
			return nil
		}, "get", "csr", name, "-o", "jsonpath={.status.conditions[*].type}{.status.certificate}")
	}

	// Nor do the requests of anything with an agent's token end the signer.
	agent, err := kube.New(kube.Config{Kubeconfig: o.KubeconfigAs(agentAccount, onNode+"n1"), Name: "calico-node"})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	csr, err := os.ReadFile(o.file("by-hand.csr"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		_, err := kube.Create(t.Context(), agent, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: nodecert.Signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
				Request: append(csr, bytes.Repeat([]byte("x"), 970_000)...),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	o.Eventually("large requests to be denied", func(out string) error {
		if n := strings.Count(out, "it has 97"); n != 60 {
			return fmt.Errorf("%d are: %s", n, out)
		}
		return nil
	}, "get", "csr", "-o", "jsonpath={.items[*].status.conditions[*].message}")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.signer.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var peak int
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &peak); err != nil || peak > 128<<10 {
		t.Errorf("the signer has had %d KiB, %v", peak, err)
	}

	// A node that is revoked: writes and reads end, by connections that are there too, and it gets no other certificate.
	o.do("revoke", "n1")
	eventually.Within(t, Patience, "n1 to be refused", func() error {
		if err := put(t, one, own, "2"); !errors.Is(err, store.ErrDenied) {
			return fmt.Errorf("it writes: %w", err)
		}
		if _, err := one.Read(t.Context(), model.KeyRange(own)); !errors.Is(err, store.ErrDenied) {
			return fmt.Errorf("it reads: %w", err)
		}
		return nil
	})
	denied := func(request string) {
		t.Helper()
		if out, err := o.TryKubectl(o.request(request), "--kubeconfig", o.KubeconfigAs(agentAccount, onNode+"n1"), "create", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		o.Eventually("n1 to get no other certificate", func(out string) error {
			if !strings.Contains(out, "node n1 is revoked") {
				return errors.New(out)
			}
			return nil
		}, "get", "csr", request, "-o", "jsonpath={.status.conditions[*].message}")
	}
	denied("again")

	// While its Node is that one, the certificate would be good again.
	if out, err := o.try("revoke", "-undo", "n1"); err == nil || !strings.Contains(out, "delete the Node first") {
		t.Errorf("what a Node was revoked for is undone: %v: %s", err, out)
	}
	if out, err := o.try("revoke", "n"); err == nil || !strings.Contains(out, "no node and no etcd user named n: see kubectl get nodes") {
		t.Errorf("a node that there isn't is revoked: %v: %s", err, out)
	}

	// It stays revoked when its kubelet, whose credentials it has as well, makes its Node anew, whatever the signer makes users for.
	root := o.root()
	o.Kubectl("delete", "node", "n1")
	o.node("n1", `{node-role.kubernetes.io/control-plane: ""}`)
	o.node("n4", "{}") // it doesn't ask: its etcd may be another one than it was
	eventually.Within(t, 2*Patience, "n4 to have a user, and n1 none", func() error {
		users, err := root.Users(t.Context(), "node:")
		if text := fmt.Sprint(users); err != nil || !strings.Contains(text, "node:n4:") || strings.Contains(text, "node:n1:") {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	})
	denied("of-another-uid")
	o.do("revoke", "-undo", "n1")
	o.certificate("n1", "n1.pem", onNode+"n1") // in place of the former Node's
	if err := put(t, o.etcd("n1.pem"), own, "3"); err != nil {
		t.Error(err)
	}
	if err := put(t, one, own, "4"); !errors.Is(err, store.ErrDenied) {
		t.Errorf("by the certificate of the former Node: %v", err)
	}

	// With its Node goes its user; a Node of the same name is another.
	o.Kubectl("delete", "node", "n2")
	eventually.Within(t, 2*Patience, "n2 to be refused", func() error {
		if _, err := two.Read(t.Context(), model.KeyRange(own)); !errors.Is(err, store.ErrDenied) {
			return fmt.Errorf("it reads: %w", err)
		}
		return nil
	})
	o.node("n2", "{}")
	o.certificate("n2", "n2-new.pem", onNode+"n2")
	if err := put(t, o.etcd("n2-new.pem"), model.HostConfigKey{Host: "n2", Name: "LogSeverityScreen"}, "INFO"); err != nil {
		t.Error(err)
	}
	if _, err := two.Read(t.Context(), model.KeyRange(own)); !errors.Is(err, store.ErrDenied) {
		t.Errorf("the former n2 reads: %v", err)
	}

	// While there are certificates that all nodes shared, no node is revoked for good, which revoke says.
	if err := root.SetUser(t.Context(), store.User{Name: "cni", Write: []string{model.Root}}); err != nil {
		t.Fatal(err)
	}
	if out, err := o.try("revoke", "n4"); err == nil || !strings.Contains(out, "end these by calico-install revoke -shared") {
		t.Errorf("a node that may have shared certificates is revoked: %v: %s", err, out)
	}
	o.do("revoke", "-shared")

	// A Job of the document's does it, too.
	document, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile(`(?m)^ *kubectl .* create job revoke [^` + "`" + `]*`).FindString(string(document))
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(script, "NODE", "n4"))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+o.Kubeconfig, "PATH="+o.bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s: %s", err, script, out)
	}
	var does []string
	if err := json.Unmarshal([]byte(o.Kubectl("get", "job", "-n", kubeSystem, "revoke", "-o", "jsonpath={.spec.template.spec.containers[0].command}")), &does); err != nil || does[0] != "/calico-install" {
		t.Fatal(does, err)
	}
	o.do(does[1:]...)
	users, err := root.Users(t.Context(), "")
	if text := fmt.Sprint(users); err != nil || strings.Contains(text, "cni") || strings.Contains(text, "node:n4:") || !strings.Contains(text, "revoked:n4:") {
		t.Errorf("users %s, %v", text, err)
	}
}

// request is one by hand.
func (o own) request(name string) string {
	o.t.Helper()
	key, csr := o.file("by-hand.key"), o.file("by-hand.csr")
	if out, err := exec.Command("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=root", "-keyout", key, "-out", csr).CombinedOutput(); err != nil {
		o.t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(csr)
	if err != nil {
		o.t.Fatal(err)
	}
	return "{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: " + name + "}, spec: {signerName: " + nodecert.Signer +
		", usages: [digital signature, client auth], request: " + base64.StdEncoding.EncodeToString(text) + "}}\n"
}
