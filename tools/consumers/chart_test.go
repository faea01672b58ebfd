// SPDX-License-Identifier: Apache-2.0

// Package consumers tests the files of k8s-manifests, and what documents have for them, with the libraries of the programs that read them:
// Helm, Prometheus and, for Flux, CEL. It is a module of its own, so that their requirements choose the versions of nothing that is shipped.
package consumers

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const manifests = "../../k8s-manifests/"

// render renders the chart with values, as YAML.
func render(values string) (map[string]any, error) {
	chart, err := loader.LoadDir(manifests + "chart")
	if err != nil {
		return nil, err
	}
	var set map[string]any
	if err := yaml.Unmarshal([]byte(values), &set); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(chart, set, common.ReleaseOptions{Name: "calico", Namespace: "kube-system", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			text.WriteString("\n---\n" + files[name])
		}
	}
	return objects(text.String())
}

// objects decodes a file of objects, by kind and name.
func objects(text string) (map[string]any, error) {
	all := map[string]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if o == nil {
			continue // comments
		}
		id := fmt.Sprintf("%v %v", o["kind"], o["metadata"].(map[string]any)["name"])
		if all[id] != nil {
			return nil, fmt.Errorf("%s is there twice", id)
		}
		all[id] = o
	}
	return all, nil
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// suffix is what a chart's Job has besides, by the values.
var suffix = regexp.MustCompile(`^(Job calico-bootstrap-[0-9-]+)-[0-9a-f]{8}$`)

// TestChart: the chart's objects are those of the manifests, but that it keeps what must outlive it, and that its Job has a name of its own.
func TestChart(t *testing.T) {
	for _, test := range []struct{ values, file string }{
		{"", "calico.yaml"},
		{`etcd: {endpoints: "http://<ETCD_IP>:2379"}`, "calico-etcd.yaml"},
	} {
		got, err := render(test.values)
		if err != nil {
			t.Fatalf("%s: %v", test.file, err)
		}
		want, err := objects(read(t, manifests+test.file))
		if err != nil {
			t.Fatal(err)
		}
		for id, o := range want {
			metadata := o.(map[string]any)["metadata"].(map[string]any)
			if id == "Secret calico-etcd-ca" || id == "ConfigMap calico-etcd" || strings.HasPrefix(id, "CustomResourceDefinition ") {
				if metadata["annotations"] == nil {
					metadata["annotations"] = map[string]any{}
				}
				metadata["annotations"].(map[string]any)["helm.sh/resource-policy"] = "keep"
			}
		}
		jobs := 0
		for id, o := range got {
			if m := suffix.FindStringSubmatch(id); m != nil {
				jobs++
				_, o.(map[string]any)["metadata"].(map[string]any)["name"], _ = strings.Cut(m[1], " ")
				got[m[1]] = o
				delete(got, id)
			}
		}
		if diff := cmp.Diff(want, got); jobs != 1 || diff != "" {
			t.Errorf("%s: %d Jobs with a name of their own, want 1; objects (-manifest +chart):\n%s", test.file, jobs, diff)
		}
	}
}

// TestVersion: the chart has the release of the Makefile, and so its images have it.
func TestVersion(t *testing.T) {
	release := regexp.MustCompile(`(?m)^RELEASE +:= ([0-9.]+)`).FindStringSubmatch(read(t, "../../Makefile"))
	chart, err := loader.LoadDir(manifests + "chart")
	if err != nil || release == nil {
		t.Fatalf("release %q: %v", release, err)
	}
	if m := chart.Metadata; m.Version != release[1] || m.AppVersion != release[1] {
		t.Errorf("Chart.yaml has version %s and appVersion %s, want %s", m.Version, m.AppVersion, release[1])
	}
}

// TestValuesDocumented compares values.yaml with the table of docs/kubernetes.md.
func TestValuesDocumented(t *testing.T) {
	chart, err := loader.LoadDir(manifests + "chart")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	flat("", chart.Values, func(line string) { want = append(want, strings.TrimPrefix(line, ".")) })
	_, table, _ := strings.Cut(read(t, "../../docs/kubernetes.md"), "| value | default | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	code := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`.*`"+`) \| (`+"`.*?`"+`) \|`).FindAllStringSubmatch(table, -1) {
		defaults := code.FindAllStringSubmatch(row[2], -1)
		for i, name := range code.FindAllStringSubmatch(row[1], -1) {
			got = append(got, name[1]+"="+strings.Trim(defaults[min(i, len(defaults)-1)][1], `"`))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values.yaml (-) and docs/kubernetes.md (+):\n%s", diff)
	}
}

// flat are the fields of objects, one a line. Elements of lists that have names are called by them.
func flat(path string, v any, add func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			flat(path+"."+key, value, add)
		}
		if len(v) == 0 {
			add(path + "={}")
		}
	case []any:
		for i, value := range v {
			name := fmt.Sprint(i)
			if m, ok := value.(map[string]any); ok && m["name"] != nil {
				name = fmt.Sprint(m["name"])
			}
			flat(path+"["+name+"]", value, add)
		}
		if len(v) == 0 {
			add(path + "=[]")
		}
	default:
		add(fmt.Sprintf("%s=%v", path, v))
	}
}

