// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// The chart is what kustomize makes of the same sources, with template expressions in the place of some values. What is the same in all
// variants is there once, and what differs has the names of its variants. Chart.yaml, values and helpers are written by hand.

// A variant is one of the installations among which the chart's helper "calico.variant" chooses.
type variant struct {
	name, overlay string
	components    []string
}

var variants = []variant{
	{"own", "overlays/calico", nil},
	{"own-protected", "overlays/calico", []string{"components/host-protection"}},
	{"ha", "overlays/calico", []string{"components/ha"}},
	{"ha-protected", "overlays/calico", []string{"components/ha", "components/host-protection"}},
	{"external", "overlays/calico-etcd", nil},
}

// An object of the chart has a text for each variant that it is in.
type object struct {
	id    string
	texts []string // by variant, "" = not in it
}

// chart returns the chart's templates that are made, by their files.
func chart(dir string) (map[string][]byte, error) {
	var all []*object
	definitions := head("base") + "# Deleting the chart leaves these, and so what they define: policy, pools, peers.\n"
	for i, v := range variants {
		objects, err := v.build(dir)
		if err != nil {
			return nil, fmt.Errorf("chart, %s: %w", v.name, err)
		}
		for _, o := range objects {
			id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			text, err := template(o)
			if err != nil {
				return nil, fmt.Errorf("chart: %s: %w", id, err)
			}
			if o.GetKind() == "CustomResourceDefinition" {
				if i == 0 {
					definitions += text
				}
				continue
			}
			at := slices.IndexFunc(all, func(o *object) bool { return o.id == id })
			if at < 0 {
				at, all = len(all), append(all, &object{id, make([]string, len(variants))})
			}
			all[at].texts[i] = text
		}
	}
	rest := head("base and components") + `{{- $variant := include "calico.variant" . }}` + "\n"
	for _, o := range all {
		rest += o.String()
	}
	return map[string][]byte{"chart/templates/definitions.yaml": []byte(definitions), "chart/templates/calico.yaml": []byte(rest)}, nil
}

// build has kustomize make a variant, from a kustomization of its own where it has components.
func (v variant) build(dir string) ([]*yaml.RNode, error) {
	at := filepath.Join(dir, v.overlay)
	if len(v.components) > 0 {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if at, err = os.MkdirTemp("", "variant-"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(at) }()
		from, err := filepath.Rel(at, abs) // kustomize takes relative paths alone
		if err != nil {
			return nil, err
		}
		text := "sortOptions: {order: fifo}\nresources:\n- " + filepath.Join(from, v.overlay) + "\ncomponents:\n"
		for _, c := range v.components {
			text += "- " + filepath.Join(from, c) + "\n"
		}
		if err := os.WriteFile(filepath.Join(at, "kustomization.yaml"), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return build(at)
}

// String returns the object's texts, each within the condition of the variants that have it.
func (o *object) String() (all string) {
	for i, text := range o.texts {
		if text == "" || slices.Index(o.texts, text) < i {
			continue
		}
		var in []string
		for j, v := range variants {
			if o.texts[j] == text {
				in = append(in, strconv.Quote(v.name))
			}
		}
		if len(in) < len(variants) {
			text = "{{- if has $variant (list " + strings.Join(in, " ") + ") }}\n" + text + "{{- end }}\n"
		}
		all += text
	}
	return all
}

// marks stand in an object for template expressions until it is text.
type marks []string

func (m *marks) add(expression string) string {
	*m = append(*m, expression)
	return fmt.Sprintf("CHART-%d-", len(*m)-1)
}

// value stands for the JSON of an expression: it is YAML, whatever the indentation.
func (m *marks) value(expression string) *yaml.RNode {
	return yaml.NewStringRNode(m.add("{{ " + expression + " | toJson }}"))
}

var (
	mark     = regexp.MustCompile(`'?CHART-([0-9]+)-'?`)
	optional = regexp.MustCompile(`(?m)^( *)imagePullSecrets: .*\n`)
)

// text is the object as a template.
func (m marks) text(o *yaml.RNode) (string, error) {
	text, err := objectText(o)
	if err == nil && strings.Contains(text, "{{") {
		err = fmt.Errorf("%q begins a template's expression", "{{")
	}
	text = optional.ReplaceAllString(text, "{{- with .Values.images.pullSecrets }}\n${1}imagePullSecrets: {{ toJson . }}\n{{- end }}\n")
	return mark.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(mark.FindStringSubmatch(s)[1]) // digits
		return m[n]
	}), err
}

