// SPDX-License-Identifier: Apache-2.0

// Package custom carries the operator's resources from the Kubernetes API into etcd. An object there makes the resource of its kind and
// name, which is the object's from then on: it follows the object, is restored when somebody else changes it, and goes when the object is
// deleted. It stays when the definition of the kind goes, and with it all objects of the kind.
package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/controllers/fenced"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/daemon/reconcile"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

// API is the Kubernetes API.
type API interface {
	// Watch passes on every object of a kind, and each change, until the context ends.
	Watch(ctx context.Context, k *resource.Kind, h kube.Handler[Object]) error
	// UID returns the uid of an object as it is now. os.ErrNotExist is in the error's chain if it doesn't exist.
	UID(ctx context.Context, k *resource.Kind, namespace, name string) (string, error)
	// Defined returns when the kind's definition was made. os.ErrNotExist is in the error's chain if there is none, or none that stays.
	Defined(ctx context.Context, k *resource.Kind) (time.Time, error)
	// SetConditions writes an object's conditions. kube.ErrChanged is in the error's chain if the object has changed.
	SetConditions(ctx context.Context, k *resource.Kind, o Object, conditions []metav1.Condition) error
	Warning(about corev1.ObjectReference, reason, message string)
}

// Reporter is told of the objects that are not in force.
type Reporter interface {
	// Report replaces an object's problems by reasons; without reasons it has none.
	Report(about corev1.ObjectReference, reasons ...string)
}

// The conditions of an object, and their reasons. Those of other controllers stay as they are.
const (
	accepted          = "Accepted"
	reasonInvalid     = "Invalid"
	reasonConflict    = "Conflict"
	reasonOverLimit   = "OverLimit"
	realised          = "Realised"
	reasonWaiting     = "Waiting"
	reasonNotAccepted = "NotAccepted"
	// reasonOverwritten is that of an event about a resource that somebody else had changed.
	reasonOverwritten = "Overwritten"
)

// timing: what etcd's contents speak against is tried again every ten seconds, as they may have changed elsewhere.
var timing = reconcile.Timing{Every: 10 * time.Second, Retry: retry.Backoff{First: 250 * time.Millisecond, Longest: time.Minute}}

// Config configures a Keeper.
type Config struct {
	Kind     *resource.Kind
	API      API
	Agents   *Agents
	Etcd     client.Store // as only the leader writes it
	Problems *problems.Ledger
	Reporter Reporter
	// PolicyLimit bounds the total size of a namespace's policies, see kubepolicy.SizeOf; 0 = no limit.
	PolicyLimit int
}

// Keeper keeps the resources of one kind as the objects of the API say.
type Keeper struct {
	Config
	loop    *reconcile.Loop
	tracker *resource.Tracker // for Update

	mu      sync.Mutex
	items   map[name]*item
	changed bool      // etcd's contents have, since what they speak against was tried
	retried time.Time // when it was
	told    time.Time // when those that wait were last told on how many nodes they are realised
	synced  bool      // all objects are known
	read    bool      // all resources are known
	// undefined: the API doesn't serve the kind.
	undefined bool
	turns     *turns
}

type name struct{ namespace, name string }

// item is what is known of one name.
type item struct {
	object  *Object // nil: there is none
	applied string  // the text of the object that etcd holds
	stored  *stored // the resource in etcd that an object has made, nil: there is none
	due     bool
	refused bool // tried again when etcd's contents have changed, and now and then, as what speaks against it may have gone
	kept    bool // without an object, as the definition went
	waiting bool // accepted, and not realised on all nodes
}

// stored is what is known of a resource in etcd.
type stored struct {
	by       resource.By
	entries  []model.Entry
	revision int64 // 0: it isn't known yet
	closed   bool  // it takes the place of a policy that is not in order
}

