// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A Column is one of a kind's table.
type Column struct {
	Head string
	Wide bool // only with -o wide
	Cell func(Resource) string
}

// A Kind is one row of what the operator can name: where its resources are stored, and how they are read and written.
type Kind struct {
	Name, Plural string
	Aliases      []string
	Namespaced   bool
	Labelled     bool // labels are stored
	Columns      []Column

	newSpec func() any
	// ranges are all that is read for any decision on the kind.
	ranges []model.Range
	// narrow, nil = ranges, are what a write reads first. Where there is nothing of the resource, and beside isn't empty, the keys
	// below it are read as well: the resource may be there under another one.
	narrow func(Resource) []model.Range
	beside string
	// read finds the resources in these ranges.
	read func(entries []model.Entry) []Stored
	// write makes the keys of a resource; old is what is stored of it, if anything is.
	write func(r Resource, old *Stored, entries []model.Entry) (keys, error)
	// rest, nil = nothing, are the keys that go with a resource, beside its own.
	rest func(s Stored, entries []model.Entry) []model.Entry
	// always: the resource default, which says nothing, is there to be changed even where nothing is stored.
	always bool
	// implied, nil = none, is a resource that is there without a key as well.
	implied func() Stored
	// mayDelete, nil = always, says why a resource must stay.
	mayDelete func(s Stored, entries []model.Entry) error
	// vacant, nil = none, are the prefixes below which nothing may come up while a resource is deleted.
	vacant func(name string) []string
}

// keys are what a resource is stored as. Keys of it that aren't named stay as they are.
type keys struct {
	puts    []model.Put
	deletes []model.Key
	// What was judged of others: keys that must be as they were read, and prefixes below which nothing may have come up since.
	others []model.Key
	vacant []string
}

func (k *keys) put(key model.Key, value any) {
	k.puts = append(k.puts, model.Put{Key: key, Value: value})
}

// set writes the text of a key where it changes; "" deletes it.
func (k *keys) set(key model.Key, before, now string) {
	switch {
	case before == now:
	case now == "":
		k.deletes = append(k.deletes, key)
	default:
		k.put(key, model.Text(now))
	}
}

// put is a resource that is one key.
func put(key model.Key, value any) keys { return keys{puts: []model.Put{{Key: key, Value: value}}} }

// Stored is a resource as etcd holds it. Err says why it can't be shown as one; only its names are set then.
type Stored struct {
	Resource
	Entries []model.Entry
	Err     error
}

// Ranges are all that must be read to decide anything on the kind.
func (k *Kind) Ranges() []model.Range { return k.ranges }

// WriteRanges are what must be read before r is written. Write may ask for more.
func (k *Kind) WriteRanges(r Resource) []model.Range {
	if k.narrow == nil {
		return k.ranges
	}
	return k.narrow(r)
}

// Kinds are all of them.
func Kinds() []*Kind {
	var all []*Kind
	for i := range kinds {
		all = append(all, &kinds[i])
	}
	return all
}