// settings are values of single fields, by the object and the path.
var settings = []struct {
	object     string
	path       []string
	expression string
}{
	{"ConfigMap calico-bootstrap", []string{"data", "NO_DEFAULT_POOLS"}, `not .Values.pools.create | toString`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV4POOL_CIDR"}, `.Values.pools.ipv4.cidr`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV6POOL_CIDR"}, `.Values.pools.ipv6.cidr`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV4POOL_ENCAPSULATION"}, `.Values.pools.ipv4.encapsulation`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV6POOL_ENCAPSULATION"}, `.Values.pools.ipv6.encapsulation`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV4POOL_BLOCK_SIZE"}, `int .Values.pools.ipv4.blockSize | toString`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV6POOL_BLOCK_SIZE"}, `int .Values.pools.ipv6.blockSize | toString`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV4POOL_NAT_OUTGOING"}, `.Values.pools.ipv4.natOutgoing | toString`},
	{"ConfigMap calico-bootstrap", []string{"data", "CALICO_IPV6POOL_NAT_OUTGOING"}, `.Values.pools.ipv6.natOutgoing | toString`},
	{"ConfigMap calico-config", []string{"data", "etcd_endpoints"}, `.Values.etcd.endpoints`},
	{"ConfigMap calico-config", []string{"data", "etcd_ca"}, `ternary "/calico-secrets/etcd-ca" "" (ne .Values.etcd.secretName "")`},
	{"ConfigMap calico-config", []string{"data", "etcd_cert"}, `ternary "/calico-secrets/etcd-cert" "" (ne .Values.etcd.secretName "")`},
	{"ConfigMap calico-config", []string{"data", "etcd_key"}, `ternary "/calico-secrets/etcd-key" "" (ne .Values.etcd.secretName "")`},
	{"DaemonSet calico-node", []string{"spec", "template", "spec", "containers", "[name=calico-node]", "env", "[name=IP6]", "value"}, `ternary "autodetect" "" .Values.dualStack`},
}

// etcdSecret is the Secret that calico-etcd.yaml has; the chart takes another.
const etcdSecret = "calico-etcd-secrets"

// template makes a template of an object.
func template(o *yaml.RNode) (string, error) {
	var m marks
	for _, s := range settings {
		if s.object != o.GetKind()+" "+o.GetName() {
			continue
		}
		if field, err := o.Pipe(yaml.Lookup(s.path...)); err != nil {
			return "", err
		} else if field != nil {
			field.SetYNode(m.value(s.expression).YNode())
		}
	}
	if pod := podSpec(o); pod != nil {
		if err := m.pod(pod, o.GetLabels()["k8s-app"]); err != nil {
			return "", err
		}
	}
	before, after := "", ""
	var err error
	switch kind, name := o.GetKind(), o.GetName(); {
	case kind == "Job": // it can't be changed: for other values there is another
		err = o.SetName(name + "-" + m.add("{{ .Values | toJson | sha256sum | trunc 8 }}"))
	case kind == "CustomResourceDefinition", o.GetAnnotations()["kustomize.toolkit.fluxcd.io/prune"] == "disabled":
		err = o.PipeE(yaml.SetAnnotation("helm.sh/resource-policy", "keep"))
	case kind == "Secret" && name == etcdSecret:
		before, after = "{{- if not .Values.etcd.secretName }}\n", "{{- end }}\n"
	case kind == "ConfigMap" && name == "calico-config":
		const ipam = `{"type": "calico-ipam"`
		data := o.GetDataMap()
		config := strings.Replace(data["cni_network_config"], ipam, ipam+m.add(`{{ if .Values.dualStack }}, "assign_ipv6": "true"{{ end }}`), 1)
		err = o.PipeE(yaml.Lookup("data", "cni_network_config"), yaml.FilterFunc(func(n *yaml.RNode) (*yaml.RNode, error) {
			n.YNode().Value = config
			return n, nil
		}))
	}
	if err != nil {
		return "", err
	}
	text, err := m.text(o)
	return before + text + after, err
}

