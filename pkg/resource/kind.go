// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/calico-go/calico/pkg/model"
)

// A Column is one of a kind's table.
type Column struct {
	Head string
	Wide bool // only with -o wide
	Cell func(Resource) string
}

// A Kind is one of those that the operator can name: where its resources are stored, and how they are read and written.
type Kind struct {
	Name, Plural string
	Aliases      []string
	Namespaced   bool
	Labelled     bool // labels are stored
	Columns      []Column

	// ranges hold the resources, judged what decides whether one may be written or deleted besides.
	ranges, judged []model.Range
	// elsewhere: a resource may be in another place than the one that a write of it looks at first.
	elsewhere bool
	// of says which resource of the kind an entry is of, by what is the same for all of its entries; "" = none.
	of func(model.Entry) string
	// shared, nil = none, is a key that all resources are read with.
	shared model.Key
	// implied, nil = none, is a key whose resource is there without it as well.
	implied model.Key
	// always, nil = none, says of which resources there is one that says nothing, to be changed, where nothing is stored.
	always func(name string) bool
	// also, nil = none, is a second name of a resource.
	also func(s *Stored) string
	// alike, nil = none, are names by which a resource may be meant, the usual one first.
	alike func(s *Stored) []string
	// words and fields are what the model's words, in pairs for a strings.Replacer, and fields are here, where that isn't the same in camel case.
	words  []string
	fields map[string]string
	// narrow, nil = ranges, are where a resource is by its name, and by its spec where it has one, and what a write of it judges.
	narrow func(r Resource) []model.Range
	// retired, nil = as it is, is a resource as it must be before it is deleted, and whether it isn't yet.
	retired func(Resource) (Resource, bool)
	// rest, nil = nothing, are the keys that go with a resource, beside its own.
	rest func(s Stored, entries []model.Entry) []model.Entry
	// mayDelete, nil = always, says why a resource must stay.
	mayDelete func(s Stored, entries []model.Entry) error
	// vacant, nil = none, are the prefixes below which nothing may come up while a resource is deleted.
	vacant func(name string) []string

	newSpec func() any // by newKind
	read    func(id string, s *Stored) bool
	write   func(r Resource, old *Stored, entries []model.Entry, alone bool) (keys, error)
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
	shared  model.Entry // that of Kind.shared
}

// Ranges hold all resources of the kind.
func (k *Kind) Ranges() []model.Range { return k.ranges }

// DeleteRanges are what must be read before a resource is deleted.
func (k *Kind) DeleteRanges() []model.Range { return slices.Concat(k.ranges, k.judged) }

// WriteRanges are what must be read before r is written, or looked up: those of its name, which may be all. Write may ask for more.
func (k *Kind) WriteRanges(r Resource) []model.Range {
	return k.narrowed(r, k.DeleteRanges())
}

// NameRanges are where a resource is, as far as its name says.
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

// Retired is a resource as it must be before it is deleted, and whether it isn't yet. One that can't be read stays as it is.
func (k *Kind) Retired(s *Stored) (Resource, bool) {
	if s.Err != nil || k.retired == nil {
		return s.Resource, false
	}
	return k.retired(s.Resource)
}

// Kinds are all of them.
func Kinds() []*Kind { return kinds }

// All are the resources of the kind, by namespace and name, in what its Ranges hold, with what is there without a key.
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

// idOf is of, for entries whose path is that of their key.
func (k *Kind) idOf(e model.Entry) string {
	if e.Key == nil || e.Path != e.Key.Path() {
		return ""
	}
	return k.of(e)
}

// impliedEntry is that of a key whose resource is there without it, with no value; zero: there is none.
func (k *Kind) impliedEntry() model.Entry {
	if k.implied == nil {
		return model.Entry{}
	}
	return model.Entry{Path: k.implied.Path(), Key: k.implied}
}

// Lookup finds one resource among those of all namespaces by its name, letter by letter; a pool by its CIDR as well. The error of
// one that isn't there is a *NotFoundError.
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

// like is a hint at the resources whose names are like one that isn't there; those of other namespaces are named as get finds them.
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

// ToChange is Lookup for a change of a resource, which may be one of nothing yet: the configuration of a cluster, or of an
// agent, of which nothing is stored. The ranges are those that entries are of; the error may be a *model.NeedRangesError.
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

// Meant is the resource that the name may have meant, as web for default.web, or that of the only interface of a pod; nil = none. No
// change may go by it.
func (e *NotFoundError) Meant() *Stored { return e.other }

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
