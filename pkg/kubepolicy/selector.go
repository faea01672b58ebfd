// SPDX-License-Identifier: Apache-2.0

package kubepolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/model"
)

const (
	// anyPod matches only pods, neither host endpoints nor anything outside.
	anyPod = "has(" + model.LabelNamespace + ")"
	nobody = model.LabelNamespace + " in {}"
	// knownNamespace is true once the labels of a pod's namespace are in etcd: the API server sets this label on every
	// namespace.
	knownNamespace = "has(" + namespaceLabels + corev1.LabelMetadataName + ")"
)

// excludes reports whether a selector requires labels to be absent, or not to have a value. A namespace whose profile
// isn't in etcd yet has no labels, so a rule that allows packets by such a selector must require knownNamespace too.
func excludes(s *metav1.LabelSelector) bool {
	return slices.ContainsFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return e.Operator == metav1.LabelSelectorOpNotIn || e.Operator == metav1.LabelSelectorOpDoesNotExist
	})
}

// knownPods returns the terms, besides those of a selector of namespaces, for pods that may be allowed.
func knownPods(namespaces *metav1.LabelSelector) []string {
	if excludes(namespaces) {
		return []string{anyPod, knownNamespace}
	}
	return []string{anyPod}
}

// inNamespace returns the selector of the pods in a namespace.
func inNamespace(name string) string {
	if len(content.IsDNS1123Label(name)) > 0 {
		return nobody
	}
	return model.LabelNamespace + ` == "` + name + `"`
}

func and(terms ...string) string { return strings.Join(terms, " && ") }

// pods returns the terms of a selector of pods by their own labels.
func (r *report) pods(field string, s *metav1.LabelSelector, effect string) (terms []string, ok bool) {
	return r.terms(field, s, effect, func(key string) (string, error) {
		if model.ReservedLabel(key) {
			return "", fmt.Errorf("%.64s is a label that is not taken over from pods, so none can be picked by it", key)
		}
		return key, nil
	})
}

// namespaces returns the terms of a selector of pods by the labels of their namespaces.
func (r *report) namespaces(field string, s *metav1.LabelSelector, effect string) (terms []string, ok bool) {
	return r.terms(field, s, effect, func(key string) (string, error) { return namespaceLabels + key, nil })
}

// terms returns the requirements of a selector, all of which must hold. It leaves out what can't be expressed and
// reports it with its effect: then the terms select more, and ok is false.
func (r *report) terms(field string, s *metav1.LabelSelector, effect string, label func(string) (string, error)) (terms []string, ok bool) {
	ok = true
	add := func(field string, e metav1.LabelSelectorRequirement) {
		text, err := term(e, label)
		if err != nil {
			r.add(field, err.Error()+", "+effect, "correct the selector, or upgrade where its meaning is that of a later version")
			ok = false
			return
		}
		terms = append(terms, text)
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		add(field+".matchLabels", metav1.LabelSelectorRequirement{Key: key, Operator: equals, Values: []string{s.MatchLabels[key]}})
	}
	for i, e := range s.MatchExpressions {
		add(fmt.Sprintf("%s.matchExpressions[%d]", field, i), e)
	}
	return terms, ok
}

// equals is the operator of matchLabels.
const equals metav1.LabelSelectorOperator = "="

// term returns one requirement as text. It leaves out values that no label can have.
func term(e metav1.LabelSelectorRequirement, label func(string) (string, error)) (string, error) {
	if problems := content.IsLabelKey(e.Key); len(problems) > 0 {
		return "", fmt.Errorf("%.64q is not the key of a label: %s", e.Key, problems[0])
	}
	name, err := label(e.Key)
	if err != nil {
		return "", err
	}
	var values []string
	for _, v := range e.Values {
		if len(content.IsLabelValue(v)) == 0 {
			values = append(values, `"`+v+`"`)
		}
	}
	set := "{" + strings.Join(values, ", ") + "}"
	switch {
	case e.Operator == equals && len(values) == 1:
		return name + " == " + values[0], nil
	case e.Operator == equals, e.Operator == metav1.LabelSelectorOpIn:
		return name + " in " + set, nil
	case e.Operator == metav1.LabelSelectorOpNotIn && len(e.Values) > 0:
		return name + " not in " + set, nil
	case e.Operator == metav1.LabelSelectorOpNotIn:
		return "", fmt.Errorf("NotIn without values")
	case e.Operator == metav1.LabelSelectorOpExists && len(e.Values) == 0:
		return "has(" + name + ")", nil
	case e.Operator == metav1.LabelSelectorOpDoesNotExist && len(e.Values) == 0:
		return "!has(" + name + ")", nil
	case e.Operator == metav1.LabelSelectorOpExists, e.Operator == metav1.LabelSelectorOpDoesNotExist:
		return "", fmt.Errorf("%s with values", e.Operator)
	}
	return "", fmt.Errorf("operator %.64q is unknown: want In, NotIn, Exists or DoesNotExist", string(e.Operator))
}