// New returns a Keeper that knows nothing yet.
func New(cfg Config) *Keeper {
	k := &Keeper{Config: cfg, items: map[name]*item{}, tracker: cfg.Kind.Track(), turns: newTurns(cfg)}
	k.loop = reconcile.New(timing, k.round)
	cfg.Agents.notify(k.loop.Wake)
	return k
}

// Objects returns how many objects are known.
func (k *Keeper) Objects() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range k.items {
		if it.object != nil {
			n++
		}
	}
	return n
}

// item returns what is known of a name. The caller holds mu.
func (k *Keeper) item(n name) *item {
	if k.items[n] == nil {
		k.items[n] = &item{}
	}
	return k.items[n]
}

// change applies a change to what is known.
func (k *Keeper) change(how func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	how()
	k.loop.Wake()
}

// Handler takes in the objects of the API.
func (k *Keeper) Handler() kube.Handler[Object] {
	return kube.Handler[Object]{
		Set: func(o Object) {
			n := name{o.about.Namespace, o.about.Name}
			k.change(func() {
				it := k.item(n)
				if was := it.object; was == nil || was.text != o.text || was.by != o.by { // else it is its status
					it.due = true
					k.turns.set(n, o)
				}
				it.object = &o
			})
		},
		Deleted: func(namespace, called string) {
			n := name{namespace, called}
			k.change(func() {
				it := k.item(n)
				it.object, it.due = nil, true
				k.turns.remove(n)
			})
		},
		Synced: func() {
			k.change(func() { k.synced = true })
			k.all()
		},
		Trouble: func(err error) { k.change(func() { k.undefined = errors.Is(err, kube.ErrNotServed) }) },
	}
}

// all has everything looked at.
func (k *Keeper) all() {
	k.change(func() {
		for _, it := range k.items {
			it.due = true
		}
	})
}

// Watched returns the prefixes of keys that Update must be told of.
func (k *Keeper) Watched() (prefixes []string) {
	for _, r := range k.Kind.Ranges() {
		prefixes = append(prefixes, r.Path())
	}
	return prefixes
}

// Update takes in what etcd has, and each change. Only one goroutine may call it.
func (k *Keeper) Update(u model.Update) {
	gone, changed := k.tracker.Update(u)
	tier := slices.ContainsFunc(u.Entries, func(e model.Entry) bool { _, is := e.Key.(model.TierKey); return is }) // policies may wait for it
	if !u.Resync && !tier && len(gone)+len(changed) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range slices.Concat(gone, changed) {
		n := name{s.Metadata.Namespace, s.Metadata.Name}
		it := k.item(n)
		if it.stored != nil && it.stored.entries[0].Path != s.Entries[0].Path && !s.OwnedByAPI() {
			continue // a host endpoint of another node
		}
		if it.stored = nil; i >= len(gone) && s.OwnedByAPI() {
			by := resource.By{UID: s.Metadata.UID, Created: s.Metadata.CreationTimestamp}
			var revision int64 // of what agents know to be an object's
			for _, e := range s.Entries {
				if e.OfAPI() {
					revision = max(revision, e.Revision)
				}
			}
			it.stored = &stored{by, s.Entries, revision, s.Metadata.Annotations[notAccepted] == "true"}
		}
		it.due = true
	}
	k.read, k.changed = true, true
	k.loop.Wake()
}

// Run writes, while this process leads, until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	k.all()
	_ = k.loop.Run(ctx)                                       // the error is always nil
	for _, what := range []string{k.orphans(), k.writing()} { // they are the next leader's to tell
		k.Problems.Tell(problems.Host, what, nil)
	}
}

// What problems are about.
func (k *Keeper) orphans() string { return k.Kind.Plural + " of the Kubernetes API" }
func (k *Keeper) writing() string {
	return "writing " + k.Kind.Plural + " of the Kubernetes API to etcd"
}

