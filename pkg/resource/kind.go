// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A Column is a column of a kind's table.
type Column struct {
	Head string
	Wide bool // only with -o wide
	Cell func(Resource) string
}

// A Kind is a kind of resource that the operator can name: where its resources are stored, and how they are read and written.
type Kind struct {
	Name, Plural string
	Aliases      []string
	Namespaced   bool
	Labelled     bool // selectors pick it by its labels
	Plain        bool // annotations, and labels that no selector picks it by, are not kept
	apart        bool // they are kept at a key of their own
	perNode      bool // names are unique only on a node
	Columns      []Column

	// custom, nil = none, says what is particular to the kind in the Kubernetes API.
	custom *custom
	// ranges hold the resources; judged hold what else decides whether one may be written or deleted.
	ranges, judged []model.Range
	// elsewhere: a resource may be stored in a place other than the one that a write looks at first.
	elsewhere bool
	// of returns an id of the entry's resource of this kind, the same for all of its entries; "" = none.
	of func(model.Entry) string
	// shared, nil = none, is a key that is read along with every resource.
	shared model.Key
	// implied, nil = none, is a key whose resource exists even without it.
	implied model.Key
	// always, nil = none, reports whether a resource may be changed although nothing is stored of it: an empty one takes its
	// place.
	always func(name string) bool
	// also, nil = none, returns a second name of a resource.
	also func(s *Stored) string
	// alike, nil = none, returns names that may mean a resource, the usual one first.
	alike func(s *Stored) []string
	// words and fields translate words (in pairs for a strings.Replacer) and fields of the model, where camel case isn't enough.
	words  []string
	fields map[string]string
	// narrow, nil = ranges, returns where a resource is by its name, and by its spec if it has one, and what a write of it
	// judges.
	narrow func(r Resource) []model.Range
	// retired, nil = as it is, returns a resource as it must be before it is deleted, and whether it differs from that now.
	retired func(Resource) (Resource, bool)
	// rest, nil = nothing, returns the entries that are deleted with a resource, besides its own.
	rest func(s Stored, entries []model.Entry) []model.Entry
	// mayDelete, nil = always, returns why a resource must stay.
	mayDelete func(s Stored, entries []model.Entry) error
	// vacant, nil = none, returns the prefixes below which no key may appear while a resource is deleted.
	vacant func(name string) []string

	newSpec func() any // set by newKind, if it is nil
	read    func(id string, s *Stored) bool
	write   func(r Resource, old *Stored, entries []model.Entry, alone bool) (keys, error)
}

// keys are the changes that store a resource. Keys of it that they don't name stay as they are.
type keys struct {
	puts    []model.Put
	deletes []model.Key
	// Other keys that the decision depends on: keys that must still be as read, and prefixes below which no key may have
	// appeared.
	others []model.Key
	vacant []string
}

func (k *keys) put(key model.Key, value any) {
	k.puts = append(k.puts, model.Put{Key: key, Value: value})
}

// set writes the text of a key if it has changed; "" deletes the key.
func (k *keys) set(key model.Key, before, now string) {
	switch {
	case before == now:
	case now == "":
		k.deletes = append(k.deletes, key)
	default:
		k.put(key, model.Text(now))
	}
}

// put returns the keys of a resource that has a single key.
func put(key model.Key, value any) keys { return keys{puts: []model.Put{{Key: key, Value: value}}} }

// Stored is a resource as stored in etcd. Err says why it can't be shown as one; then only its names are set.
type Stored struct {
	Resource
	Entries []model.Entry
	Err     error
	shared  model.Entry // the entry of Kind.shared
}

// Ranges returns the ranges that hold all resources of the kind.
func (k *Kind) Ranges() []model.Range { return k.ranges }

// DeleteRanges returns what must be read before a resource is deleted.
func (k *Kind) DeleteRanges() []model.Range { return slices.Concat(k.ranges, k.judged) }

// WriteRanges returns what must be read before r is written or looked up: the ranges of its name, or all. Write may ask for more.
func (k *Kind) WriteRanges(r Resource) []model.Range {
	return k.narrowed(r, k.DeleteRanges())
}

// NameRanges returns where a resource is stored, as far as its name says.
func (k *Kind) NameRanges(namespace, name string) []model.Range {
	return k.narrowed(Resource{Metadata: Metadata{Namespace: namespace, Name: name}}, k.ranges)
}

func (k *Kind) narrowed(r Resource, all []model.Range) []model.Range {
	if k.Namespaced {
		r.Metadata.Namespace = cmp.Or(r.Metadata.Namespace, "default")
	}
	if k.narrow != nil {
		if narrow := k.narrow(r); narrow != nil {
			return narrow
		}
	}
	return all
}

// Retired returns a resource as it must be before it is deleted, and whether it differs from that now. An unreadable one
// stays as it is.
func (k *Kind) Retired(s *Stored) (Resource, bool) {
	if s.Err != nil || k.retired == nil {
		return s.Resource, false
	}
	return k.retired(s.Resource)
}

// Kinds returns all kinds.
func Kinds() []*Kind { return kinds }