// All are the resources of the kind, by namespace and name, in what its Ranges hold, with what is there without a key.
func (k *Kind) All(entries []model.Entry) []Stored {
	all := k.read(entries)
	if k.implied != nil {
		s := k.implied()
		if !slices.ContainsFunc(all, func(of Stored) bool { return of.Metadata.Name == s.Metadata.Name }) {
			all = append(all, s)
		}
	}
	for i := range all {
		s := &all[i]
		s.APIVersion, s.Kind = APIVersion, k.Name
		var revision int64
		for _, e := range s.Entries {
			revision = max(revision, e.Revision)
			if e.Err != nil && s.Err == nil {
				s.Err = fmt.Errorf("%s: %w", e.Path, e.Err)
			}
		}
		if s.Spec == nil {
			s.Spec = k.newSpec()
		}
		s.Metadata.ResourceVersion = strconv.FormatInt(revision, 10)
	}
	slices.SortStableFunc(all, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return all
}

// Lookup finds one resource among those of all namespaces by its name, letter by letter; a pool by its CIDR as well. What it doesn't find
// but Resolve does is named in the error, or what the name is like.
func (k *Kind) Lookup(all []Stored, namespace, name string) (*Stored, error) {
	switch {
	case k.Namespaced && namespace == "":
		namespace = "default"
	case !k.Namespaced && namespace != "":
		return nil, &FieldError{Field: "namespace " + namespace, Err: fmt.Errorf("%s is in no namespace: leave it out", A(k.Name))}
	}
	var found *Stored
	for i := range all {
		s := &all[i]
		if s.Metadata.Namespace != namespace || s.Metadata.Name != name {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s %s is there twice, as %s and %s", k.Name, name, found.Entries[0].Path, s.Entries[0].Path)
		}
		found = s
	}
	if found != nil {
		return found, nil
	}
	missing := &NotFoundError{Kind: k.Name, Name: Metadata{Namespace: namespace, Name: name}.id()}
	missing.like = func() string { return like(all, namespace, name) }
	workloads := 0
	for i := range all {
		s := &all[i]
		switch spec := s.Spec.(type) {
		case *IPPool:
			switch cidr := spec.CIDR.String(); name {
			case cidr:
				return s, nil
			case strings.ReplaceAll(cidr, "/", "-"):
				missing.other = s
			}
		case *Policy: // <tier>.x for x, and the reverse
			if s.Metadata.Namespace == namespace && (spec.Tier+"."+s.Metadata.Name == name || s.Metadata.Name == spec.Tier+"."+name) {
				missing.other = s
			}
		case *WorkloadEndpoint: // a pod's name, or another workload's, that has only one
			if s.Metadata.Namespace == namespace && (spec.Pod == name || spec.Workload == name) {
				workloads++
				missing.other = s
			}
		}
	}
	if workloads > 1 {
		missing.other = nil
	}
	return nil, missing
}

// like is a hint at the resources whose names are like one that isn't there; those of other namespaces are named as get finds them.
func like(all []Stored, namespace, name string) string {
	var names []string
	for _, s := range all {
		called := s.Metadata.Name
		if s.Metadata.Namespace != namespace {
			if w, ok := s.Spec.(*WorkloadEndpoint); ok && w.Pod != "" {
				called = w.Pod
			}
			called += " -n " + s.Metadata.Namespace
		}
		names = append(names, called)
	}
	return DidYouMean(name, names)
}

// Resolve is Lookup for reading alone: where there is no resource of this name, it finds the one that the name may have meant, as web
// for default.web, or that of the only interface of a pod. No change may go by it.
func (k *Kind) Resolve(all []Stored, namespace, name string) (*Stored, error) {
	s, err := k.Lookup(all, namespace, name)
	if missing, ok := errors.AsType[*NotFoundError](err); ok && missing.other != nil {
		return missing.other, nil
	}
	return s, err
}

// ToChange is Lookup for a change of a resource, which may be one of nothing yet: the configuration of a cluster, or of an
// agent, of which nothing is stored.
func (k *Kind) ToChange(all []Stored, namespace, name string) (*Stored, error) {
	s, err := k.Lookup(all, namespace, name)
	var missing *NotFoundError
	if errors.As(err, &missing) && k.always && (name == "default" || k.Name == "FelixConfiguration" && strings.HasPrefix(name, "node.")) {
		return &Stored{Resource: Resource{APIVersion: APIVersion, Kind: k.Name, Metadata: Metadata{Name: name}, Spec: k.newSpec()}}, nil
	}
	return s, err
}

// NotFoundError says that a resource isn't there.
type NotFoundError struct {
	Kind, Name string
	other      *Stored       // what the name may have meant
	like       func() string // a hint at others
}

// Error names it, and what there is.
func (e *NotFoundError) Error() string {
	text := e.Kind + " " + e.Name + " not found"
	switch {
	case e.other != nil:
		text += ": there is " + e.other.ID()
	case e.like != nil:
		text += e.like()
	}
	return text
}

// Meant reports whether there is a resource that the name may have meant.
func (e *NotFoundError) Meant() bool { return e.other != nil }

// ExistsError says that a resource to be made is there already.
type ExistsError struct{ Kind, Name string }

// Error names it.
func (e *ExistsError) Error() string { return e.Kind + " " + e.Name + " exists already" }

// StaleError says that a resource was changed after it was read.
type StaleError struct {
	Title, Read, Now string // revisions
}

// Error says what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%s changed since revision %s, and is at %s: get it again, or leave resourceVersion out", e.Title, e.Read, e.Now)
}
