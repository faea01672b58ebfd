// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/client"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
	"github.com/calico-go/calico/pkg/store"
	"github.com/calico-go/calico/test/etcd"
)

func decode(t *testing.T, text string) resource.Resource {
	t.Helper()
	all, err := resource.Decode("test", []byte("apiVersion: projectcalico.org/v3\n"+text))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

func find(t *testing.T, name string) *resource.Kind {
	t.Helper()
	kind, err := resource.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

const pool = "kind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.0.0.0/16}\n"

func TestLocking(t *testing.T) {
	s := etcd.New(t).Store
	c, ctx := client.New(s), t.Context()
	r, pools := decode(t, pool), find(t, "ippools")
	if outcome, err := c.Create(ctx, r); outcome != client.Created || err != nil {
		t.Fatal(outcome, err)
	}
	var exists *resource.ExistsError
	if _, err := c.Create(ctx, r); !errors.As(err, &exists) {
		t.Errorf("made twice: %v", err)
	}
	first, err := c.Get(ctx, pools, "", "pods")
	if err != nil {
		t.Fatal(err)
	}
	if outcome, err := c.Apply(ctx, first.Resource); outcome != client.Unchanged || err != nil {
		t.Errorf("applied again: %s, %v", outcome, err)
	}
	disable := func(r resource.Resource) (resource.Resource, error) {
		r.Spec.(*resource.IPPool).Disabled = true
		return r, nil
	}
	dry := client.New(s)
	dry.DryRun = true
	if outcome, err := dry.Modify(ctx, pools, "", "pods", disable); outcome != client.Configured || err != nil {
		t.Errorf("dry run: %s, %v", outcome, err)
	}
	if now, err := c.Get(ctx, pools, "", "10.0.0.0/16"); err != nil || now.Spec.(*resource.IPPool).Disabled {
		t.Errorf("a dry run has written: %v", err)
	}
	if outcome, err := c.Modify(ctx, pools, "", "pods", disable); outcome != client.Configured || err != nil {
		t.Errorf("%s, %v", outcome, err)
	}
	first.Spec.(*resource.IPPool).NATOutgoing = true
	var stale *resource.StaleError
	if _, err := c.Update(ctx, first.Resource); !errors.As(err, &stale) {
		t.Errorf("overwritten: %v", err)
	}
	if err := c.Delete(ctx, pools, "", "pods", first.Metadata.ResourceVersion); !errors.As(err, &stale) {
		t.Errorf("deleted: %v", err)
	}
	if err := c.Delete(ctx, pools, "", "pods", ""); err != nil {
		t.Error(err)
	}
	var missing *resource.NotFoundError
	if _, err := c.Update(ctx, r); !errors.As(err, &missing) {
		t.Errorf("updated what isn't there: %v", err)
	}
}

// TestPreview: what a preview shows is what Apply then does, on the same client.
func TestPreview(t *testing.T) {
	c, ctx := client.New(etcd.New(t).Store), t.Context()
	r := decode(t, pool)
	for _, want := range []client.Outcome{client.Created, client.Configured} {
		before, after, err := c.Preview(ctx, r)
		if err != nil || (before == nil) != (want == client.Created) || after == nil {
			t.Fatalf("%s: %v, %v, %v", want, before, after, err)
		}
		if outcome, err := c.Apply(ctx, r); outcome != want || err != nil {
			t.Errorf("%s, %v, want %s", outcome, err, want)
		}
		r.Spec.(*resource.IPPool).NATOutgoing = true
	}
}

// TestTogether: many writers change one resource at once, and no change is lost.
func TestTogether(t *testing.T) {
	s := etcd.New(t)
	c, ctx := client.New(s.Store), t.Context()
	s.Put(model.HostMetadataKey{Host: "n1"}, model.HostMetadata{})
	const writers = 8
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			_, err := c.Modify(ctx, find(t, "node"), "", "n1", func(r resource.Resource) (resource.Resource, error) {
				labels := map[string]string{fmt.Sprint("l", i): "x"}
				for k, v := range r.Metadata.Labels {
					labels[k] = v
				}
				r.Metadata.Labels = labels
				return r, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n1, err := c.Get(ctx, find(t, "node"), "", "n1")
	if err != nil || len(n1.Metadata.Labels) != writers {
		t.Errorf("labels %v, want %d: %v", n1.Metadata.Labels, writers, err)
	}
}

// TestPoolInUse deletes a pool while addresses are allocated from it as the plugin does, comparing the pool's key. Whichever
// is first, no address is left without its pool.
func TestPoolInUse(t *testing.T) {
	s := etcd.New(t)
	c, ctx := client.New(s.Store), t.Context()
	pools := find(t, "ippools")
	cidr := netip.MustParsePrefix("10.0.0.0/16")
	block := model.BlockKey{CIDR: netip.MustParsePrefix("10.0.0.0/30")}
	for range 20 {
		if _, err := c.Apply(ctx, decode(t, pool)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Store.Transact(ctx, []model.Range{model.KeyRange(model.PoolKey{CIDR: cidr})}, func(v *model.View) (model.Change, error) {
				key := model.PoolKey{CIDR: cidr}
				if p, ok := v.Get(key).Value.(model.Pool); !ok || p.Disabled {
					return model.Change{}, nil
				}
				return model.Change{Compares: []model.Compare{v.Compare(key)}, Puts: []model.Put{{Key: block, Value: model.Block{
					CIDR: block.CIDR, Allocations: []int{0, -1, -1, -1}, Unallocated: []int{1, 2, 3}, Attributes: []model.Attributes{{HandleID: "h"}},
				}}}}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		deleted := c.Delete(ctx, pools, "", "pods", "") == nil
		wg.Wait()
		taken := s.Get(block) != nil
		kept, _ := s.Get(model.PoolKey{CIDR: cidr}).(model.Pool)
		if deleted && taken || !deleted && (!taken || !kept.CIDR.IsValid() || kept.Disabled) {
			t.Fatalf("deleted %t, address taken %t, pool %+v", deleted, taken, kept)
		}
		s.Remove(block)
	}
}

// TestBeside creates two pools with the same addresses, and two with the same name, at once: one of each two is refused.
func TestBeside(t *testing.T) {
	s := etcd.New(t)
	c, ctx, pools := client.New(s.Store), t.Context(), find(t, "ippools")
	for _, other := range []string{"kind: IPPool\nmetadata: {name: half}\nspec: {cidr: 10.0.0.0/17}\n", "kind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.1.0.0/16}\n"} {
		for range 50 {
			var made [2]error
			var wg sync.WaitGroup
			for i, text := range []string{pool, other} {
				wg.Go(func() { _, made[i] = client.New(s.Store).Create(ctx, decode(t, text)) })
			}
			wg.Wait()
			all, _, err := c.List(ctx, pools, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != 1 || (made[0] == nil) == (made[1] == nil) {
				t.Fatalf("%d pools: %v; %v", len(all), made[0], made[1])
			}
			s.Remove(all[0].Entries[0].Key)
		}
	}
}

// TestJudgedMeanwhile changes other objects that a write depends on, between its read and its commit.
func TestJudgedMeanwhile(t *testing.T) {
	s := etcd.New(t)
	c, ctx := client.New(s.Store), t.Context()
	block := model.Block{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Allocations: slices.Repeat([]int{-1}, 64)}
	for i := range 64 {
		block.Unallocated = append(block.Unallocated, i)
	}
	if _, err := c.Create(ctx, decode(t, pool)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Modify(ctx, find(t, "ippools"), "", "pods", func(r resource.Resource) (resource.Resource, error) {
		s.Put(model.BlockKey{CIDR: block.CIDR}, block) // a pod starts
		r.Spec.(*resource.IPPool).BlockSize = 28
		return r, nil
	})
	if err == nil || !strings.Contains(err.Error(), "28 beside 1 block of /26 in 10.0.0.0/16") {
		t.Errorf("the size changed under a block: %v", err)
	}
	if err := c.Delete(ctx, find(t, "ippools"), "", "pods", ""); err != nil {
		t.Fatal(err)
	}
	small := decode(t, strings.Replace(pool, "/16", "/16, blockSize: 28", 1))
	if _, err := c.Create(ctx, small); err == nil || !strings.Contains(err.Error(), "28 beside 1 block of /26 in 10.0.0.0/16: write blockSize 26") {
		t.Errorf("made over blocks of another size: %v", err)
	}
	if _, err := c.Create(ctx, decode(t, pool)); err != nil {
		t.Error(err)
	}
}

// TestGet finds resources that aren't where their names suggest, and names similar ones if there is none.
func TestGet(t *testing.T) {
	s := etcd.New(t)
	c, ctx := client.New(s.Store), t.Context()
	s.Put(model.TierKey{Tier: "net"}, model.Tier{})
	s.Put(model.PolicyKey{Tier: "net", Policy: "p"}, model.Policy{Selector: "all()"})
	s.Put(model.HostMetadataKey{Host: "n1"}, model.HostMetadata{})
	s.Put(model.WorkloadEndpointKey{Host: "n1-", Orchestrator: "x", Workload: "w", Endpoint: "e"}, model.WorkloadEndpoint{State: model.StateActive, Name: "cali1"})
	s.Put(model.WorkloadEndpointKey{Host: "n1", Orchestrator: "x", Workload: "-w", Endpoint: "e"}, model.WorkloadEndpoint{State: model.StateActive, Name: "cali2"})
	for _, tc := range []struct{ kind, name, err string }{
		{"gnp", "p", ""}, {"node", "n1", ""}, {"wep", "n1---x-w-e", ""}, {"wep", "n1-x---w-e", ""}, {"tier", "default", ""},
		{"node", "n2", "Node n2 not found; did you mean n1?"}, {"gnp", "net.p", "GlobalNetworkPolicy net.p not found: there is p"},
	} {
		got, err := c.Get(ctx, find(t, tc.kind), "", tc.name)
		if tc.err == "" && (err != nil || got.Metadata.Name != tc.name) || tc.err != "" && (err == nil || err.Error() != tc.err) {
			t.Errorf("%s %s: %q, %v, want %q", tc.kind, tc.name, got.ID(), err, tc.err)
		}
	}
	outcome, err := c.Modify(ctx, find(t, "gnp"), "", "p", func(r resource.Resource) (resource.Resource, error) {
		r.Spec.(*resource.Policy).Selector = "a == 'b'"
		return r, nil
	})
	if p, _ := s.Get(model.PolicyKey{Tier: "net", Policy: "p"}).(model.Policy); err != nil || outcome != client.Configured || p.Selector != "a == 'b'" {
		t.Errorf("%s, %v: %+v", outcome, err, p)
	}
	if _, err := c.Update(ctx, decode(t, "kind: Node\nmetadata: {name: n2}\n")); err == nil || err.Error() != "Node n2 not found; did you mean n1?" {
		t.Errorf("updated what isn't there: %v", err)
	}
}

func TestWatch(t *testing.T) {
	c := client.New(etcd.New(t).Store)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, pools := decode(t, pool), find(t, "ippools")
	if _, err := c.Create(ctx, r); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := c.Watch(ctx, pools, "", func(e client.Event) error {
		spec := e.Resource.Spec.(*resource.IPPool)
		got = append(got, fmt.Sprintf("%s nat %t disabled %t deleted %t", e.Resource.Metadata.Name, spec.NATOutgoing, spec.Disabled, e.Deleted))
		switch len(got) {
		case 1:
			changed := r
			changed.Spec = &resource.IPPool{CIDR: spec.CIDR, NATOutgoing: true}
			_, err := c.Apply(ctx, changed)
			return err
		case 2:
			return c.Delete(ctx, pools, "", "pods", "") // disables it first
		case 4:
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	want := []string{
		"pods nat false disabled false deleted false", "pods nat true disabled false deleted false",
		"pods nat true disabled true deleted false", "pods nat true disabled true deleted true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func Example() {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{Endpoints: []string{"http://127.0.0.1:2379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = s.Close() }()
	c := client.New(s)

	all, err := resource.Decode("pool.yaml", []byte(strings.TrimSpace(`
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.0.0.0/16, vxlanMode: Always}
`)))
	if err != nil {
		fmt.Println(err) // pool.yaml:4:7: spec...: what is wrong
		return
	}
	outcome, err := c.Apply(ctx, all[0])
	fmt.Println(outcome, err)

	pools, err := resource.Find("ippools")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Modify(ctx, pools, "", "pods", func(r resource.Resource) (resource.Resource, error) {
		r.Spec.(*resource.IPPool).NATOutgoing = true
		return r, nil
	})
	fmt.Println(err)
}

// TestHostEndpointsOfOneName: a host endpoint on another node is another one, but an object's, whose name is its own on all nodes.
func TestHostEndpointsOfOneName(t *testing.T) {
	s := etcd.New(t).Store
	c, ctx, heps := client.New(s), t.Context(), find(t, "hep")
	on := func(name, node string) resource.Resource {
		return decode(t, "kind: HostEndpoint\nmetadata: {name: "+name+"}\nspec: {node: "+node+", interfaceName: eth0}\n")
	}
	for _, node := range []string{"a", "b"} {
		if outcome, err := c.Apply(ctx, on("uplink", node)); outcome != client.Created || err != nil {
			t.Errorf("%s, %v", outcome, err)
		}
	}
	var several *resource.AmbiguousError
	if _, err := c.Get(ctx, heps, "", "uplink"); !errors.As(err, &several) || len(several.Found) != 2 {
		t.Errorf("one of two: %v", err)
	}
	here, err := heps.On("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, here, "", "uplink", ""); err != nil {
		t.Error(err)
	}
	if left, err := c.Get(ctx, heps, "", "uplink"); err != nil || left.Spec.(*resource.HostEndpoint).Node != "a" {
		t.Errorf("%+v, %v", left.Spec, err)
	}
	object := client.New(s)
	object.By.UID = "u"
	if outcome, err := object.Apply(ctx, on("object", "a")); outcome != client.Created || err != nil {
		t.Errorf("%s, %v", outcome, err)
	}
	if outcome, err := object.Apply(ctx, on("object", "b")); err == nil || !strings.Contains(err.Error(), "is on node a") {
		t.Errorf("an object has two: %s, %v", outcome, err)
	}
}