// round brings everything that is due into etcd. The error is that of etcd, or of the API.
func (k *Keeper) round(ctx context.Context) (pause time.Duration, failed error) {
	due, pause := k.due()
	failed = k.keepAll(ctx, due)
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := 0
	for _, it := range k.items {
		if it.waiting && failed == nil && pause == 0 {
			pause = pace
		}
		if it.kept || k.undefined && it.stored != nil {
			kept++
		}
	}
	var orphans error
	if kept > 0 {
		orphans = fmt.Errorf("%d stay in etcd, in force, whose objects went with the definition of their kind: apply the definition and the objects again, or delete them by calicoctl delete --take-over", kept)
	}
	k.Problems.Tell(problems.Host, k.orphans(), orphans)
	if errors.Is(failed, fenced.ErrNotLeading) {
		failed = nil
	}
	k.Problems.Tell(problems.Host, k.writing(), failed)
	return pause, failed
}

// pace is how often an object is told on how many nodes it is realised while it isn't on all.
const pace = time.Second

// due returns what is to be looked at now, and when to ask again for what has to wait, 0 = nothing does. Those that were not realised when
// they were last told are looked at at once if they are by now.
func (k *Keeper) due() (due []name, again time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	tried := k.changed || now.Sub(k.retried) >= timing.Every
	if tried {
		k.changed, k.retried = false, now
	}
	told := now.Sub(k.told) >= pace
	if told {
		k.told = now
	}
	reached, known := k.Agents.least()
	if !k.synced || !k.read || !known {
		return nil, 0
	}
	k.decide()
	var written []name
	for n, it := range k.items {
		it.due = it.due || it.refused && tried || it.waiting && (told || it.stored != nil && it.stored.revision != 0 && it.stored.revision <= reached)
		if !it.due {
			continue
		}
		if it.object != nil && it.object.text != it.applied {
			if rest := k.turns.rest(n, now); rest > 0 {
				if again == 0 || rest < again {
					again = rest
				}
				continue
			}
			written = append(written, n)
		}
		it.due = false
		due = append(due, n)
	}
	k.turns.begin(written, now)
	return due, again
}

// decide has those looked at that are newly over or within their budgets. The caller holds mu.
func (k *Keeper) decide() {
	for _, n := range k.turns.decide() {
		k.item(n).due = true
	}
}

// atOnce is how many objects are written at the same time, and atOnceBytes what their texts come to, of which reading takes a multiple.
const (
	atOnce      = 16
	atOnceBytes = 1 << 20
)

// keepAll brings objects into etcd. Those that failed must be tried again; the error is that of one of them. If that is not for the objects'
// sake, the others wait as well.
func (k *Keeper) keepAll(ctx context.Context, due []name) (failed error) {
	var mu sync.Mutex // guards it
	var group errgroup.Group
	group.SetLimit(atOnce)
	room := semaphore.NewWeighted(atOnceBytes)
	for _, n := range due {
		k.mu.Lock()
		it := k.items[n]
		size := int64(0)
		if it.object != nil {
			size = min(int64(len(it.object.text)), atOnceBytes)
		}
		k.mu.Unlock()
		ended := room.Acquire(ctx, size)
		group.Go(func() error {
			defer func() {
				if ended == nil {
					room.Release(size)
				}
			}()
			mu.Lock()
			err := cmp.Or(ended, failed)
			mu.Unlock()
			if !elsewhere(err) {
				err = k.keep(ctx, n)
			}
			if err == nil {
				return nil
			}
			k.mu.Lock()
			k.item(n).due = true
			k.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			if !elsewhere(failed) {
				failed = err
			}
			return nil
		})
	}
	_ = group.Wait() // the error is always nil
	return failed
}

// elsewhere reports whether an error says nothing of the object that was to be written.
func elsewhere(err error) bool {
	return slices.ContainsFunc([]error{
		store.ErrUnavailable, store.ErrAuth, store.ErrReadOnly, store.ErrUnknownOutcome, fenced.ErrNotLeading, fenced.ErrNotReady, context.Canceled, context.DeadlineExceeded,
	}, func(e error) bool { return errors.Is(err, e) })
}

