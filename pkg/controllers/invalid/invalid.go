// SPDX-License-Identifier: Apache-2.0

// Package invalid reports Kubernetes objects that are not applied, or not completely: by a Warning event on the object, in
// the log, at /debug/invalid and in a metric.
package invalid

import (
	"errors"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/calico-go/calico/pkg/daemon/problems"
)

// Reason is the reason of the events.
const Reason = "InvalidForCalico"

// Warner records a Warning event; kube.Client is one.
type Warner interface {
	Warning(about corev1.ObjectReference, reason, message string)
}

// kind is the kind of these objects in the ledger.
const kind = "kubernetes object"

type id struct{ kind, namespace, name string }

type problem struct {
	about corev1.ObjectReference
	text  string
}

// Objects records the objects that have problems. Make one with New.
type Objects struct {
	log    *slog.Logger
	warner Warner
	ledger *problems.Ledger

	mu      sync.Mutex
	open    map[id]problem
	leading bool
}

// New returns an empty record.
func New(log *slog.Logger, warner Warner, ledger *problems.Ledger) *Objects {
	return &Objects{log: log, warner: warner, ledger: ledger, open: map[id]problem{}}
}

// Lead says whether this process leads and so records events. When it begins to, all known problems are recorded again.
func (o *Objects) Lead(leading bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leading = leading; leading {
		for _, p := range o.open {
			o.warner.Warning(p.about, Reason, p.text)
		}
	}
}

// kindOf returns the name of an object's kind, with its group where Kubernetes has a kind of that name as well.
func kindOf(about corev1.ObjectReference) string {
	if group, _, custom := strings.Cut(about.APIVersion, "/"); custom && group == "projectcalico.org" {
		return about.Kind + "." + group
	}
	return about.Kind
}

// Report replaces an object's problems by reasons; without reasons it has none.
func (o *Objects) Report(about corev1.ObjectReference, reasons ...string) {
	text := strings.Join(reasons, "; ")
	o.mu.Lock()
	defer o.mu.Unlock()
	i := id{kindOf(about), about.Namespace, about.Name}
	before, was := o.open[i]
	switch {
	case text == "" && !was, before.text == text && before.about.UID == about.UID:
		return
	case text == "":
		delete(o.open, i)
	default:
		o.open[i] = problem{about, text}
	}
	path := i.kind + " " + strings.TrimPrefix(about.Namespace+"/"+about.Name, "/")
	if text == "" {
		_, _ = o.ledger.Note(kind, path, nil)
		o.log.Info("object in Kubernetes is in order again, or gone", "object", path)
		return
	}
	_, after := o.ledger.Note(kind, path, errors.New(text))
	o.log.Warn("object in Kubernetes is not wholly acted upon", "object", path, "reason", after)
	if o.leading {
		o.warner.Warning(about, Reason, text)
	}
}

// Count returns how many objects of a kind have problems.
func (o *Objects) Count(kind string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.open {
		if i.kind == kind {
			n++
		}
	}
	return n
}
