// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/etcd"
)

// made is when the definitions of the tests were made.
var made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is an API, an etcd, and a Keeper of one kind between them.
type world struct {
	*etcd.Server
	keeper *Keeper
	agents *Agents
	kind   *resource.Kind
	ledger *problems.Ledger

	mu       sync.Mutex
	there    map[string]string // uids
	defined  time.Time
	gone     error // why there is no definition
	fail     int   // so many conditions aren't written
	told     map[string][]metav1.Condition
	warned   []string
	reported map[string]string
}

func newWorld(t *testing.T, kind string) *world {
	t.Helper()
	k, err := resource.Find(kind)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		Server: etcd.New(t), kind: k, ledger: problems.New(slog.New(slog.DiscardHandler)), there: map[string]string{}, defined: made,
		told: map[string][]metav1.Condition{}, agents: NewAgents(), reported: map[string]string{},
	}
	w.keeper = New(Config{Kind: k, API: w, Agents: w.agents, Etcd: w.Store, Problems: w.ledger, Reporter: w})
	return w
}

// start runs the Keeper until the test ends. All objects that were set before are known.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	w.Cleanup(func() {
		cancel()
		all.Wait()
	})
	w.keeper.Handler().Synced()
	all.Go(func() {
		_ = w.Store.Watch(ctx, w.keeper.Watched(), func(u model.Update) error {
			w.keeper.Update(u)
			return nil
		})
	})
	all.Go(func() {
		_ = w.Store.Watch(ctx, w.agents.Watched(), func(u model.Update) error {
			w.agents.Update(u)
			return nil
		})
	})
	all.Go(func() { w.keeper.Run(ctx) })
}

// set has the API report an object, whose document lacks its version and kind.
func (w *world) set(uid, doc string) {
	w.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
		w.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: o}
	u.SetAPIVersion(resource.APIVersion)
	u.SetKind(w.kind.Name)
	u.Object["metadata"].(map[string]any)["uid"] = uid
	u.SetCreationTimestamp(metav1.NewTime(made.Add(time.Hour)))
	u.SetGeneration(1)
	w.mu.Lock()
	w.there[u.GetName()] = uid
	w.mu.Unlock()
	w.keeper.Handler().Set(ObjectOf(w.kind, u))
}

// remove has the API report that an object is gone.
func (w *world) remove(name string) {
	w.mu.Lock()
	delete(w.there, name)
	w.mu.Unlock()
	w.keeper.Handler().Deleted("", name)
}

// The API and the Reporter.

func (w *world) Watch(context.Context, *resource.Kind, kube.Handler[Object]) error { return nil }

func (w *world) UID(_ context.Context, _ *resource.Kind, _, name string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(w.gone, kube.ErrNotServed):
		return "", w.gone
	case w.there[name] == "":
		return "", os.ErrNotExist
	}
	return w.there[name], nil
}

func (w *world) Defined(context.Context, *resource.Kind) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.defined, w.gone
}

func (w *world) SetConditions(_ context.Context, _ *resource.Kind, o Object, all []metav1.Condition) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail > 0 {
		w.fail--
		return errors.New("503")
	}
	w.told[o.about.Name] = all
	return nil
}

func (w *world) Warning(about corev1.ObjectReference, reason, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warned = append(w.warned, reason+" "+about.Name)
}

func (w *world) Report(about corev1.ObjectReference, reasons ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reported[about.Name] = strings.Join(reasons, "; ")
}

// expect waits until one of an object's conditions has this reason, and a message that contains text.
func (w *world) expect(name, reason, text string) {
	w.Helper()
	w.Until(name+" is "+reason+": "+text, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.told[name], func(have metav1.Condition) bool {
			return have.Reason == reason && strings.Contains(have.Message, text) && (reason == have.Type) == (have.Status == metav1.ConditionTrue)
		})
	})
}

// resource returns a resource in etcd, nil if it isn't there.
func (w *world) resource(name string) *resource.Stored {
	s, err := client.New(w.Store).Get(context.Background(), w.kind, "", name)
	if err != nil {
		return nil
	}
	return &s
}

func (w *world) untilGone(name string) {
	w.Helper()
	w.Until(name+" is gone", func() bool { return w.resource(name) == nil })
}