func fields(t *testing.T, values string) map[string]bool {
	t.Helper()
	all, err := render(values)
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	lines := map[string]bool{}
	for id, o := range all {
		if m := suffix.FindStringSubmatch(id); m != nil {
			id = m[1]
			delete(o.(map[string]any)["metadata"].(map[string]any), "name")
		}
		flat(id, o, func(line string) { lines[line] = true })
	}
	return lines
}

// changes are the lines that values add (+) to what the chart has by default, and take (-) from it.
func changes(t *testing.T, before map[string]bool, values string) (diff []string) {
	t.Helper()
	after := fields(t, values)
	for line := range after {
		if !before[line] {
			diff = append(diff, "+"+line)
		}
	}
	for line := range before {
		if !after[line] {
			diff = append(diff, "-"+line)
		}
	}
	slices.Sort(diff)
	return diff
}

// TestValues: each value changes what it says, and nothing else.
func TestValues(t *testing.T) {
	const (
		pool        = "ConfigMap calico-bootstrap.data."
		node        = "DaemonSet calico-node.spec.template.spec."
		controllers = "Deployment calico-controllers.spec.template.spec."
		job         = "Job calico-bootstrap-0-1-0.spec.template.spec."
		none        = ""
		external    = "etcd: {endpoints: 'https://a:2379,https://b:2379'"
	)
	for _, test := range []struct {
		base, values string
		want         []string
	}{
		{none, "pools: {create: false}", []string{"+" + pool + "NO_DEFAULT_POOLS=true", "-" + pool + "NO_DEFAULT_POOLS=false"}},
		{none, "pools: {ipv4: {cidr: 10.1.0.0/16, encapsulation: IPIP, blockSize: 28, natOutgoing: false}}", []string{
			"+" + pool + "CALICO_IPV4POOL_BLOCK_SIZE=28", "+" + pool + "CALICO_IPV4POOL_CIDR=10.1.0.0/16",
			"+" + pool + "CALICO_IPV4POOL_ENCAPSULATION=IPIP", "+" + pool + "CALICO_IPV4POOL_NAT_OUTGOING=false",
			"-" + pool + "CALICO_IPV4POOL_BLOCK_SIZE=0", "-" + pool + "CALICO_IPV4POOL_CIDR=",
			"-" + pool + "CALICO_IPV4POOL_ENCAPSULATION=VXLANCrossSubnet", "-" + pool + "CALICO_IPV4POOL_NAT_OUTGOING=true",
		}},
		{none, "pools: {ipv6: {cidr: 'fd00::/48', encapsulation: None, blockSize: 120, natOutgoing: false}}", []string{
			"+" + pool + "CALICO_IPV6POOL_BLOCK_SIZE=120", "+" + pool + "CALICO_IPV6POOL_CIDR=fd00::/48",
			"+" + pool + "CALICO_IPV6POOL_ENCAPSULATION=None", "+" + pool + "CALICO_IPV6POOL_NAT_OUTGOING=false",
			"-" + pool + "CALICO_IPV6POOL_BLOCK_SIZE=0", "-" + pool + "CALICO_IPV6POOL_CIDR=",
			"-" + pool + "CALICO_IPV6POOL_ENCAPSULATION=VXLANCrossSubnet", "-" + pool + "CALICO_IPV6POOL_NAT_OUTGOING=true",
		}},
		{none, "etcd: {members: 3}", []string{
			"+" + job + "containers[bootstrap].env[ETCD_MEMBERS].name=ETCD_MEMBERS", "+" + job + "containers[bootstrap].env[ETCD_MEMBERS].value=3",
			"+PodDisruptionBudget calico-etcd.apiVersion=policy/v1", "+PodDisruptionBudget calico-etcd.kind=PodDisruptionBudget",
			"+PodDisruptionBudget calico-etcd.metadata.name=calico-etcd", "+PodDisruptionBudget calico-etcd.metadata.namespace=kube-system",
			"+PodDisruptionBudget calico-etcd.spec.maxUnavailable=1", "+PodDisruptionBudget calico-etcd.spec.selector.matchLabels.k8s-app=calico-etcd",
			"+StatefulSet calico-etcd.spec.replicas=3", "-StatefulSet calico-etcd.spec.replicas=1",
		}},
		{external + "}", external + ", secretName: mine}", []string{
			"+ConfigMap calico-config.data.etcd_ca=/calico-secrets/etcd-ca", "+ConfigMap calico-config.data.etcd_cert=/calico-secrets/etcd-cert",
			"+ConfigMap calico-config.data.etcd_key=/calico-secrets/etcd-key",
			"+" + node + "volumes[etcd-certs].secret.secretName=mine", "+" + controllers + "volumes[etcd-certs].secret.secretName=mine",
			"+" + job + "volumes[etcd-certs].secret.secretName=mine",
			"-ConfigMap calico-config.data.etcd_ca=", "-ConfigMap calico-config.data.etcd_cert=", "-ConfigMap calico-config.data.etcd_key=",
			"-" + node + "volumes[etcd-certs].secret.secretName=calico-etcd-secrets", "-" + controllers + "volumes[etcd-certs].secret.secretName=calico-etcd-secrets",
			"-" + job + "volumes[etcd-certs].secret.secretName=calico-etcd-secrets",
			"-Secret calico-etcd-secrets.apiVersion=v1", "-Secret calico-etcd-secrets.data={}", "-Secret calico-etcd-secrets.kind=Secret",
			"-Secret calico-etcd-secrets.metadata.name=calico-etcd-secrets", "-Secret calico-etcd-secrets.metadata.namespace=kube-system",
			"-Secret calico-etcd-secrets.type=Opaque",
		}},
		{none, "hostProtection: true", []string{
			"+" + node + "containers[calico-node].env[FELIX_FAILSAFEINBOUNDHOSTPORTS].name=FELIX_FAILSAFEINBOUNDHOSTPORTS",
			"+" + node + "containers[calico-node].env[FELIX_FAILSAFEINBOUNDHOSTPORTS].value=tcp:22,udp:68,udp:546,tcp:179,tcp:2379,tcp:2380,tcp:6443,tcp:10250",
			"+" + controllers + "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=node-role.kubernetes.io/control-plane",
			"+" + controllers + "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists",
			"+" + controllers + "containers[calico-controllers].env[PROTECTED_HOST_PORTS].name=PROTECTED_HOST_PORTS",
			"+" + controllers + "containers[calico-controllers].env[PROTECTED_HOST_PORTS].value=2479,2480,9091,9094",
			"+" + controllers + "nodeSelector.projectcalico.org/etcd=member",
		}},
		{none, "images: {pullSecrets: [{name: registry}]}", []string{
			"+CronJob calico-etcd-maintenance.spec.jobTemplate.spec.template.spec.imagePullSecrets[registry].name=registry",
			"+" + node + "imagePullSecrets[registry].name=registry", "+" + controllers + "imagePullSecrets[registry].name=registry",
			"+Deployment calico-etcd-signer.spec.template.spec.imagePullSecrets[registry].name=registry",
			"+" + job + "imagePullSecrets[registry].name=registry", "+StatefulSet calico-etcd.spec.template.spec.imagePullSecrets[registry].name=registry",
		}},
		{none, "pods: {calico-node: {resources: {calico-node: {requests: {cpu: 1}, limits: {memory: 2Gi}}, install: {limits: {memory: 100Mi}}}}}", []string{
			"+" + node + "containers[calico-node].env[GOMEMLIMIT].value=1843MiB", "+" + node + "containers[calico-node].resources.limits.memory=2Gi",
			"+" + node + "containers[calico-node].resources.requests.cpu=1",
			"+" + node + "initContainers[install].env[GOMEMLIMIT].value=90MiB", "+" + node + "initContainers[install].resources.limits.memory=100Mi",
			"-" + node + "containers[calico-node].env[GOMEMLIMIT].value=921MiB", "-" + node + "containers[calico-node].resources.limits.memory=1Gi",
			"-" + node + "containers[calico-node].resources.requests.cpu=100m",
			"-" + node + "initContainers[install].env[GOMEMLIMIT].value=230MiB", "-" + node + "initContainers[install].resources.limits.memory=256Mi",
		}},
		{none, "pods: {calico-controllers: {nodeSelector: {pool: system}, tolerations: [{key: system, operator: Exists}]}}", []string{
			"+" + controllers + "nodeSelector.pool=system", "+" + controllers + "tolerations[4].key=system", "+" + controllers + "tolerations[4].operator=Exists",
		}},
		{none, "pods: {calico-etcd: {nodeSelector: {projectcalico.org/etcd: none}}}", nil}, // a member's data is on its node
	} {
		got, want := changes(t, fields(t, test.base), test.values), slices.Sorted(slices.Values(test.want))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.values, diff)
		}
	}
	// What pods of two families need is in the text of the network configuration as well.
	got := strings.Join(changes(t, fields(t, none), "dualStack: true"), "\n")
	if !strings.Contains(got, "+"+node+"containers[calico-node].env[IP6].value=autodetect") || strings.Count(got, `"ipam": {"type": "calico-ipam", "assign_ipv6": "true"},`) != 1 {
		t.Errorf("dualStack:\n%s", got)
	}
}