// requestTimeout bounds what is done for one object.
const requestTimeout = 10 * time.Second

// keep brings one object into etcd, or takes away what one that is gone has made.
func (k *Keeper) keep(ctx context.Context, n name) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	k.mu.Lock()
	it := k.items[n]
	k.decide() // the object may be another than when the round began
	was, over := *it, k.turns.over(n)
	k.mu.Unlock()
	if was.object == nil {
		return k.remove(ctx, n, it)
	}
	o := *was.object
	c := client.New(k.Etcd)
	c.By = o.by
	c.By.Again = was.applied != ""
	r, err := o.resource()
	readable := err == nil
	var outcome client.Outcome
	switch {
	case err != nil:
	case over != nil:
		err = over
	case was.stored != nil && k.holds(r, c.By, was.stored.entries):
		outcome = client.Unchanged
	default:
		outcome, err = c.Apply(ctx, r)
	}
	if elsewhere(err) {
		return err
	}
	k.mu.Lock()
	it.kept, it.refused = false, err != nil && readable // what can't be read waits for another version of it
	if err == nil {
		it.applied, it.waiting = o.text, false
	}
	k.mu.Unlock()
	if outcome == client.Configured && was.applied == o.text {
		k.API.Warning(o.about, reasonOverwritten, "somebody else had changed it in etcd, and it was written again: change the object in Kubernetes instead")
	}
	if err == nil {
		k.Reporter.Report(o.about)
		if outcome != client.Unchanged {
			return nil // etcd's watch is about to report as of which revision
		}
		return k.tell(ctx, it, o, isAccepted)
	}
	reason, text := reasonInvalid, err.Error()
	if _, is := errors.AsType[*resource.OwnedError](err); is {
		reason = reasonConflict
	} else if over != nil {
		reason = reasonOverLimit
	}
	switch {
	case reason == reasonConflict:
	case reason == reasonInvalid && was.stored != nil && !was.stored.closed:
		text += ": what was accepted before stays in force"
	default:
		instead := ": nothing of it is in force"
		if shut, is := o.closed(); is {
			c.By.TakeOver = false // what somebody else has written stays as it is
			if _, bad := c.Apply(ctx, shut); elsewhere(bad) {
				return bad
			} else if bad == nil {
				instead = ": until it is corrected it allows nothing"
			}
		}
		text += instead
	}
	k.Reporter.Report(o.about, text)
	return k.tell(ctx, it, o, metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: text})
}

// holds reports whether a resource is stored just as its object asks for. What isn't known yet of etcd leads to another look.
func (k *Keeper) holds(r resource.Resource, by resource.By, entries []model.Entry) bool {
	r.By = by
	change, created, err := k.Kind.Write(k.Kind.NameRanges(r.Metadata.Namespace, r.Metadata.Name), entries, r, resource.Apply)
	return err == nil && !created && change.Empty()
}

// isAccepted is the condition of an object that is in order.
var isAccepted = metav1.Condition{Status: metav1.ConditionTrue, Reason: accepted, Message: "It is in etcd."}

// maxMessage is the length of a condition's message that the API accepts.
const maxMessage = 32768

// tell writes an object's conditions.
func (k *Keeper) tell(ctx context.Context, it *item, o Object, is metav1.Condition) error {
	is.Type = accepted
	want := slices.Clone(o.conditions)
	changed := false
	for _, c := range []metav1.Condition{is, k.realised(it, o, is.Status == metav1.ConditionTrue)} {
		c.ObservedGeneration, c.Message = o.generation, strings.ToValidUTF8(c.Message[:min(len(c.Message), maxMessage)], "")
		changed = meta.SetStatusCondition(&want, c) || changed
	}
	if !changed {
		return nil
	}
	err := k.API.SetConditions(ctx, k.Kind, o, want)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch now := it.object; {
	case errors.Is(err, os.ErrNotExist):
		return nil // the watch is about to report it
	case errors.Is(err, kube.ErrChanged):
		it.due = true // until the watch has reported it
		return nil
	case err == nil && now != nil && now.about.ResourceVersion == o.about.ResourceVersion: // else the watch has already reported it
		o.conditions = want
		it.object = &o
	}
	return err
}