// podSpec returns the pod that an object makes, nil if it makes none.
func podSpec(o *yaml.RNode) *yaml.RNode {
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec", "jobTemplate", "spec", "template", "spec"}} {
		if pod, err := o.Pipe(yaml.Lookup(path...)); err == nil && pod != nil {
			return pod
		}
	}
	return nil
}

// pod has the values of a pod added to what the sources say of it: they replace no node label and no toleration.
func (m *marks) pod(pod *yaml.RNode, app string) error {
	for _, f := range []struct{ field, expression string }{
		{"nodeSelector", "merge (fromJson `%s`) (dig %q \"nodeSelector\" (dict) .Values.pods)"},
		{"tolerations", "concat (fromJsonArray `%s`) (dig %q \"tolerations\" (list) .Values.pods)"},
	} {
		was := pod.Field(f.field)
		if was == nil {
			return fmt.Errorf("its pod has no %s", f.field)
		}
		json, err := was.Value.MarshalJSON()
		if err != nil {
			return err
		}
		was.Value.SetYNode(m.value(fmt.Sprintf(f.expression, strings.TrimSpace(string(json)), app)).YNode())
	}
	if err := pod.SetMapField(yaml.NewStringRNode("optional"), "imagePullSecrets"); err != nil {
		return err
	}
	secrets, err := pod.Pipe(yaml.Lookup("volumes"))
	if err != nil {
		return err
	}
	if secrets != nil {
		err = secrets.VisitElements(func(v *yaml.RNode) error {
			name, err := v.Pipe(yaml.Lookup("secret", "secretName"))
			if err == nil && name != nil && yaml.GetValue(name) == etcdSecret {
				name.SetYNode(m.value(fmt.Sprintf("default %q .Values.etcd.secretName", etcdSecret)).YNode())
			}
			return err
		})
	}
	for _, field := range []string{"initContainers", "containers"} {
		if containers := pod.Field(field); containers != nil && err == nil {
			err = containers.Value.VisitElements(func(c *yaml.RNode) error { return m.container(c, app) })
		}
	}
	return err
}

func (m *marks) container(c *yaml.RNode, app string) error {
	image, _, _ := strings.Cut(strings.TrimPrefix(yaml.GetValue(c.Field("image").Value), "calico/"), ":")
	json, err := c.Field("resources").Value.MarshalJSON()
	if err != nil {
		return err
	}
	resources := fmt.Sprintf("mergeOverwrite (fromJson `%s`) (dig %q \"resources\" %q (dict) .Values.pods)", strings.TrimSpace(string(json)), app, yaml.GetValue(c.Field("name").Value))
	limit, err := c.Pipe(yaml.Lookup("env", "[name=GOMEMLIMIT]", "value"))
	if err == nil && limit != nil {
		limit.SetYNode(m.value("include \"calico.goMemoryLimit\" (" + resources + ")").YNode())
	}
	for field, expression := range map[string]string{
		"image": fmt.Sprintf("include \"calico.image\" (list . %q)", image), "imagePullPolicy": ".Values.images.pullPolicy", "resources": resources,
	} {
		c.Field(field).Value.SetYNode(m.value(expression).YNode())
	}
	return err
}