// All returns the resources in entries, sorted by namespace and name, including those that exist without a key.
func (k *Kind) All(entries []model.Entry) []Stored {
	var shared model.Entry
	of := make(map[string][]model.Entry, len(entries))
	for _, e := range entries {
		if e.Key != nil && e.Key == k.shared {
			shared = e
		}
		if id := k.idOf(e); id != "" {
			of[id] = append(of[id], e)
		}
	}
	if e := k.impliedEntry(); e.Key != nil && of[e.Path] == nil {
		of[e.Path] = []model.Entry{e}
	}
	all := make([]Stored, 0, len(of))
	for id, list := range of {
		if s, ok := k.stored(id, list, shared); ok {
			all = append(all, s)
		}
	}
	return sorted(all)
}

// idOf is of for entries whose path is that of their key, else "".
func (k *Kind) idOf(e model.Entry) string {
	if e.Key == nil || e.Path != e.Key.Path() {
		return ""
	}
	return k.of(e)
}

// impliedEntry returns an entry without value for the implied key; zero: there is none.
func (k *Kind) impliedEntry() model.Entry {
	if k.implied == nil {
		return model.Entry{}
	}
	return model.Entry{Path: k.implied.Path(), Key: k.implied}
}

// Lookup finds a resource in all by its exact name; a pool also by its CIDR. The error is a *NotFoundError if there is none.
func (k *Kind) Lookup(all []Stored, namespace, name string) (*Stored, error) {
	switch {
	case k.Namespaced && namespace == "":
		namespace = "default"
	case !k.Namespaced && namespace != "":
		return nil, &FieldError{Field: "namespace " + namespace, Err: fmt.Errorf("%s is in no namespace: leave it out", A(k.Name))}
	}
	var found []Stored
	for _, s := range all {
		if s.Metadata.Namespace == namespace && s.Metadata.Name == name {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return &found[0], nil
	case len(found) > 1:
		return nil, &AmbiguousError{Found: found, perNode: k.perNode}
	}
	missing := &NotFoundError{Kind: k.Name, Name: Metadata{Namespace: namespace, Name: name}.id()}
	missing.like = func() string { return k.like(all, namespace, name) }
	meant := 0
	for i := range all {
		s := &all[i]
		switch {
		case s.Metadata.Namespace != namespace:
		case k.also != nil && k.also(s) == name:
			return s, nil
		case k.alike != nil && slices.Contains(k.alike(s), name):
			missing.other = s
			meant++
		}
	}
	if meant > 1 {
		missing.other = nil
	}
	return nil, missing
}

// An AmbiguousError says that several resources have a name.
type AmbiguousError struct {
	Found   []Stored
	perNode bool
}

// Error names where they are, and what tells them apart.
func (e *AmbiguousError) Error() string {
	title := e.Found[0].Title()
	if e.perNode {
		return fmt.Sprintf("%s is on several nodes, %s: name one with --node", title, strings.Join(converted(e.Found, func(s Stored) string { return nodeOf(s.Resource) }), ", "))
	}
	return fmt.Sprintf("%s is there several times, as %s", title, strings.Join(converted(e.Found, func(s Stored) string { return s.Entries[0].Path }), " and "))
}

// like returns a hint at resources with similar names; those of other namespaces appear in the form that calicoctl get accepts.
func (k *Kind) like(all []Stored, namespace, name string) string {
	var names []string
	for i := range all {
		s := &all[i]
		called := s.Metadata.Name
		if s.Metadata.Namespace != namespace {
			if k.alike != nil {
				called = k.alike(s)[0]
			}
			called += " -n " + s.Metadata.Namespace
		}
		names = append(names, called)
	}
	return DidYouMean(name, names)
}

// ToChange is Lookup for a change of a resource. If nothing is stored of the configuration of a cluster or agent, it returns
// an empty one. ranges are the ranges of entries; the error may be a *model.NeedRangesError.
func (k *Kind) ToChange(ranges []model.Range, entries []model.Entry, namespace, name string) (*Stored, error) {
	s, err := k.Lookup(k.All(entries), namespace, name)
	_, missing := errors.AsType[*NotFoundError](err)
	if missing {
		if more := k.unread(ranges, false); more != nil {
			return nil, more
		}
	}
	if missing && k.always != nil && k.always(name) {
		return &Stored{Resource: Resource{APIVersion: APIVersion, Kind: k.Name, Metadata: Metadata{Name: name}, Spec: k.newSpec()}}, nil
	}
	return s, err
}

// NotFoundError says that a resource doesn't exist.
type NotFoundError struct {
	Kind, Name string
	other      *Stored       // what the name may have meant
	like       func() string // a hint at others
}

// Error names the resource, and similar ones.
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

// Meant returns the resource that the name may have meant, such as default.web for web, or the endpoint of a pod with a single
// interface; nil = none. No change may rely on it.
func (e *NotFoundError) Meant() *Stored { return e.other }

// ExistsError says that a resource to be created exists already.
type ExistsError struct{ Kind, Name string }

// Error names the resource.
func (e *ExistsError) Error() string { return e.Kind + " " + e.Name + " exists already" }

// StaleError says that a resource has changed since it was read.
type StaleError struct {
	Title, Read, Now string // revisions
}

// Error says what to do about it.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%s changed since revision %s, and is at %s: get it again, or leave resourceVersion out", e.Title, e.Read, e.Now)
}