// realised returns the condition that says whether all agents have in force what an object says.
func (k *Keeper) realised(it *item, o Object, accepted bool) metav1.Condition {
	k.mu.Lock()
	defer k.mu.Unlock()
	if it.waiting = false; !accepted {
		return metav1.Condition{Type: realised, Status: metav1.ConditionFalse, Reason: reasonNotAccepted, Message: "It isn't accepted."}
	}
	var revision int64
	if it.stored != nil {
		revision = it.stored.revision
	}
	all, text := k.Agents.realise(revision)
	if !all {
		it.waiting = true
		return metav1.Condition{Type: realised, Status: metav1.ConditionFalse, Reason: reasonWaiting, Message: text}
	}
	if was := meta.FindStatusCondition(o.conditions, realised); was != nil && was.Status == metav1.ConditionTrue && was.ObservedGeneration == o.generation {
		return *was // nodes that come later, or go, don't make all objects change
	}
	return metav1.Condition{Type: realised, Status: metav1.ConditionTrue, Reason: realised, Message: text}
}

// remove deletes the resource of an object that was deleted.
func (k *Keeper) remove(ctx context.Context, n name, it *item) error {
	k.mu.Lock()
	was := it.stored
	it.applied, it.refused, it.kept, it.waiting = "", false, false, false
	if was == nil && it.object == nil && !it.due {
		delete(k.items, n)
	}
	k.mu.Unlock()
	about := corev1.ObjectReference{APIVersion: resource.APIVersion, Kind: k.Kind.Name, Namespace: n.namespace, Name: n.name}
	k.Reporter.Report(about)
	if was == nil {
		return nil
	}
	stays := func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		it.kept = true
		return nil
	}
	switch _, err := k.API.UID(ctx, k.Kind, n.namespace, n.name); {
	case err == nil:
		return errors.New("it has an object that the watch has yet to tell of")
	case errors.Is(err, kube.ErrNotServed):
		return stays()
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("is its object gone? %w", err)
	}
	made, err := time.Parse(time.RFC3339, was.by.Created)
	if err != nil {
		return stays()
	}
	// Nobody deleted an object that was deleted along with its definition, even if that is there again.
	switch since, err := k.API.Defined(ctx, k.Kind); {
	case errors.Is(err, os.ErrNotExist), err == nil && since.After(made):
		return stays()
	case err != nil:
		return fmt.Errorf("is the definition of its kind gone? %w", err)
	}
	c := client.New(k.Etcd)
	c.By = was.by
	kind := k.Kind
	if key, is := was.entries[0].Key.(model.HostEndpointKey); is { // others may have one of this name
		if kind, err = kind.On(key.Host); err != nil {
			return err
		}
	}
	if s, err := c.Get(ctx, kind, n.namespace, n.name); err == nil && s.Metadata.UID == was.by.UID {
		if r, retires := kind.Retired(&s); retires { // what prevents its deletion goes in time
			if _, err := c.Apply(ctx, r); elsewhere(err) {
				return err
			}
		}
	}
	err = c.Delete(ctx, kind, n.namespace, n.name, "")
	if elsewhere(err) {
		return err
	}
	_, missing := errors.AsType[*resource.NotFoundError](err)
	_, another := errors.AsType[*resource.OwnedError](err)
	if err != nil && !missing && !another {
		k.mu.Lock()
		defer k.mu.Unlock()
		it.refused = true
		k.Reporter.Report(about, "its object is deleted, and it stays: "+err.Error())
	}
	return nil
}
