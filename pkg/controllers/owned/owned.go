// SPDX-License-Identifier: Apache-2.0

// Package owned keeps the keys of etcd that are made from Kubernetes objects: profiles, policies, tiers. It writes them if
// they are absent or differ from what is desired, and deletes them when their object is gone. It never touches keys that it
// would not make.
package owned

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/model"
)

// Config configures a Keeper.
type Config struct {
	writer.Config
	// Kinds maps the path prefix of keys to the kind of object that they are made from. No prefix begins another.
	Kinds map[string]string
	// After maps a kind to another that comes first: its keys are written only once all objects of that kind are known, and
	// after their keys. What opens pods comes after what closes them.
	After map[string]string
	// Needed reports whether a key must stay although its object is gone; each Recheck asks again. The entry has its value
	// only if it exists, which is the case before any delete.
	Needed func(model.Entry) bool
	// Living asks the API server itself whether an object makes a key. Only keys without an object are deleted: the watch may
	// be behind, as is an API server that has lost its own watch.
	Living func(context.Context, model.Key) (bool, error)
}

type sum [16]byte

func sumOf(value any) (sum, error) {
	data, err := model.FormatValue(value)
	if err != nil {
		return sum{}, err
	}
	all := sha256.Sum256(data)
	return sum(all[:16]), nil
}

// desired is what a key should hold.
type desired struct {
	value any // nil: leave the key as it is, since its object can't be read
	sum   sum
	of    writer.Object
}

// id returns the object without its UID.
func id(o writer.Object) writer.Object {
	o.UID = ""
	return o
}

// Keeper keeps keys up to date. Make one with New.
type Keeper struct {
	Config
	writer *writer.Writer

	mu      sync.Mutex
	objects map[writer.Object][]model.Key
	desired map[model.Key]desired
	actual  map[model.Key]sum  // the zero sum: invalid
	synced  map[string]bool    // by kind: all of its objects are known
	spared  map[model.Key]bool // kept because of Needed
	read    bool               // actual holds all that etcd has
}

// New returns a keeper without objects.
func New(cfg Config) *Keeper {
	k := &Keeper{
		Config: cfg, objects: map[writer.Object][]model.Key{}, desired: map[model.Key]desired{}, actual: map[model.Key]sum{},
		synced: map[string]bool{}, spared: map[model.Key]bool{},
	}
	k.writer = writer.New(cfg.Config, k)
	return k
}

// Writer returns the writer, which should run while this process leads.
func (k *Keeper) Writer() *writer.Writer { return k.writer }

// Of implements writer.Keeper.
func (k *Keeper) Of(key model.Key) (of writer.Object, made bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d, made := k.desired[key]; made {
		return d.of, true
	}
	return writer.Object{Kind: k.kindOf(key)}, false
}

// Watched returns the prefixes whose contents Update must be told.
func (k *Keeper) Watched() []string { return slices.Sorted(maps.Keys(k.Kinds)) }

// Owner implements writer.Keeper. It returns the namespace of the object that makes a key, which follows the kind's prefix.
func (k *Keeper) Owner(key model.Key) string {
	_, name := k.place(key)
	return name[:max(0, strings.IndexAny(name, "./"))]
}

// place returns the kind that owns a key, "" if none does, and what follows the kind's prefix.
func (k *Keeper) place(key model.Key) (kind, name string) {
	path := key.Path()
	for prefix, kind := range k.Kinds {
		if name, own := strings.CutPrefix(path, prefix); own {
			return kind, name
		}
	}
	return "", ""
}

func (k *Keeper) kindOf(key model.Key) string {
	kind, _ := k.place(key)
	return kind
}

// Set replaces the keys of an object. The error is that of a value that can't be stored: then nothing has changed.
func (k *Keeper) Set(o writer.Object, puts []model.Put) error {
	keys, values := make([]model.Key, len(puts)), make([]desired, len(puts))
	for i, p := range puts {
		if k.kindOf(p.Key) != o.Kind {
			return fmt.Errorf("%s is no key of a %s", p.Key.Path(), o.Kind)
		}
		s, err := sumOf(p.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Key.Path(), err)
		}
		keys[i], values[i] = p.Key, desired{value: p.Value, sum: s}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(o, keys, values)
	return nil
}

// Hold leaves the keys of an unreadable object as they are, unless the object is known already.
func (k *Keeper) Hold(o writer.Object, keys ...model.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.objects[id(o)]; !known {
		k.replace(o, keys, make([]desired, len(keys)))
	}
}

// Remove removes an object: its keys may go.
func (k *Keeper) Remove(o writer.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(o, nil, nil)
}