// TestImages: every container has the images that the values name.
func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for _, test := range []struct{ values, calico, etcd, policy string }{
		{"", "calico/calico:0.1.0", "calico/etcd:0.1.0", "IfNotPresent"},
		{"images: {registry: registry.test/mirror, pullPolicy: Always}", "registry.test/mirror/calico/calico:0.1.0", "registry.test/mirror/calico/etcd:0.1.0", "Always"},
		{"images: {calico: {repository: net/calico, tag: dev}, etcd: {digest: '" + digest + "', tag: dev}}", "net/calico:dev", "calico/etcd@" + digest, "IfNotPresent"},
	} {
		images := map[string]int{}
		for line := range fields(t, test.values) {
			if path, value, _ := strings.Cut(line, "="); strings.HasSuffix(path, ".image") || strings.HasSuffix(path, ".imagePullPolicy") {
				images[value]++
			}
		}
		want := map[string]int{test.calico: 7, test.etcd: 1, test.policy: 8}
		if diff := cmp.Diff(want, images); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.values, diff)
		}
	}
}

// TestJob: the Job, which can't be changed, has another name with other values.
func TestJob(t *testing.T) {
	names := map[string]bool{}
	for _, values := range []string{"", "pools: {ipv4: {cidr: 10.1.0.0/16}}", "images: {registry: registry.test}"} {
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		for id := range all {
			if suffix.MatchString(id) {
				names[id] = true
			}
		}
	}
	if len(names) != 3 {
		t.Errorf("Jobs %v, want one for each", names)
	}
}

