// SPDX-License-Identifier: Apache-2.0

package owned_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/controllers/owned"
	"github.com/calico-go/calico/pkg/controllers/writer"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
	"github.com/calico-go/calico/test/keeper"
)

const prefix = "/calico/v1/policy/tier/default/policy/knp."

// world is a keeper of policies beside an etcd.
type world struct {
	*etcd.Server
	*owned.Keeper

	mu       sync.Mutex
	needed   map[model.Key]bool
	living   map[model.Key]bool
	failed   map[model.Key]error
	asked    int // what lives
	restored map[model.Key][]writer.Object
}

func newWorld(t *testing.T) *world {
	w := &world{Server: etcd.New(t), needed: map[model.Key]bool{}, living: map[model.Key]bool{}, failed: map[model.Key]error{}, restored: map[model.Key][]writer.Object{}}
	w.Keeper = owned.New(owned.Config{
		Config: writer.Config{Etcd: w.Store, Problems: problems.New(slog.New(slog.DiscardHandler)), Reporter: w},
		Kinds:  map[string]string{prefix: "Policy", "/calico/v1/policy/tier/other/policy/knp.": "Other"},
		After:  map[string]string{"Other": "Policy"},
		Needed: func(e model.Entry) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.needed[e.Key]
		},
		Living: func(_ context.Context, k model.Key) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked++
			return w.living[k], nil
		},
	})
	return w
}

func (w *world) Wrote(writer.Object, time.Duration) {}

func (w *world) Failed(_ writer.Object, k model.Key, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[k] = err
}

func (w *world) Restored(of writer.Object, k model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored[k] = append(w.restored[k], of)
}

// start makes the keeper read etcd and write there.
func (w *world) start() *keeper.Running { return keeper.Run(w.Server, w.Keeper, w.Watched()...) }

func policyKey(name string) model.PolicyKey {
	return model.PolicyKey{Tier: "default", Policy: "knp." + name}
}

func policy(name string) model.Policy { return model.Policy{Selector: fmt.Sprintf("a == %q", name)} }

func (w *world) set(name string) {
	w.Helper()
	err := w.Set(writer.Object{Kind: "Policy", Name: name}, []model.Put{{Key: policyKey(name), Value: policy(name)}})
	if err != nil {
		w.Fatal(err)
	}
}

// holds waits until etcd has exactly these policies of ours.
func (w *world) holds(want map[string]model.Policy) {
	w.Helper()
	var diff string
	w.Until("etcd has what is desired", func() bool {
		snapshot, err := w.Store.Read(context.Background(), model.PrefixRange(prefix))
		if err != nil {
			return false
		}
		have := map[string]model.Policy{}
		for _, e := range snapshot.Entries() {
			p, _ := e.Value.(model.Policy)
			have[strings.TrimPrefix(e.Path, prefix)] = p
		}
		diff = cmp.Diff(want, have)
		return diff == ""
	})
}

// A sweep deletes keys without an object, once all objects are known, and nothing of another kind.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	foreign := model.PolicyKey{Tier: "default", Policy: "mine"}
	other := model.PolicyKey{Tier: "other", Policy: "knp.x"}
	for _, k := range []model.Key{policyKey("gone"), policyKey("used"), foreign, other} {
		w.Put(k, policy("x"))
	}
	w.needed[policyKey("used")] = true
	w.set("a")
	w.start()
	w.holds(map[string]model.Policy{"a": policy("a"), "gone": policy("x"), "used": policy("x")})
	w.Hold(writer.Object{Kind: "Policy", Name: "unread"}, policyKey("gone"))
	w.Synced("Policy")
	w.set("b")
	w.holds(map[string]model.Policy{"a": policy("a"), "b": policy("b"), "gone": policy("x"), "used": policy("x")})
	w.Keeper.Remove(writer.Object{Kind: "Policy", Name: "unread"})
	w.holds(map[string]model.Policy{"a": policy("a"), "b": policy("b"), "used": policy("x")})
	w.mu.Lock()
	w.needed[policyKey("used")] = false
	w.mu.Unlock()
	w.Recheck()
	w.holds(map[string]model.Policy{"a": policy("a"), "b": policy("b")})
	for _, k := range []model.Key{foreign, other} {
		if w.Get(k) == nil {
			t.Errorf("%s is gone", k.Path())
		}
	}
}

