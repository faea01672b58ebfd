// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"errors"
	"fmt"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/selector"
)

const (
	namespaceLabel = model.NamespaceLabel
	accountLabel   = "k8s_sa/label/"
	anyNamespace   = "has(" + model.LabelNamespace + ")"
)

// checked returns a selector with the labels of the model, using rename for labels that have no fixed translation; "" stays
// "".
func checked(text string, rename func(label string) string) (string, error) {
	if len(text) > 65536 {
		return "", fmt.Errorf("%d characters: at most 65536", len(text))
	}
	return selector.Relabel(text, func(label string) (string, error) {
		if label == "projectcalico.org/orchestrator" {
			return "", errors.New("projectcalico.org/orchestrator: write " + anyNamespace + ", which every pod of Kubernetes meets")
		}
		return renamed(label, rename), nil
	})
}

func labelByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./-", c) >= 0
}

func renamed(label string, rename func(string) string) string {
	switch {
	case label == "projectcalico.org/namespace":
		return model.LabelNamespace
	case strings.HasPrefix(label, "pcns."):
		return namespaceLabel + label[len("pcns."):]
	case strings.HasPrefix(label, "pcsa."):
		return accountLabel + label[len("pcsa."):]
	case strings.HasPrefix(label, namespaceLabel), strings.HasPrefix(label, accountLabel), strings.HasPrefix(label, "calico/"), label == model.LabelServiceAccount:
		return label
	}
	return rename(label)
}

func asWritten(label string) string { return label }

func ofNamespace(label string) string {
	if label == "projectcalico.org/name" {
		return model.LabelNamespace
	}
	return namespaceLabel + label
}

func ofAccount(label string) string {
	if label == "projectcalico.org/name" {
		return model.LabelServiceAccount
	}
	return accountLabel + label
}

// written returns the inverse of ofNamespace or ofAccount: it yields what follows the prefix, or projectcalico.org/name for
// own.
func written(prefix, own string) func(string) (string, error) {
	return func(label string) (string, error) {
		switch rest, ok := strings.CutPrefix(label, prefix); {
		case ok:
			return rest, nil
		case label == own:
			return "projectcalico.org/name", nil
		}
		return "", fmt.Errorf("%s is no label of these", label)
	}
}

// ServiceAccounts picks pods by their service accounts.
type ServiceAccounts struct {
	Names    []string `json:"names,omitempty" doc:"Any of these."`
	Selector string   `json:"selector,omitempty" doc:"Selector of service accounts."`
}

// A pick is how a resource selects endpoints.
type pick struct {
	selector, namespaces string
	accounts             *ServiceAccounts
}

// pickError says which field of a pick is wrong.
type pickError struct {
	field string
	err   error
}

func (e *pickError) Error() string { return e.field + ": " + e.err.Error() }

// notPicked turns an error of a pick into one of the resource's fields.
func (r Resource) notPicked(in string, err error) error {
	var e *pickError
	if !errors.As(err, &e) {
		return r.at(in, "%w", err)
	}
	field := e.field
	if in == "spec" && field == "serviceAccounts.selector" {
		field = "serviceAccountSelector"
	}
	return r.at(in+"."+field, "%w", e.err)
}

// compile returns the single selector of the model; namespace "" = of a global policy.
func (p pick) compile(namespace string) (text string, has bool, err error) {
	var terms []string
	in := ""
	switch {
	case p.namespaces == "global()":
		in = "!" + anyNamespace
	case p.namespaces != "":
		in = anyNamespace
		if p.namespaces != "all()" {
			s, err := checked(p.namespaces, ofNamespace)
			if err != nil {
				return "", false, &pickError{"namespaceSelector", err}
			}
			terms = append(terms, s)
		}
	case namespace != "" && (p.selector != "" || p.accounts != nil):
		in = model.LabelNamespace + ` == "` + namespace + `"`
	}
	if p.accounts != nil {
		if len(p.accounts.Names) > 0 {
			for _, name := range p.accounts.Names {
				if strings.ContainsAny(name, `"'`) {
					return "", false, &pickError{"serviceAccounts.names", fmt.Errorf("%q is no name", name)}
				}
			}
			terms = append(terms, model.LabelServiceAccount+` in {"`+strings.Join(p.accounts.Names, `", "`)+`"}`)
		}
		if p.accounts.Selector != "" {
			s, err := checked(p.accounts.Selector, ofAccount)
			if err != nil {
				return "", false, &pickError{"serviceAccounts.selector", err}
			}
			terms = append(terms, "has("+model.LabelServiceAccount+")", s)
		}
		if len(terms) == 0 {
			return "", false, &pickError{"serviceAccounts", errors.New("want names or selector")}
		}
	}
	if p.selector != "" {
		s, err := checked(p.selector, asWritten)
		if err != nil {
			return "", false, &pickError{"selector", err}
		}
		terms = append(terms, s)
	}
	inner := strings.Join(terms, "")
	if len(terms) > 1 {
		inner = "(" + strings.Join(terms, ") && (") + ")"
	}
	switch {
	case in == "" && inner == "":
		return "", false, nil
	case in == "":
		return inner, true, nil
	case inner == "":
		return in, true, nil
	}
	return in + " && (" + inner + ")", true, nil
}

// decompile is the inverse of compile: its result compiles to text. ok is false if a NetworkPolicy can't express that; a global
// policy always can. named allows service accounts by name.
func decompile(text, namespace string, named bool) (p pick, ok bool) {
	forms := []struct{ in, namespaces string }{{anyNamespace, "all()"}, {"!" + anyNamespace, "global()"}, {model.LabelNamespace + ` == "` + namespace + `"`, ""}}
	if namespace == "" {
		forms[2].in, p.selector = "", text
	}
	for _, form := range forms {
		inner, is := strings.CutPrefix(text, form.in)
		if !is {
			continue
		}
		if inner != "" && form.in != "" {
			if inner, is = strings.CutPrefix(inner, " && ("); !is || !strings.HasSuffix(inner, ")") {
				continue
			}
			inner = strings.TrimSuffix(inner, ")")
		}
		plain := pick{selector: inner, namespaces: form.namespaces}
		for _, p := range []pick{plain.taken(named), plain} {
			if again, _, err := p.compile(namespace); err == nil && again == text {
				return p, true
			}
		}
	}
	return p, namespace == ""
}

// taken moves the terms about namespaces and service accounts out of the selector, if they come first as compile puts them.
func (p pick) taken(named bool) pick {
	const and = ") && ("
	rest := p.selector
	if strings.Contains(rest, and) {
		rest = strings.TrimSuffix(strings.TrimPrefix(rest, "("), ")")
	}
	if p.namespaces == "all()" {
		first, others, _ := strings.Cut(rest, and)
		if s, err := selector.Relabel(first, written(namespaceLabel, model.LabelNamespace)); err == nil && s != "" {
			p.namespaces, rest = s, others
		}
	}
	var accounts ServiceAccounts
	if names, is := strings.CutPrefix(rest, model.LabelServiceAccount+` in {"`); is && named {
		names, rest, _ = strings.Cut(names, and)
		accounts.Names = strings.Split(strings.TrimSuffix(names, `"}`), `", "`)
	}
	if others, is := strings.CutPrefix(rest, "has("+model.LabelServiceAccount+")"+and); is {
		first, others, _ := strings.Cut(others, and)
		if s, err := selector.Relabel(first, written(accountLabel, model.LabelServiceAccount)); err == nil {
			accounts.Selector, rest = s, others
		}
	}
	if p.selector = rest; accounts.Names != nil || accounts.Selector != "" {
		p.accounts = &accounts
	}
	return p
}