// apply writes a resource as the operator does.
func (w *world) apply(doc string, by resource.By) error {
	w.Helper()
	all, err := resource.Decode("doc", []byte("apiVersion: projectcalico.org/v3\nkind: "+w.kind.Name+"\n"+doc))
	if err != nil {
		w.Fatal(err)
	}
	c := client.New(w.Store)
	c.By = by
	_, err = c.Apply(context.Background(), all[0])
	return err
}

// TestCarried: an object makes a resource, which follows it, is restored, is refused to calicoctl, and goes with it.
func TestCarried(t *testing.T) {
	w := newWorld(t, "IPPool")
	w.set("u1", "metadata: {name: a, labels: {x: one}, annotations: {kubectl.kubernetes.io/last-applied-configuration: z, note: m}}\nspec: {cidr: 10.0.0.0/16}")
	w.start()
	w.expect("a", accepted, "")
	s := w.resource("a")
	if m := s.Metadata; m.UID != "u1" || m.Labels["x"] != "one" || len(m.Annotations) != 1 || !s.OwnedByAPI() {
		t.Errorf("%+v", m)
	}
	w.set("u1", "metadata: {name: a}\nspec: {cidr: 10.0.0.0/16, natOutgoing: true}")
	pool := func(why string, is func(model.Pool) bool) {
		t.Helper()
		w.Until(why, func() bool {
			p, _ := w.Get(s.Entries[0].Key).(model.Pool)
			return is(p)
		})
	}
	pool("the change is in etcd", func(p model.Pool) bool { return p.Masquerade && p.Labels == "" })

	var owned *resource.OwnedError
	if err := w.apply("metadata: {name: a}\nspec: {cidr: 10.0.0.0/16}", resource.By{}); !errors.As(err, &owned) || !strings.Contains(err.Error(), "use kubectl with ippools.projectcalico.org") {
		t.Errorf("calicoctl changes what an object has made: %v", err)
	}
	if err := client.New(w.Store).Delete(t.Context(), w.kind, "", "a", ""); !errors.As(err, &owned) {
		t.Errorf("calicoctl deletes what an object has made: %v", err)
	}
	p := w.Get(s.Entries[0].Key).(model.Pool)
	p.Disabled = true
	w.Put(s.Entries[0].Key, p)
	pool("the pool is restored", func(p model.Pool) bool { return !p.Disabled })
	w.Until("that is told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.warned) > 0 && w.warned[0] == reasonOverwritten+" a"
	})
	w.Remove(s.Entries[0].Key)
	pool("the pool is made again", func(p model.Pool) bool { return p.Masquerade })

	// The operator takes it, and the object gets it back.
	if err := w.apply("metadata: {name: a}\nspec: {cidr: 10.0.0.0/16, disabled: true}", resource.By{TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	w.expect("a", reasonConflict, "was written by calicoctl")
	w.set("u1", "metadata: {name: a, annotations: {projectcalico.org/take-over: 'true'}}\nspec: {cidr: 10.0.0.0/16}")
	w.expect("a", accepted, "")
	pool("the pool is the object's again", func(p model.Pool) bool { return !p.Disabled && p.Owner == "k8s:u1" })
	w.remove("a")
	w.untilGone("a")
}

// TestRealised: an object says on how many of the live nodes it is in force, and is told at once when it is on all.
func TestRealised(t *testing.T) {
	w := newWorld(t, "FelixConfiguration")
	agent := func(host string, first bool, revision int64) {
		w.Put(model.StatusKey{Host: host}, model.Status{Time: made, FirstUpdate: first, PolicyRevision: revision})
	}
	w.set("u1", "metadata: {name: default}\nspec: {ipipMTU: 1400}")
	w.start()
	w.expect("default", reasonWaiting, "0/0 nodes")
	latest := func() (revision int64) {
		s := w.resource("default")
		for _, e := range s.Entries {
			if e.OfAPI() {
				revision = e.Revision
			}
		}
		return revision
	}
	agent("starting", false, 0)
	agent("n1", true, latest())
	w.expect("default", realised, "1/1 nodes")
	agent("n2", true, 0) // a node that comes later changes nothing
	w.set("u1", "metadata: {name: default}\nspec: {ipipMTU: 1401}")
	w.expect("default", reasonWaiting, "0/2 nodes, not n1, n2")
	agent("n1", true, latest())
	w.expect("default", reasonWaiting, "1/2 nodes, not n2")
	w.Remove(model.StatusKey{Host: "n2"})
	w.expect("default", realised, "1/1 nodes")
	w.set("u1", "metadata: {name: default}\nspec: {ipipMTU: many}")
	w.expect("default", reasonNotAccepted, "")
}

// mortal is a process that ends with its nth request: before that is done, or after.
type mortal struct {
	die   func()
	after bool

	mu   sync.Mutex
	left int
}

type (
	mortalAPI struct {
		*world
		process *mortal
	}
	mortalEtcd struct {
		client.Store
		process *mortal
	}
)

// step returns an error once the process is dead, at one of two moments of a request.
func (m *mortal) step(after bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.after == after {
		m.left--
	}
	if m.left < 0 {
		m.die()
		return context.Canceled
	}
	return nil
}

func (m mortalEtcd) Transact(ctx context.Context, wants []model.Range, decide func(*model.View) (model.Change, error), opts ...store.TransactOption) (revision int64, err error) {
	if err := m.process.step(false); err != nil {
		return 0, err
	}
	revision, err = m.Store.Transact(ctx, wants, decide, opts...)
	return revision, cmp.Or(err, m.process.step(true))
}

func (m mortalAPI) SetConditions(ctx context.Context, k *resource.Kind, o Object, all []metav1.Condition) error {
	if err := m.process.step(false); err != nil {
		return err
	}
	return cmp.Or(m.world.SetConditions(ctx, k, o, all), m.process.step(true))
}

// TestTold: a process that starts writes no condition again that the API has, and leaves those of others.
func TestTold(t *testing.T) {
	w := newWorld(t, "Tier")
	w.Put(model.StatusKey{Host: "n1"}, model.Status{Time: made, FirstUpdate: true, PolicyRevision: math.MaxInt32})
	conditions := "\nstatus:\n  conditions:"
	for reason, message := range map[string]string{accepted: isAccepted.Message, realised: "1/1 nodes", "Ready": "x"} {
		conditions += fmt.Sprintf("\n  - {type: %s, status: 'True', observedGeneration: 1, reason: %[1]s, message: %s, lastTransitionTime: '2026-01-02T03:04:05Z'}", reason, message)
	}
	w.set("u1", "metadata: {name: a}\nspec: {order: 5}"+conditions)
	w.set("u2", "metadata: {name: b}\nspec: {order: soon}"+conditions)
	w.start()
	w.expect("b", reasonInvalid, "spec.order")
	w.expect("b", "Ready", "x")
	w.Until("a is written", func() bool { return w.resource("a") != nil })
	w.set("u3", "metadata: {name: c}\nspec: {order: 7}")
	w.expect("c", realised, "1/1 nodes")
	w.mu.Lock()
	defer w.mu.Unlock()
	if is := w.told["a"]; is != nil {
		t.Errorf("what the API has is written again: %v", is)
	}
}

// TestKilled: whatever request is a process's last, the next process gets to what the objects say, and deletes nothing of others.
func TestKilled(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n, died := 0, true; died; n++ {
			w := newWorld(t, "IPPool")
			for uid, doc := range map[string]string{"u1": "metadata: {name: changed}\nspec: {cidr: 10.1.0.0/24}", "u2": "metadata: {name: gone}\nspec: {cidr: 10.2.0.0/24}"} {
				if err := w.apply(doc, resource.By{UID: uid, Created: made.Add(time.Hour).Format(time.RFC3339)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.apply("metadata: {name: own}\nspec: {cidr: 10.3.0.0/24}", resource.By{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			process := &mortal{die: cancel, after: after, left: n}
			second := w.keeper
			objects := func(k *Keeper) {
				w.keeper = k
				w.set("u0", "metadata: {name: new}\nspec: {cidr: 10.0.0.0/24}")
				w.set("u1", "metadata: {name: changed}\nspec: {cidr: 10.1.0.0/24, natOutgoing: true}")
				w.set("u3", "metadata: {name: bad}\nspec: {cidr: 10.1.0.0/28}")
				k.Handler().Synced()
			}
			k := New(Config{Kind: w.kind, API: mortalAPI{w, process}, Agents: w.agents, Etcd: mortalEtcd{w.Store, process}, Problems: w.ledger, Reporter: w})
			objects(k)
			var all sync.WaitGroup
			all.Go(func() {
				_ = w.Store.Watch(ctx, slices.Concat(k.Watched(), w.agents.Watched()), func(u model.Update) error {
					k.Update(u)
					w.agents.Update(u)
					return nil
				})
			})
			done := func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				changed, _ := w.Get(model.PoolKey{CIDR: netip.MustParsePrefix("10.1.0.0/24")}).(model.Pool)
				return len(w.told["new"]) > 0 && len(w.told["bad"]) > 0 && len(w.told["changed"]) > 0 && changed.Masquerade && w.resource("gone") == nil
			}
			all.Go(func() { k.Run(ctx) })
			w.Until("the first process ends, or has done everything", func() bool { return ctx.Err() != nil || done() })
			died = ctx.Err() != nil
			cancel()
			all.Wait()

			w.mu.Lock()
			w.told = map[string][]metav1.Condition{}
			w.mu.Unlock()
			objects(second)
			w.start()
			w.expect("new", accepted, "")
			w.expect("changed", accepted, "")
			w.expect("bad", reasonInvalid, "overlaps the pool 10.1.0.0/24")
			w.untilGone("gone")
			if w.resource("own") == nil || !done() {
				t.Errorf("killed at request %d (after it: %v): what calicoctl wrote is there: %v", n, after, w.resource("own") != nil)
			}
		}
	}
}

// TestAway: what changes while etcd is away is written when it is back.
func TestAway(t *testing.T) {
	w := newWorld(t, "Tier")
	w.set("u1", "metadata: {name: a}\nspec: {order: 5}")
	w.set("u2", "metadata: {name: b}\nspec: {order: 5}")
	w.start()
	w.expect("a", accepted, "")
	w.expect("b", accepted, "")
	w.Stop()
	w.set("u1", "metadata: {name: a}\nspec: {order: 6}")
	w.remove("b")
	w.Start()
	w.Until("the change is written", func() bool {
		tier, _ := w.Get(model.TierKey{Tier: "a"}).(model.Tier)
		return tier.Order != nil && *tier.Order == 6
	})
	w.untilGone("b")
}

// TestPoolInUse: the pool of an object that is deleted gives out no more addresses, and goes with its last one.
func TestPoolInUse(t *testing.T) {
	w := newWorld(t, "IPPool")
	w.set("u1", "metadata: {name: a}\nspec: {cidr: 10.0.0.0/24}")
	w.start()
	cidr := netip.MustParsePrefix("10.0.0.0/30")
	w.Until("the pool is there", func() bool { return w.resource("a") != nil })
	w.Put(model.BlockKey{CIDR: cidr}, model.Block{
		CIDR: cidr, Affinity: "n1", Allocations: []int{model.Free, 0, model.Free, model.Free}, Unallocated: []int{0, 2, 3}, Attributes: []model.Attributes{{HandleID: "h"}},
	})
	w.remove("a")
	w.Until("it is told that the pool stays", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Contains(w.reported["a"], "1 address in use on 1 node")
	})
	if p, _ := w.Get(w.resource("a").Entries[0].Key).(model.Pool); !p.Disabled {
		t.Error("the pool still gives out addresses")
	}
	w.Remove(model.BlockKey{CIDR: cidr})
	w.set("u2", "metadata: {name: b}\nspec: {cidr: 10.1.0.0/24}") // there is something to do
	w.untilGone("a")
}

// TestTwoWriters: an object adopts what is as it says, and leaves what is otherwise.
func TestTwoWriters(t *testing.T) {
	w := newWorld(t, "Tier")
	for _, doc := range []string{"metadata: {name: same, annotations: {note: m}}\nspec: {order: 5}", "metadata: {name: other}\nspec: {order: 5}", "metadata: {name: alone}\nspec: {order: 5}"} {
		if err := w.apply(doc, resource.By{}); err != nil {
			t.Fatal(err)
		}
	}
	w.set("u1", "metadata: {name: same, labels: {kustomize.toolkit.fluxcd.io/name: x}, annotations: {note: m, argocd.argoproj.io/tracking-id: x}}\nspec: {order: 5}")
	w.set("u2", "metadata: {name: other}\nspec: {order: 6}")
	w.start()
	w.expect("same", accepted, "")
	w.expect("other", reasonConflict, "annotate this one with projectcalico.org/take-over=true")
	if order := *w.resource("other").Spec.(*resource.Tier).Order; order != 5 {
		t.Errorf("the older one is replaced: %v", order)
	}
	// One who doesn't know of owners, or writes what can't be read, doesn't make it his own.
	key := model.TierKey{Tier: "same"}
	restored := func(what string) {
		t.Helper()
		w.Until(what, func() bool {
			tier, _ := w.Get(key).(model.Tier)
			return tier.Order != nil && *tier.Order == 5 && tier.Owner == "k8s:u1"
		})
	}
	w.Put(key, model.Tier{Order: new(7.0)})
	restored("the tier is restored with its owner")
	w.Client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, key.Path(), "junk")
		return err
	})
	restored("the tier can be read again")
	// An object deleted while these controllers were away took nothing of another's with it.
	w.remove("other")
	w.remove("same")
	w.untilGone("same")
	if w.resource("other") == nil || w.resource("alone") == nil {
		t.Error("what calicoctl wrote is gone")
	}
}

