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
	namespaceLabel = "k8s_ns/label/"
	accountLabel   = "k8s_sa/label/"
	anyNamespace   = "has(" + model.LabelNamespace + ")"
)

// checked is a selector whose labels are the model's, with rename for any other label; "" stays "".
func checked(text string, rename func(label string) string) (string, error) {
	if len(text) > 65536 {
		return "", fmt.Errorf("%d characters: at most 65536", len(text))
	}
	if _, err := selector.Parse(text); err != nil {
		return "", err
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"' || c == '\'':
			end := i + 2 + strings.IndexByte(text[i+1:], c)
			b.WriteString(text[i:end])
			i = end
		case labelByte(c):
			end := i
			for end < len(text) && labelByte(text[end]) {
				end++
			}
			w := text[i:end]
			rest := strings.TrimLeft(text[end:], " \t\r\n")
			before := strings.TrimRight(b.String(), " \t\r\n")
			switch {
			case strings.HasPrefix(rest, "(") && (w == "has" || w == "all" || w == "global"): // a function
			case isOperand(before):
			// an operator: in, not in, contains, starts with, ends with
			case w == "projectcalico.org/orchestrator":
				return "", errors.New("projectcalico.org/orchestrator: write " + anyNamespace + ", which every pod of Kubernetes meets")
			default:
				w = renamed(w, rename)
			}
			b.WriteString(w)
			i = end
		default:
			b.WriteByte(c)
			i++
		}
	}
	if _, err := selector.Parse(b.String()); err != nil {
		return "", err
	}
	return b.String(), nil
}

// isOperand reports whether an operator comes after what is before: a label does, in anything but has(label).
func isOperand(before string) bool {
	if before == "" {
		return false
	}
	if last := before[len(before)-1]; labelByte(last) {
		return true
	}
	return false
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

// ServiceAccounts picks pods by their service accounts.
type ServiceAccounts struct {
	Names    []string `json:"names,omitempty" doc:"Any of these."`
	Selector string   `json:"selector,omitempty" doc:"Selector of service accounts."`
}

// A pick is how endpoints are picked in a resource.
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

// notPicked is the error of a pick, in the fields of what has it.
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

// compile makes the one selector of the model; namespace "" = of a global policy.
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

// decompile is the inverse, as far as selector and namespaceSelector alone say it; ok is false where they can't.
func decompile(text, namespace string) (p pick, ok bool) {
	if namespace == "" {
		p = pick{selector: text}
	} else {
		for _, form := range []struct{ in, namespaces string }{
			{model.LabelNamespace + ` == "` + namespace + `"`, ""}, {anyNamespace, "all()"}, {"!" + anyNamespace, "global()"},
		} {
			rest, is := strings.CutPrefix(text, form.in)
			if !is {
				continue
			}
			p.namespaces = form.namespaces
			if rest != "" {
				inner, is := strings.CutPrefix(rest, " && (")
				if !is || !strings.HasSuffix(inner, ")") {
					return p, false
				}
				p.selector = strings.TrimSuffix(inner, ")")
			}
			break
		}
	}
	again, _, err := p.compile(namespace)
	return p, err == nil && again == text
}
