// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/calico-go/calico/test/eventually"
)

// shortest is the shortest limit of a wait in a test: on a busy machine a shorter one gives up where nothing is broken.
const shortest = 30 * time.Second

// A clockUse is what a file or folder of tests does with the real clock, and why it must.
type clockUse struct {
	times  int // how often; 0 = as often as it likes, which is for what measures
	reason string
}

var clockUses = map[string]clockUse{
	"test/bench":                              {0, "it measures"},
	"pkg/bgp/bench_test.go":                   {3, "it measures"},
	"pkg/controllers/bench_test.go":           {4, "it measures"},
	"pkg/controllers/program_test.go":         {1, "what the benchmark measures"},
	"pkg/kernel/pod/shape_test.go":            {1, "it measures: what passes in a second"},
	"test/kubernetes/benchagent_test.go":      {3, "it measures"},
	"test/eventually":                         {3, "it waits for all others"},
	"pkg/kernel/crossconnect/support_test.go": {1, "a try of a wait: a datagram is sent again where it got lost"},
	"test/vm/guest/clock_test.go":             {2, "hold times must pass in which a session could end"},
	"test/nsm/traffic_test.go":                {1, "it measures"},
	"test/chaos":                              {6, "when calls began and ended, by which their order is judged"},
	"test/doubles/table.go":                   {1, "under a virtual clock"},
	"test/lab/cni.go":                         {1, "calico-lab says how long a call took"},
	"test/lab/ping.go":                        {4, "calico-lab's ping says how long an answer took, asks again and gives up"},
	"test/lab/state.go":                       {1, "calico-lab gives up waiting for a lock that another process holds"},
	"test/routing/faults_test.go":             {2, "routes must stay for longer than a useless address is waited for"},
	"test/routing/live_test.go":               {1, "until agents try to reach etcd as seldom as they ever do"},
	"test/vm/machine.go":                      {1, "lines of a boot have the time before them"},
	"test/vm/main.go":                         {1, "it reports"},
	"pkg/agent/identity/host_test.go":         {1, "it stands for the router, which has this timer"},
	"pkg/agent/ping_test.go":                  {1, "the pace of packets"},
	"pkg/agent/pods/kubernetes_test.go":       {1, "a try of a wait: the refusal is told when the time of a question is over"},
	"test/kubernetes/protection_test.go":      {1, "a try of a wait: what is dropped is not answered"},
}

// TestClock: a test on a busy machine passes and fails as on an idle one: it doesn't sleep, doesn't judge how long something took, and
// doesn't give up soon. It waits for events by test/eventually, and has timers run in testing/synctest, where time is virtual.
func TestClock(t *testing.T) {
	limits := map[string]map[string]ast.Expr{} // by folder
	files := map[string]*ast.File{}
	var set *token.FileSet
	sources(t, func(path string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			files[path], set = f, fset
			constants(f, limits, filepath.Dir(path))
		}
	})
	found := map[string][]string{}
	for path, f := range files {
		if slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if use := clock(call, limits[filepath.Dir(path)]); use != "" {
				place := path
				for ; place != "." && clockUses[place].reason == ""; place = filepath.Dir(place) {
				}
				if place == "." {
					place = path
				}
				found[place] = append(found[place], fmt.Sprintf("%s: %s", set.Position(call.Pos()), use))
			}
			return true
		})
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if u := clockUses[place]; u.reason == "" || u.times > 0 && u.times != len(found[place]) {
			t.Errorf("%s: the clock is used %d times, %d of them with a reason here:\n\t%s", place, len(found[place]), u.times, strings.Join(found[place], "\n\t"))
		}
	}
	for place := range clockUses {
		if len(found[place]) == 0 {
			t.Errorf("%s has a reason to use the clock, and doesn't", place)
		}
	}
}

// clock says how a call uses the clock as no test should.
func clock(call *ast.CallExpr, constants map[string]ast.Expr) string {
	fn := name(call.Fun)
	limit := -1 // which argument is one
	switch fn {
	case "time.Sleep", "time.Since", "time.After":
		return fn
	case "context.WithTimeout", "eventually.Within":
		limit = 1
	case "net.DialTimeout":
		limit = 2
	case "time.AfterFunc", "time.NewTimer":
		limit = 0
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Add" {
		if now, ok := sel.X.(*ast.CallExpr); ok && name(now.Fun) == "time.Now" {
			fn, limit = "time.Now().Add", 0
		}
	}
	if limit < 0 || limit >= len(call.Args) {
		return ""
	}
	if d, ok := duration(call.Args[limit], constants); ok && d < float64(shortest) {
		return fmt.Sprintf("%s of %v", fn, time.Duration(d))
	}
	return ""
}

func name(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			return x.Name + "." + sel.Sel.Name
		}
	}
	return ""
}

// constants collects those of a file.
func constants(f *ast.File, all map[string]map[string]ast.Expr, dir string) {
	if all[dir] == nil {
		all[dir] = map[string]ast.Expr{}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				s := spec.(*ast.ValueSpec)
				for i := range s.Values {
					all[dir][s.Names[i].Name] = s.Values[i]
				}
			}
		}
		return true
	})
}

// duration is what an expression of constants comes to.
func duration(e ast.Expr, constants map[string]ast.Expr) (float64, bool) {
	units := map[string]time.Duration{
		"time.Nanosecond": time.Nanosecond, "time.Microsecond": time.Microsecond, "time.Millisecond": time.Millisecond,
		"time.Second": time.Second, "time.Minute": time.Minute, "time.Hour": time.Hour, "eventually.Limit": eventually.Limit,
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseFloat(e.Value, 64)
		return n, err == nil
	case *ast.Ident:
		if value, ok := constants[e.Name]; ok {
			return duration(value, constants)
		}
	case *ast.SelectorExpr:
		d, ok := units[name(e)]
		return float64(d), ok
	case *ast.ParenExpr:
		return duration(e.X, constants)
	case *ast.BinaryExpr:
		x, ok := duration(e.X, constants)
		y, also := duration(e.Y, constants)
		switch e.Op {
		case token.MUL:
			return x * y, ok && also
		case token.QUO:
			return x / y, ok && also
		case token.ADD:
			return x + y, ok && also
		}
	}
	return 0, false
}
