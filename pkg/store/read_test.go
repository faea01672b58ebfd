// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/model"
)

// paths are what entries are of, the values being tested elsewhere.
func paths(entries []model.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, strings.TrimPrefix(e.Path, "/calico/v1/config/"))
	}
	return all
}

func configKey(name string) model.Key { return model.GlobalConfigKey{Name: name} }

func put(name, value string) model.Put {
	return model.Put{Key: configKey(name), Value: model.Text(value)}
}

func TestRead(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s, admin := c.open(), c.admin()
	ctx := within(t, eventually.Limit)

	for _, n := range []string{"A", "B", "C", "D"} {
		if _, err := admin.Put(ctx, configKey(n).Path(), "v"+n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Put(ctx, "/calico/v1/Ready", "perhaps"); err != nil {
		t.Fatal(err)
	}
	last, err := admin.Put(ctx, "/calico/nonsense", "x")
	if err != nil {
		t.Fatal(err)
	}
	before := s.Counters().RoundTrips
	snap, err := s.Read(ctx,
		model.KeyRange(configKey("B")),
		model.KeyRange(configKey("none")),
		model.Range{Prefix: "/calico/v1/config/", Limit: 2},
		model.Range{Prefix: "/calico/v1/config/", From: configKey("B").Path() + "\x00"},
		model.Range{Prefix: "/calico/v1/config/", From: "/calico/a"},
		model.Range{Prefix: "/calico/v1/config/", From: "/calico/v2"},
		model.Range{Prefix: "/calico/v1/config/", KeysOnly: true, Limit: 1},
		model.KeyRange(model.ReadyKey{}),
		model.PrefixRange("/calico/n"),
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Counters().RoundTrips - before; got != 1 {
		t.Errorf("%d round trips, want 1", got)
	}
	if snap.Revision != last.Header.Revision {
		t.Errorf("revision %d, want %d", snap.Revision, last.Header.Revision)
	}
	var got [][]string
	for _, r := range snap.Ranges {
		got = append(got, paths(r))
	}
	want := [][]string{{"B"}, nil, {"A", "B"}, {"C", "D"}, {"A", "B", "C", "D"}, nil, {"A"}, {"/calico/v1/Ready"}, {"/calico/nonsense"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	e, ok := snap.Get(configKey("B"))
	if !ok || e.Value != model.Text("vB") || e.Err != nil || e.Revision == 0 || e.Created != e.Revision {
		t.Errorf("B is %+v", e)
	}
	if e := snap.Ranges[6][0]; e.Value != nil || e.Err != nil || e.Key != configKey("A") {
		t.Errorf("keys only is %+v", e)
	}
	if e := snap.Ranges[7][0]; e.Err == nil || e.Value != nil || e.Key != (model.ReadyKey{}) {
		t.Errorf("a value that does not parse is %+v", e)
	}
	if e := snap.Ranges[8][0]; e.Err == nil || e.Key != nil {
		t.Errorf("a key that does not parse is %+v", e)
	}
	if n := len(snap.Entries()); n != 12 {
		t.Errorf("%d entries in all", n)
	}
	if _, ok := snap.Get(configKey("none")); ok {
		t.Error("a key that does not exist was found")
	}
}

func TestReadRefuses(t *testing.T) {
	s := open(t, Config{Endpoints: []string{"127.0.0.1:1"}})
	var many []model.Range
	for i := range maxOps + 1 {
		many = append(many, model.KeyRange(configKey(fmt.Sprint(i))))
	}
	if _, err := s.Read(t.Context(), many...); err == nil || !strings.Contains(err.Error(), "at most 128") {
		t.Errorf("too many: %v", err)
	}
	if _, err := s.Read(t.Context(), model.PrefixRange("")); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("empty prefix: %v", err)
	}
	if snap, err := s.Read(t.Context()); err != nil || snap.Revision != 0 {
		t.Errorf("nothing: %v %v", snap, err)
	}
	if n := s.Counters().RoundTrips; n != 0 {
		t.Errorf("%d round trips", n)
	}
}

func TestCommit(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	s := c.open()
	ctx := within(t, eventually.Limit)

	first, err := s.Commit(ctx, model.Change{
		Compares: []model.Compare{{Key: configKey("A")}, {Key: configKey("A")}, {Key: configKey("B")}},
		Puts:     []model.Put{put("A", "1"), put("B", "1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Commit(ctx, model.Change{
		Compares: []model.Compare{{Key: configKey("A"), Revision: first}},
		Puts:     []model.Put{put("A", "2")},
		Deletes:  []model.Key{configKey("B"), configKey("B"), configKey("none")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if second != first+1 {
		t.Errorf("revisions %d, %d", first, second)
	}
	conflicts := []struct {
		compares []model.Compare
		want     ConflictError
	}{
		{[]model.Compare{{Key: configKey("A"), Revision: first}}, ConflictError{configKey("A"), "", first, second}},
		{[]model.Compare{{Key: configKey("A")}}, ConflictError{configKey("A"), "", 0, second}},
		{[]model.Compare{{Key: configKey("A"), Revision: second}, {Key: configKey("B"), Revision: first}}, ConflictError{configKey("B"), "", first, 0}},
	}
	for _, tt := range conflicts {
		_, err := s.Commit(ctx, model.Change{Compares: tt.compares, Puts: []model.Put{put("C", "x")}})
		var got *ConflictError
		if !errors.As(err, &got) {
			t.Fatalf("no conflict: %v", err)
		}
		if d := cmp.Diff(tt.want, *got); d != "" {
			t.Error(d)
		}
	}
	// Of a prefix, what was created since the revision is a conflict, not what was changed or deleted.
	config := model.ConfigPrefix()
	for _, tt := range []struct {
		since int64
		want  *ConflictError
	}{{first - 1, &ConflictError{nil, config, first - 1, first}}, {first, nil}} {
		_, err := s.Commit(ctx, model.Change{NoneSince: []model.NoneSince{{Prefix: config, Revision: tt.since}, {Prefix: "/calico/none/"}}, Deletes: []model.Key{configKey("none")}})
		var got *ConflictError
		errors.As(err, &got)
		if d := cmp.Diff(tt.want, got); d != "" || tt.want == nil && err != nil {
			t.Error(d, err)
		}
	}
	snap, err := s.Read(ctx, model.PrefixRange(config))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"A"}, paths(snap.Entries())); d != "" {
		t.Error(d)
	}
	if snap.Revision != second {
		t.Errorf("a conflict wrote: revision %d after %d", snap.Revision, second)
	}
	want := Counters{RoundTrips: 8, Commits: 3, Conflicts: 4}
	got := s.Counters()
	want.BytesRead = got.BytesRead
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if r, err := s.Commit(ctx, model.Change{}); r != 0 || err != nil {
		t.Errorf("empty change: %d, %v", r, err)
	}
	if r, err := s.Commit(ctx, model.Change{Compares: []model.Compare{{Key: configKey("A"), Revision: second}}}); r != second || err != nil {
		t.Errorf("compares alone: %d, %v", r, err)
	}
}

func TestCommitRefuses(t *testing.T) {
	s := open(t, Config{Endpoints: []string{"127.0.0.1:1"}})
	var many model.Change
	for i := range maxOps + 1 {
		many.Puts = append(many.Puts, put(fmt.Sprint(i), ""))
	}
	tests := []struct {
		name, want string
		change     model.Change
	}{
		{"too many", "at most 128", many},
		{"put twice", "written twice", model.Change{Puts: []model.Put{put("A", "1"), put("A", "2")}}},
		{"put and delete", "both written and deleted", model.Change{Puts: []model.Put{put("A", "1")}, Deletes: []model.Key{configKey("A")}}},
		{"demands", "demanded at revision 1 and at 2", model.Change{
			Compares: []model.Compare{{Key: configKey("A"), Revision: 1}, {Key: configKey("A"), Revision: 2}}}},
		{"wrong type", "does not belong there", model.Change{Puts: []model.Put{{Key: configKey("A"), Value: model.Ready(true)}}}},
		{"no value", "A: ", model.Change{Puts: []model.Put{{Key: configKey("A")}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.Commit(t.Context(), tt.change)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if n := s.Counters().RoundTrips; n != 0 {
		t.Errorf("%d round trips", n)
	}
}