func (k *Keeper) replace(o writer.Object, keys []model.Key, values []desired) {
	before := k.objects[id(o)]
	if keys == nil {
		delete(k.objects, id(o))
	} else {
		k.objects[id(o)] = keys
	}
	for _, key := range before {
		delete(k.desired, key)
	}
	for i, key := range keys {
		values[i].of = o
		k.desired[key] = values[i]
	}
	k.check(before...)
	k.check(keys...)
}

// Synced says that all objects of a kind are known: keys of the kind without an object may go.
func (k *Keeper) Synced(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.synced[kind] {
		return
	}
	k.synced[kind] = true
	k.checkAll()
}

// Has reports whether an object is known.
func (k *Keeper) Has(o writer.Object) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.objects[id(o)]
	return known
}

// Objects returns how many objects of a kind are known.
func (k *Keeper) Objects(kind string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for o := range k.objects {
		if o.Kind == kind {
			n++
		}
	}
	return n
}

// Recheck looks again at keys that stayed because of Needed.
func (k *Keeper) Recheck() {
	k.mu.Lock()
	defer k.mu.Unlock()
	spared := slices.Collect(maps.Keys(k.spared))
	clear(k.spared)
	k.check(spared...)
}

// Update takes in what etcd holds, and ignores keys that it doesn't own.
func (k *Keeper) Update(u model.Update) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.Resync {
		clear(k.actual)
	}
	var changed []model.Key
	for _, e := range u.Entries {
		if e.Key == nil || k.kindOf(e.Key) == "" || e.Key.Path() != e.Path {
			continue
		}
		if d, wanted := k.desired[e.Key]; wanted && k.actual[e.Key] == d.sum {
			k.writer.Spoiled(e.Key) // check undoes this if the key is still as desired
		}
		if !e.Exists() {
			delete(k.actual, e.Key)
		} else {
			var s sum
			if e.Err == nil {
				s, _ = sumOf(e.Value) // a value that can't be written again is not as desired
			}
			k.actual[e.Key] = s
		}
		changed = append(changed, e.Key)
	}
	if !u.Resync {
		k.check(changed...)
		return
	}
	k.read = true
	k.checkAll()
}

func (k *Keeper) checkAll() {
	if !k.read {
		return
	}
	var later []model.Key
	for key := range k.desired {
		if _, after := k.After[k.kindOf(key)]; after {
			later = append(later, key)
		} else {
			k.check(key)
		}
	}
	k.check(later...)
	for key := range k.actual {
		if _, ok := k.desired[key]; !ok {
			k.check(key)
		}
	}
}

// check queues the keys that aren't as desired for the writer.
func (k *Keeper) check(keys ...model.Key) {
	if !k.read {
		return
	}
	var dirty, clean []model.Key
	for _, key := range keys {
		have, exists := k.actual[key]
		if write, remove := k.due(model.Entry{Key: key}, have, exists); write || remove {
			dirty = append(dirty, key)
		} else {
			clean = append(clean, key)
		}
	}
	k.writer.Clean(clean...)
	k.writer.Dirty(dirty...)
}

// due reports whether a key whose value has this sum must be written or deleted.
func (k *Keeper) due(e model.Entry, have sum, exists bool) (write, remove bool) {
	delete(k.spared, e.Key)
	switch d, wanted := k.desired[e.Key]; {
	case wanted && d.value == nil, !wanted && !exists:
		return false, false
	case wanted:
		kind, after := k.After[k.kindOf(e.Key)]
		return (!exists || have != d.sum) && (!after || k.synced[kind]), false
	case k.synced[k.kindOf(e.Key)] && k.Needed(e):
		k.spared[e.Key] = true
		return false, false
	default:
		return false, k.synced[k.kindOf(e.Key)]
	}
}

// Decide implements writer.Keeper. The writer has just read e from etcd.
func (k *Keeper) Decide(ctx context.Context, e model.Entry, key model.Key) (model.Change, error) {
	e.Key = key // it is nil if the key doesn't exist
	var have sum
	if e.Exists() && e.Err == nil {
		have, _ = sumOf(e.Value)
	}
	due := func() (put any, write, remove bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		write, remove = k.due(e, have, e.Exists())
		return k.desired[key].value, write, remove
	}
	put, write, remove := due()
	if remove {
		living, err := k.Living(ctx, key)
		if err != nil {
			return model.Change{}, fmt.Errorf("is its object gone? %w", err)
		}
		if living {
			// The error makes the writer ask again: a watch that is behind reports the object later, but one that starts over may
			// never do so if the object is deleted before.
			return model.Change{}, errors.New("it has an object that the watch has yet to tell of")
		}
		put, write, remove = due()
	}
	switch {
	case write:
		return model.Change{Puts: []model.Put{{Key: key, Value: put}}}, nil
	case remove:
		return model.Change{Deletes: []model.Key{key}}, nil
	}
	return model.Change{}, nil
}
