// SPDX-License-Identifier: Apache-2.0

// Package owned keeps the keys of etcd that are made of Kubernetes' objects: profiles, policies, tiers. They are written
// where they are absent or somebody has changed them, and deleted when their object is gone. Keys that nobody here would
// make are never touched.
package owned

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// Prefixes are what begins the paths of everything that a kind may own.
type Prefixes []string

func (p Prefixes) own(path string) bool {
	for _, prefix := range p {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// Object is what keys are made of. It is the same with whichever UID, which only Restored is told.
type Object struct{ Kind, Namespace, Name, UID string }

func (o Object) id() Object {
	o.UID = ""
	return o
}

// Config is what a keeper works with.
type Config struct {
	Etcd     writer.Etcd
	Problems *problems.Ledger
	// Kinds are what each kind owns. No two may own the same.
	Kinds map[string]Prefixes
	// After are kinds that are written only once all objects of another kind are known, and after those. What opens pods comes
	// after what closes them.
	After map[string]string
	// Needed reports whether a key is to stay although its object is gone; it is asked again where Check says so.
	Needed func(model.Key) bool
	// Living asks the API live whether an object makes a key. Only what none makes is deleted: the watch that says so may be
	// behind, as API servers are that have lost theirs.
	Living func(context.Context, model.Key) (bool, error)
	// Wrote and Failed are the writer's, with the kind that owns the key.
	Wrote  func(kind string, took time.Duration)
	Failed func(kind string, k model.Key, err error)
	// Restored tells of a key that somebody else had changed or deleted, and that was written again.
	Restored func(of Object, k model.Key)
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

// desired is what a key is to hold.
type desired struct {
	value any // nil: whatever it holds, if anything: its object can't be read
	sum   sum
	of    Object
}

// Keeper keeps them. Make one with New.
type Keeper struct {
	Config
	writer *writer.Writer

	mu      sync.Mutex
	objects map[Object][]model.Key
	desired map[model.Key]desired
	actual  map[model.Key]sum // the zero sum: invalid
	synced  map[string]bool   // by kind: all of its objects are known
	read    bool              // actual is all that etcd holds
}

// New makes a keeper of nothing.
func New(cfg Config) *Keeper {
	k := &Keeper{Config: cfg, objects: map[Object][]model.Key{}, desired: map[model.Key]desired{}, actual: map[model.Key]sum{}, synced: map[string]bool{}}
	k.writer = writer.New(writer.Config{
		Etcd: cfg.Etcd, Problems: cfg.Problems, What: "policies and profiles", Owner: k.owner, Decide: k.decide,
		Wrote:    func(key model.Key, took time.Duration) { cfg.Wrote(k.kindOf(key), took) },
		Failed:   func(key model.Key, err error) { cfg.Failed(k.kindOf(key), key, err) },
		Restored: k.restored,
	})
	return k
}

// Writer writes while this process leads.
func (k *Keeper) Writer() *writer.Writer { return k.writer }

func (k *Keeper) restored(key model.Key) {
	k.mu.Lock()
	d, wanted := k.desired[key]
	k.mu.Unlock()
	if wanted {
		k.Restored(d.of, key)
	}
}

// Watched are the prefixes whose content Update is to be told.
func (k *Keeper) Watched() (all []string) {
	for _, p := range k.Kinds {
		all = append(all, p...)
	}
	return all
}

func (k *Keeper) kindOf(key model.Key) string {
	path := key.Path()
	for kind, prefixes := range k.Kinds {
		if prefixes.own(path) {
			return kind
		}
	}
	return ""
}

// owner is the namespace of the object that makes a key: what comes after the kind's prefix.
func (k *Keeper) owner(key model.Key) string {
	for _, prefix := range k.Watched() {
		if name, own := strings.CutPrefix(key.Path(), prefix); own {
			return name[:max(0, strings.IndexAny(name, "./"))]
		}
	}
	return ""
}

// Set says what an object is in etcd, in place of what it was. The error is of a value that can't be stored: then
// nothing has changed.
func (k *Keeper) Set(o Object, puts []model.Put) error {
	keys, values := make([]model.Key, len(puts)), make([]desired, len(puts))
	for i, p := range puts {
		if !k.Kinds[o.Kind].own(p.Key.Path()) {
			return fmt.Errorf("%s is no key of a %s", p.Key.Path(), o.Kind)
		}
		s, err := sumOf(p.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Key.Path(), err)
		}
		keys[i], values[i] = p.Key, desired{p.Value, s, o}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(o, keys, values)
	return nil
}

// Hold leaves keys of an object that can't be read as they are, whatever they hold.
func (k *Keeper) Hold(o Object, keys ...model.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.objects[o.id()]; !known {
		k.replace(o, keys, make([]desired, len(keys)))
	}
}

// Remove says that an object is gone.
func (k *Keeper) Remove(o Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(o, nil, nil)
}

func (k *Keeper) replace(o Object, keys []model.Key, values []desired) {
	before := k.objects[o.id()]
	if keys == nil {
		delete(k.objects, o.id())
	} else {
		k.objects[o.id()] = keys
	}
	for _, key := range before {
		delete(k.desired, key)
	}
	for i, key := range keys {
		k.desired[key] = values[i]
	}
	k.check(before...)
	k.check(keys...)
}

// Synced says that all objects of a kind are known: keys of the kind that no object is may go.
func (k *Keeper) Synced(kind string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.synced[kind] {
		return
	}
	k.synced[kind] = true
	k.checkAll()
}

// Objects is how many objects of a kind there are.
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

// Check has keys looked at again, as what Needed says of them may be another; without any, all.
func (k *Keeper) Check(keys ...model.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(keys) == 0 {
		k.checkAll()
		return
	}
	k.check(keys...)
}

// Update takes in what etcd holds; what others own in the same places is passed over.
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
			k.writer.Spoiled(e.Key) // unless it is as desired still: see check
		}
		if !e.Exists() {
			delete(k.actual, e.Key)
		} else {
			var s sum
			if e.Err == nil {
				s, _ = sumOf(e.Value) // what can't be written again is not as desired
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

// check has the writer look at keys that aren't as desired.
func (k *Keeper) check(keys ...model.Key) {
	if !k.read {
		return
	}
	var dirty, clean []model.Key
	for _, key := range keys {
		have, exists := k.actual[key]
		if write, remove := k.due(key, have, exists); write || remove {
			dirty = append(dirty, key)
		} else {
			clean = append(clean, key)
		}
	}
	k.writer.Clean(clean...)
	k.writer.Dirty(dirty...)
}

// due says what is to be done with a key that holds this.
func (k *Keeper) due(key model.Key, have sum, exists bool) (write, remove bool) {
	switch d, wanted := k.desired[key]; {
	case wanted && d.value == nil, !wanted && !exists:
		return false, false
	case wanted:
		kind, after := k.After[k.kindOf(key)]
		return (!exists || have != d.sum) && (!after || k.synced[kind]), false
	default:
		return false, k.synced[k.kindOf(key)] && !k.Needed(key)
	}
}

// decide is the writer's: what etcd holds it has read anew.
func (k *Keeper) decide(ctx context.Context, e model.Entry, key model.Key) (model.Change, error) {
	var have sum
	if e.Exists() && e.Err == nil {
		have, _ = sumOf(e.Value)
	}
	due := func() (put any, write, remove bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		write, remove = k.due(key, have, e.Exists())
		return k.desired[key].value, write, remove
	}
	put, write, remove := due()
	if remove {
		living, err := k.Living(ctx, key)
		if err != nil {
			return model.Change{}, fmt.Errorf("is its object gone? %w", err)
		}
		if living {
			// It is asked again: a watch that is behind tells of it, but one that starts over may never, where it is deleted before.
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