// TestDefinitionGone: what is in force stays when the definition of a kind goes, and can be made again by other objects.
func TestDefinitionGone(t *testing.T) {
	w := newWorld(t, "Tier")
	w.set("u1", "metadata: {name: a}\nspec: {order: 5}")
	w.set("u2", "metadata: {name: b}\nspec: {order: 5}")
	w.start()
	w.expect("a", accepted, "")
	w.expect("b", accepted, "")
	for _, gone := range []error{fmt.Errorf("it is being deleted: %w", os.ErrNotExist), kube.ErrNotServed} {
		w.mu.Lock()
		w.gone = gone
		w.mu.Unlock()
		w.remove("a")
		w.remove("b")
		w.Until("that is told", func() bool {
			return strings.Contains(w.ledger.Of(problems.Host, "Tiers of the Kubernetes API").Reason, "2 stay in etcd")
		})
	}
	w.mu.Lock()
	w.gone, w.defined = nil, made.Add(2*time.Hour)
	w.mu.Unlock()
	w.keeper.Handler().Synced()
	w.set("u3", "metadata: {name: a}\nspec: {order: 7}")
	w.Until("another object has it", func() bool { return w.resource("a").Metadata.UID == "u3" })
	w.Until("one is left", func() bool {
		return strings.Contains(w.ledger.Of(problems.Host, "Tiers of the Kubernetes API").Reason, "1 stay in etcd")
	})
	if w.resource("b") == nil {
		t.Error("what is in force is deleted")
	}
}