// TestAfter: what opens pods waits for everything that closes them.
func TestAfter(t *testing.T) {
	w := newWorld(t)
	w.start()
	other := model.PolicyKey{Tier: "other", Policy: "knp.x"}
	if err := w.Set(writer.Object{Kind: "Other", Name: "x"}, []model.Put{{Key: other, Value: policy("x")}}); err != nil {
		t.Fatal(err)
	}
	w.set("a")
	w.holds(map[string]model.Policy{"a": policy("a")})
	if w.Get(other) != nil {
		t.Error("a key of a kind is written before all objects are known of the kind that it comes after")
	}
	w.Synced("Policy")
	w.Until("the key is written", func() bool { return w.Get(other) != nil })
}

// An object missing from a list that is behind is not deleted while the API says that it exists.
func TestBehind(t *testing.T) {
	w := newWorld(t)
	w.Put(policyKey("new"), policy("x"))
	w.Put(policyKey("gone"), policy("x"))
	w.living[policyKey("new")] = true
	w.Synced("Policy")
	w.start()
	w.holds(map[string]model.Policy{"new": policy("x")})
	again := func() {
		t.Helper()
		w.Until("it is to be asked again", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.failed[policyKey("new")] != nil
		})
	}
	again()
	w.holds(map[string]model.Policy{"new": policy("x")})
	// The watch reports it, and then that it is gone.
	w.set("new")
	w.Until("nothing is left to be looked at", func() bool { return w.Writer().Waiting() == 0 })
	gone := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.living, policyKey("new"))
	}
	gone()
	w.Keeper.Remove(writer.Object{Kind: "Policy", Name: "new"})
	w.holds(map[string]model.Policy{})
	// The watch never reports an object that is created and deleted while it starts over.
	w.mu.Lock()
	w.living[policyKey("new")] = true
	delete(w.failed, policyKey("new"))
	w.mu.Unlock()
	w.Put(policyKey("new"), policy("x"))
	again()
	gone()
	w.holds(map[string]model.Policy{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == 0 {
		t.Error("the API was not asked")
	}
}

// What another writer changes or deletes in etcd is written again; in a new etcd, everything.
func TestMended(t *testing.T) {
	w := newWorld(t)
	want := map[string]model.Policy{}
	for i := range 300 {
		name := fmt.Sprint(i)
		w.set(name)
		want[name] = policy(name)
	}
	w.Synced("Policy")
	w.start()
	w.holds(want)
	w.Server.Remove(policyKey("7"))
	w.Put(policyKey("8"), policy("x"))
	w.holds(want)
	w.Stop()
	w.set("while etcd is away")
	want["while etcd is away"] = policy("while etcd is away")
	w.Start()
	w.holds(escaped(want))
}

// TestRestored: another writer damages, changes and deletes a key. Each is reported, but not a change of the key's object.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	k, of := policyKey("a"), writer.Object{Kind: "Policy", Name: "a", UID: "1"}
	set := func(text string) map[string]model.Policy {
		t.Helper()
		if err := w.Set(of, []model.Put{{Key: k, Value: policy(text)}}); err != nil {
			t.Fatal(err)
		}
		return map[string]model.Policy{"a": policy(text)}
	}
	want := set("a")
	w.Synced("Policy")
	running := w.start()
	told := 0
	expect := func(what string) {
		t.Helper()
		told++
		w.holds(want)
		w.Until(what+" is told of", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.restored[k]) >= told
		})
		running.Settle()
	}
	running.Settle()
	w.Client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, k.Path(), "junk")
		return err
	})
	expect("junk")
	w.Put(k, policy("x"))
	expect("a change")
	want = set("b")
	w.holds(want)
	want = set("c")
	w.holds(want)
	running.Settle()
	w.Server.Remove(k)
	expect("a deletion")
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff([]writer.Object{of, of, of}, w.restored[k]); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
}

func escaped(all map[string]model.Policy) map[string]model.Policy {
	out := map[string]model.Policy{}
	for name, p := range all {
		out[model.EscapeName(name)] = p
	}
	return out
}

// A value that can't be stored changes nothing, and doesn't hold up others.
func TestBad(t *testing.T) {
	w := newWorld(t)
	w.set("a")
	bad := []model.Put{{Key: policyKey("a"), Value: model.Policy{Selector: "a =="}}}
	if err := w.Set(writer.Object{Kind: "Policy", Name: "a"}, bad); err == nil {
		t.Error("a policy that doesn't parse is taken")
	}
	foreign := []model.Put{{Key: model.PolicyKey{Tier: "default", Policy: "mine"}, Value: policy("a")}}
	if err := w.Set(writer.Object{Kind: "Policy", Name: "a"}, foreign); err == nil {
		t.Error("a key that isn't the kind's is taken")
	}
	w.set("b")
	w.Synced("Policy")
	w.start()
	w.holds(map[string]model.Policy{"a": policy("a"), "b": policy("b")})
}
