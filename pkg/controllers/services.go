// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/kubepolicy"
	"github.com/calico-go/calico/pkg/model"
)

// services keeps in etcd what those Services lead to that rules name. Each has a watch of its own: a cluster may have many thousands, of
// which rules name a few.
type services struct {
	*controllers
	wake mailbox.Signal
	over *problems.Group // namespaces whose policies name too many

	mu      sync.Mutex
	naming  map[string][]string // the Services that rules name, by the path of the policy or profile
	read    bool                // all are known
	synced  bool                // and what they lead to
	watched map[string]*service
}

// service is a Service that rules name.
type service struct {
	stop   context.CancelFunc
	synced bool
	slices map[string]model.ServiceEndpoints // by the name of the EndpointSlice
}

func newServices(c *controllers) *services {
	return &services{controllers: c, wake: mailbox.NewSignal(), over: c.ledger.Group(problems.Host), naming: map[string][]string{}, watched: map[string]*service{}}
}

// update takes in policies and profiles of etcd.
func (s *services) update(u model.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Resync {
		clear(s.naming)
		s.read = true
	}
	for _, e := range u.Entries {
		if delete(s.naming, e.Path); e.Exists() {
			if names := kubepolicy.ServicesOf(e.Value); len(names) > 0 {
				s.naming[e.Path] = names
			}
		}
	}
	s.wake.Send()
}

// run has the Services watched that rules name, until the context ends. The error is always nil.
func (s *services) run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		s.mu.Lock()
		named := s.named()
		for name, w := range s.watched {
			if !named[name] {
				w.stop()
				delete(s.watched, name)
				s.owned.Remove(objectOf(name))
			}
		}
		for name := range named {
			if s.watched[name] == nil {
				watching, stop := context.WithCancel(ctx)
				w := &service{stop: stop, slices: map[string]model.ServiceEndpoints{}}
				s.watched[name] = w
				group.Go(func() { s.watch(watching, name, w) })
			}
		}
		s.tell("")
		s.mu.Unlock()
	}
}

// mostOfNamespace is how many Services the policies of a namespace may name. Each costs the API server a watch.
const mostOfNamespace = 100

// named returns the Services that rules name, but not those beyond what the policies of a namespace may.
func (s *services) named() map[string]bool {
	named, of, over := map[string]bool{}, map[string]map[string]bool{}, map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(s.naming)) {
		key, _ := model.ParseKey(path)
		policy, _ := key.(model.PolicyKey)
		namespace, _, namespaced := strings.Cut(policy.Policy, "/")
		if of[namespace] == nil {
			of[namespace] = map[string]bool{}
		}
		for _, name := range s.naming[path] {
			if namespaced && len(of[namespace]) >= mostOfNamespace && !of[namespace][name] {
				over["policies of the namespace "+namespace] = fmt.Sprintf("they name more than %d Services: rules that name others, such as %s, match nothing", mostOfNamespace, name)
				continue
			}
			of[namespace][name], named[name] = true, true
		}
	}
	s.over.Set(over)
	return named
}

func objectOf(name string) writer.Object {
	namespace, name, _ := strings.Cut(name, "/")
	return writer.Object{Kind: kindService, Namespace: namespace, Name: name}
}

// watch follows the EndpointSlices of a Service until the context ends.
func (s *services) watch(ctx context.Context, full string, w *service) {
	namespace, name, _ := strings.Cut(full, "/")
	type slice struct {
		name string
		of   model.ServiceEndpoints
	}
	change := func(how func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if how(); s.watched[full] == w {
			s.tell(full)
		}
	}
	keep := func(e *discoveryv1.EndpointSlice) slice { return slice{e.Name, kubepolicy.Service(namespace, name, e)} }
	_ = kube.Watch(ctx, s.kube, kube.Select{Namespace: namespace, Labels: discoveryv1.LabelServiceName + "=" + name}, keep, kube.Handler[slice]{
		Set:     func(e slice) { change(func() { w.slices[e.name] = e.of }) },
		Deleted: func(_, name string) { change(func() { delete(w.slices, name) }) },
		Synced:  func() { change(func() { w.synced = true }) },
	}) // the error is the context's
}

// tell passes on what a Service leads to, and that all are known when they are.
func (s *services) tell(full string) {
	if w := s.watched[full]; w != nil && w.synced {
		var value model.Service
		for _, name := range slices.Sorted(maps.Keys(w.slices)) {
			if of := w.slices[name]; len(of.Nets) > 0 && len(of.Ports) > 0 {
				value.Endpoints = append(value.Endpoints, of)
			}
		}
		if err := s.owned.Set(objectOf(full), []model.Put{{Key: model.ServiceKey{Name: full}, Value: value}}); err != nil {
			s.log.Warn("what a Service leads to can't be stored, and stays as it was", "service", full, "err", err)
		}
	}
	if !s.read || s.synced {
		return
	}
	for _, w := range s.watched {
		if !w.synced {
			return
		}
	}
	s.synced = true
	s.owned.Synced(kindService)
}

// names reports whether rules name a Service.
func (s *services) names(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched[name] != nil
}