// TestRefused: what etcd's contents speak against is tried again, and a policy that is not in order allows nothing.
func TestRefused(t *testing.T) {
	w := newWorld(t, "GlobalNetworkPolicy")
	w.set("u1", "metadata: {name: a}\nspec: {tier: t, selector: x == 'y', ingress: [{action: Allow}]}")
	w.set("u2", "metadata: {name: b}\nspec: {selector: x == 'y', ingress: [{action: Allow, source: {selector: '=='}}]}")
	w.set("u3", "metadata: {name: c}\nspec: {selector: '==', ingress: [{action: Allow}]}")
	w.set("u4", "metadata: {name: d}\nspec: {selector: x == 'y', order: soon, future: x, ingress: [{action: Allow}]}")
	w.start()
	w.expect("a", reasonInvalid, "spec.tier: there is no tier t: make it first")
	w.expect("b", reasonInvalid, "spec.ingress[0].source.selector")
	w.expect("b", reasonInvalid, "until it is corrected it allows nothing")
	w.expect("c", reasonInvalid, "spec.selector")
	w.expect("c", reasonInvalid, "nothing of it is in force")
	w.expect("d", reasonInvalid, "until it is corrected it allows nothing")
	if p, _ := w.Get(model.PolicyKey{Tier: "default", Policy: "d"}).(model.Policy); p.Selector != "x == 'y'" || len(p.Inbound) != 0 || p.Order != nil {
		t.Errorf("%+v", p)
	}
	p := w.Get(model.PolicyKey{Tier: "default", Policy: "b"}).(model.Policy)
	if p.Selector != "x == 'y'" || len(p.Inbound) != 0 || !p.Applies(model.Inbound) || p.Applies(model.Outbound) {
		t.Errorf("%+v", p)
	}
	w.Put(model.TierKey{Tier: "t"}, model.Tier{})
	w.expect("a", accepted, "")
	w.set("u2", "metadata: {name: b}\nspec: {selector: x == 'w', ingress: [{action: Allow, source: {selector: '=='}}]}")
	w.Until("the closed policy follows", func() bool {
		p, _ := w.Get(model.PolicyKey{Tier: "default", Policy: "b"}).(model.Policy)
		return p.Selector == "x == 'w'" && len(p.Inbound) == 0
	})
	w.expect("b", reasonInvalid, "until it is corrected it allows nothing")
	w.set("u2", "metadata: {name: b}\nspec: {selector: x == 'y', ingress: [{action: Allow}]}")
	w.expect("b", accepted, "")
	w.set("u2", "metadata: {name: b}\nspec: {selector: x == 'z', ingress: [{action: Allow, source: {nets: [oops]}}]}")
	w.expect("b", reasonInvalid, "what was accepted before stays in force")
	if p := w.Get(model.PolicyKey{Tier: "default", Policy: "b"}).(model.Policy); p.Selector != "x == 'y'" || len(p.Inbound) != 1 {
		t.Errorf("%+v", p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported["a"] != "" || w.reported["c"] == "" {
		t.Errorf("%q", w.reported)
	}
}

// TestOverLimit: a namespace's policies that don't fit into its budget beside the older ones allow nothing until they do.
func TestOverLimit(t *testing.T) {
	w := newWorld(t, "NetworkPolicy")
	cfg := w.keeper.Config
	cfg.PolicyLimit = 5
	w.keeper = New(cfg)
	set := func(uid, name, nets string) {
		w.set(uid, "metadata: {name: "+name+", namespace: "+name[:2]+"}\nspec: {selector: all(), types: [Ingress], ingress: [{action: Allow, source: {nets: ["+nets+"]}}]}")
	}
	rules := func(name string, n int) {
		t.Helper()
		w.Until(fmt.Sprintf("%s has %d rules", name, n), func() bool {
			p, is := w.Get(model.PolicyKey{Tier: "default", Policy: name[:2] + "/" + name}).(model.Policy)
			return is && len(p.Inbound) == n
		})
	}
	set("u1", "n1-a", "10.0.0.0/24, 10.0.1.0/24")
	set("u2", "n1-b", "10.0.0.0/24, 10.0.1.0/24")
	set("u3", "n2-c", "10.0.0.0/24, 10.0.1.0/24")
	w.start()
	w.expect("n1-a", accepted, "")
	w.expect("n1-b", reasonOverLimit, "its size of 3 (1 for each rule")
	w.expect("n2-c", accepted, "")
	rules("n1-a", 1)
	rules("n1-b", 0)
	rules("n2-c", 1)
	set("u1", "n1-a", "10.0.0.0/24") // there is room for both
	w.expect("n1-b", accepted, "")
	rules("n1-b", 1)
	set("u1", "n1-a", "10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24")
	w.expect("n1-b", reasonOverLimit, "leave of 5")
	rules("n1-b", 0) // what was accepted doesn't stay
	rules("n1-a", 1)
	w.keeper.Handler().Deleted("n1", "n1-a")
	w.expect("n1-b", accepted, "")
}

// TestDerived: what the controllers make of Kubernetes' own objects, or of themselves, no object may make.
func TestDerived(t *testing.T) {
	for kind, doc := range map[string]string{
		"Tier":                "metadata: {name: kube-admin}\nspec: {order: 1000, defaultAction: Pass}",
		"GlobalNetworkPolicy": "metadata: {name: nodes}\nspec: {tier: calico-host-protection, ingress: [{action: Allow}]}",
		"HostEndpoint":        "metadata: {name: n1-auto-hep, labels: {projectcalico.org/created-by: calico-controllers}}\nspec: {node: n1, expectedIPs: [192.0.2.1]}",
	} {
		w := newWorld(t, kind)
		w.Put(model.TierKey{Tier: "calico-host-protection"}, model.Tier{})
		w.Put(model.TierKey{Tier: "kube-admin"}, model.Tier{Order: new(1000.0), DefaultAction: model.TierPass})
		w.set("u1", doc)
		w.start()
		name := strings.TrimSuffix(strings.Fields(doc)[2], "}")
		w.expect(strings.TrimSuffix(name, ","), reasonInvalid, "")
		snapshot, err := w.Store.Read(context.Background(), model.PrefixRange(model.Root))
		if err != nil {
			t.Fatal(err)
		}
		if all := snapshot.Entries(); len(all) != 2 || all[0].OfAPI() || all[1].OfAPI() {
			t.Errorf("%s: %v", kind, all)
		}
	}
}

// TestHostEndpoints: an object's host endpoint is its own beside those of the same name on other nodes.
func TestHostEndpoints(t *testing.T) {
	w := newWorld(t, "HostEndpoint")
	w.set("u1", "metadata: {name: eth0}\nspec: {node: n1, interfaceName: eth0}")
	w.start()
	w.expect("eth0", accepted, "")
	if err := w.apply("metadata: {name: eth0}\nspec: {node: n2, interfaceName: eth0}", resource.By{}); err != nil {
		t.Fatal(err)
	}
	ours, theirs := model.HostEndpointKey{Host: "n1", Endpoint: "eth0"}, model.HostEndpointKey{Host: "n2", Endpoint: "eth0"}
	w.set("u1", "metadata: {name: eth0}\nspec: {node: n1, interfaceName: eth1}")
	w.Until("the object's follows", func() bool {
		e, _ := w.Get(ours).(model.HostEndpoint)
		return e.Name == "eth1"
	})
	w.remove("eth0")
	w.Until("the object's is gone", func() bool { return w.Get(ours) == nil })
	if w.Get(theirs) == nil {
		t.Error("that of another node is gone")
	}
}

// TestTroubles: what fails once is done the next time, and nothing is told before.
func TestTroubles(t *testing.T) {
	w := newWorld(t, "Tier")
	agent := func(revision int64) {
		w.Put(model.StatusKey{Host: "n1"}, model.Status{Time: made, FirstUpdate: true, PolicyRevision: revision})
	}
	agent(1)
	w.set("u1", "metadata: {name: a}\nspec: {order: 5}")
	w.set("u2", "metadata: {name: b}\nspec: {order: 5}")
	w.start()
	w.expect("a", reasonWaiting, "0/1 nodes")
	w.expect("b", accepted, "")
	w.mu.Lock()
	w.fail = 1
	w.mu.Unlock()
	agent(math.MaxInt32)
	w.expect("a", realised, "1/1 nodes")
	w.expect("b", realised, "1/1 nodes")
	w.mu.Lock()
	w.gone = errors.New("the API server is overloaded")
	w.mu.Unlock()
	w.remove("b")
	w.Until("that is told", func() bool {
		return strings.Contains(w.ledger.Of(problems.Host, w.keeper.writing()).Reason, "overloaded")
	})
	w.mu.Lock()
	w.gone = nil
	w.mu.Unlock()
	w.untilGone("b")

	// What can't be read doesn't take over what somebody else has written.
	if err := w.apply("metadata: {name: own}\nspec: {order: 5}", resource.By{}); err != nil {
		t.Fatal(err)
	}
	w.set("u3", "metadata: {name: own, annotations: {projectcalico.org/take-over: 'true'}}\nspec: {order: soon}")
	w.expect("own", reasonInvalid, "spec.order")
	if s := w.resource("own"); s == nil || s.OwnedByAPI() {
		t.Errorf("%+v", s)
	}
}

// TestApart: resources without a place for their owner have it at a key of its own.
func TestApart(t *testing.T) {
	w := newWorld(t, "FelixConfiguration")
	w.set("u1", "metadata: {name: default, labels: {a: b}}\nspec: {logSeverityScreen: DEBUG}")
	w.set("u2", "metadata: {name: node.n1}\nspec: {}")
	w.start()
	w.expect("default", accepted, "")
	w.expect("node.n1", accepted, "")
	if m := w.resource("default").Metadata; m.UID != "u1" || m.Labels["a"] != "b" {
		t.Errorf("%+v", m)
	}
	if err := w.apply("metadata: {name: node.n1}\nspec: {logSeverityScreen: DEBUG}", resource.By{}); err == nil {
		t.Error("calicoctl changes what an object has made")
	}
	w.remove("default")
	w.untilGone("default")
	if w.resource("node.n1") == nil || w.Get(model.GlobalConfigKey{Name: "LogSeverityScreen"}) != nil {
		t.Error("another resource is gone, or this one isn't wholly")
	}
}
