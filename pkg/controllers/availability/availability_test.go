// SPDX-License-Identifier: Apache-2.0

package availability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
)

// world is an API and an etcd in memory: what matters here is the order of requests.
type world struct {
	mu   sync.Mutex
	keys map[string]bool
	err  error
	ds   string // the DaemonSet: "" = it is there
	tell func(string, kube.Network)
	gone func(string)
	sets []string
}

func (w *world) Read(_ context.Context, ranges ...model.Range) (model.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := model.Snapshot{Ranges: make([][]model.Entry, len(ranges))}
	for i, r := range ranges {
		if path := pathOf(r); w.keys[path] {
			s.Ranges[i] = []model.Entry{{Path: path, Revision: 1}}
		}
	}
	return s, w.err
}

// pathOf returns the path of a range that is a single key.
func pathOf(r model.Range) string {
	for _, host := range []string{"n1", "n2", "n3"} {
		for _, k := range []model.Key{model.StatusKey{Host: host}, model.LastStatusKey{Host: host}} {
			if model.KeyRange(k) == r {
				return k.Path()
			}
		}
	}
	return ""
}

func (w *world) Watch(ctx context.Context, tell func(string, kube.Network), gone func(string)) error {
	w.change(func() { w.tell, w.gone = tell, gone })
	<-ctx.Done()
	return nil
}

func (w *world) Installed(context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ds == "refused" {
		return false, errors.New("no right")
	}
	return w.ds == "", nil
}

func (w *world) SetNetwork(_ context.Context, node string, unavailable bool) error {
	w.change(func() { w.sets = append(w.sets, fmt.Sprint(node, " ", unavailable)) })
	w.tell(node, kube.Network{Unavailable: unavailable, Ours: true})
	return nil
}

// change changes the world.
func (w *world) change(how func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	how()
}

// report makes a node's agent live, or be gone.
func (w *world) report(node string, live, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[model.StatusKey{Host: node}.Path()], w.keys[model.LastStatusKey{Host: node}.Path()] = live, last
}

func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := &world{keys: map[string]bool{}}, new(bytes.Buffer)
		k := New(Config{Etcd: w, API: w, Problems: problems.New(slog.New(slog.NewTextHandler(log, nil))), Logger: slog.New(slog.NewTextHandler(log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			k.Run(ctx)
			close(done)
		}()
		synctest.Wait()
		expect := func(when string, want ...string) {
			t.Helper()
			w.change(func() { w.sets = nil })
			time.Sleep(interval)
			synctest.Wait()
			w.change(func() {
				if diff := cmp.Diff(want, w.sets); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
			})
		}
		up := kube.Network{Ours: true}
		w.tell("n1", up)
		w.tell("n2", up)
		w.tell("n3", kube.Network{}) // another plugin's
		w.report("n1", true, true)
		w.report("n2", false, false) // it is set to report nothing
		w.report("n3", false, true)
		expect("all is well")
		w.report("n1", false, true)
		expect("gone for one look")
		w.report("n1", true, true)
		expect("back")
		w.report("n1", false, true)
		expect("gone again")
		expect("gone twice", "n1 true")
		expect("it is set")
		w.report("n1", true, true)
		expect("back at once", "n1 false")
		w.report("n1", false, true)
		w.change(func() { w.err = errors.New("no answer") })
		expect("etcd is away")
		expect("etcd is away")
		w.change(func() { w.err = nil })
		expect("etcd is there: once")
		w.gone("n1")
		expect("the Node is gone")
		w.tell("n1", up)
		expect("and back: once")
		expect("twice", "n1 true")

		// The agents are uninstalled, or that isn't known; agents that are back are reported.
		w.tell("n1", kube.Network{Unavailable: true, Ours: true})
		w.report("n1", true, true)
		w.report("n2", false, true)
		w.change(func() { w.ds = "gone" })
		expect("one is back, one gone for one look", "n1 false")
		expect("uninstalled")
		expect("still")
		w.change(func() { w.ds = "refused" })
		expect("not known")
		w.report("n1", false, true)
		expect("not known of two")
		w.report("n1", true, true)
		expect("not known, one is back")
		w.change(func() { w.ds = "" })
		expect("installed", "n2 true")
		cancel()
		<-done
		if n := strings.Count(log.String(), "no answer"); n != 1 {
			t.Errorf("it is logged %d times that etcd is away", n)
		}
		if n := strings.Count(log.String(), "no right"); n != 1 {
			t.Errorf("it is logged %d times that the DaemonSet can't be read", n)
		}
		if n := strings.Count(log.String(), "no DaemonSet calico-node"); n != 1 {
			t.Errorf("it is logged %d times that there is no DaemonSet", n)
		}
	})
}