// TestBadValues: a value that makes no sense is refused, by its name.
func TestBadValues(t *testing.T) {
	for _, test := range []struct{ values, want string }{
		{"pool: {}", "'pool'"},
		{"pools: {ipv4: {cird: 10.0.0.0/8}}", "'cird'"},
		{"pools: {ipv4: {cidr: 10.0.0.0}}", "/pools/ipv4/cidr"},
		{"pools: {ipv4: {cidr: 'fd00::/48'}}", "/pools/ipv4/cidr"},
		{"pools: {ipv6: {cidr: 10.0.0.0/8}}", "/pools/ipv6/cidr"},
		{"pools: {ipv4: {encapsulation: vxlan}}", "/pools/ipv4/encapsulation"},
		{"pools: {ipv6: {encapsulation: IPIP}}", "/pools/ipv6/encapsulation"},
		{"pools: {ipv4: {blockSize: 16}}", "/pools/ipv4/blockSize"},
		{"pools: {ipv6: {blockSize: 64}}", "/pools/ipv6/blockSize"},
		{"pools: {ipv4: {natOutgoing: 'yes'}}", "/pools/ipv4/natOutgoing"},
		{"pools: {create: 1}", "/pools/create"},
		{"dualStack: both", "/dualStack"},
		{"etcd: {members: 2}", "/etcd/members"},
		{"etcd: {endpoints: 'a:2379'}", "/etcd/endpoints"},
		{"etcd: {endpoints: 'http://a:2379', members: 3}", "/etcd/members"},
		{"etcd: {secretName: mine}", "/etcd/secretName"},
		{"etcd: {endpoints: 'http://a:2379', secretName: A}", "/etcd/secretName"},
		{"{etcd: {endpoints: 'http://a:2379'}, hostProtection: true}", "/hostProtection"},
		{"images: {registry: registry.test/}", "/images/registry"},
		{"images: {calico: {repository: 'a:b'}}", "/images/calico/repository"},
		{"images: {etcd: {digest: 12ab}}", "/images/etcd/digest"},
		{"images: {pullPolicy: Sometimes}", "/images/pullPolicy"},
		{"images: {pullSecrets: [registry]}", "/images/pullSecrets/0"},
		{"pods: {calico-nodes: {}}", "'calico-nodes'"},
		{"pods: {calico-node: {replicas: 2}}", "'replicas'"},
		{"pods: {calico-node: {resources: {node: {}}}}", "'node'"},
		{"pods: {calico-node: {resources: {install: {limits: {memory: 1e9}}}}}", "/pods/calico-node/resources/install/limits/memory"},
		{"pods: {calico-node: {nodeSelector: {a: 1}}}", "/pods/calico-node/nodeSelector/a"},
		{"pods: {calico-node: {tolerations: {}}}", "/pods/calico-node/tolerations"},
	} {
		if _, err := render(test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s named", test.values, err, test.want)
		}
	}
}
