// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lookup passes the labels of a map to Matches.
func lookup(labels map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := labels[name]
		return v, ok
	}
}

func mustParse(t testing.TB, text string) *Selector {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	return s
}

func TestMatches(t *testing.T) {
	db := map[string]string{"role": "db", "env": "prod", "empty": "", "calico/k8s_ns": "a.b-c_d"}
	for _, tt := range []struct {
		selector string
		want     bool
	}{
		{"", true},
		{" \n", true},
		{"all()", true},
		{"global()", true},
		{"!all()", false},
		{"has(role)", true},
		{"has(empty)", true},
		{"has(none)", false},
		{"!has(none)", true},
		{"role == 'db'", true},
		{"role == 'd'", false},
		{"empty == ''", true},
		{"none == ''", false},
		{"role != 'db'", false},
		{"role != 'web'", true},
		{"none != 'db'", true},
		{"role in {'web', 'db'}", true},
		{"role in {'web'}", false},
		{"role in {}", false},
		{"none in {'', 'db'}", false},
		{"role not in {'web', 'db'}", false},
		{"role not in {'web'}", true},
		{"role not in {}", true},
		{"none not in {'db'}", true},
		{"role contains 'b'", true},
		{"role contains ''", true},
		{"role contains 'x'", false},
		{"none contains ''", false},
		{"env starts with 'pr'", true},
		{"env starts with 'rod'", false},
		{"none starts with ''", false},
		{"env ends with 'rod'", true},
		{"env ends with 'pr'", false},
		{"none ends with ''", false},
		{"calico/k8s_ns == 'a.b-c_d'", true},

		// ! binds tightest, then &&, then ||.
		{"!has(role) || has(env)", true},
		{"!(has(role) || has(env))", false},
		{"!has(none) && has(none)", false},
		{"has(role) || has(none) && has(none)", true},
		{"(has(role) || has(none)) && has(none)", false},
		{"has(none) && has(none) || has(role)", true},
		{"!!has(role)", true},
		{"!!!has(role)", false},
		{"! (! has(role))", true},
	} {
		if got := mustParse(t, tt.selector).Matches(lookup(db)); got != tt.want {
			t.Errorf("%s matches %v: %v, want %v", tt.selector, db, got, tt.want)
		}
	}
}

func TestZeroMatchesAll(t *testing.T) {
	var s Selector
	if !s.Matches(lookup(nil)) || s.String() != "all()" {
		t.Errorf("zero Selector is %s", &s)
	}
}

func TestString(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "all()"},
		{"\t\n\u00a0", "all()"},
		{"all( )", "all()"},
		{"global ()", "global()"},
		{"has( a )", "has(a)"},
		{"a=='b'", `a == "b"`},
		{"a\n==\n'b'", `a == "b"`},
		{`a!="b"`, `a != "b"`},
		{`a == 'say "hi"'`, `a == 'say "hi"'`},
		{`a == "it's"`, `a == "it's"`},
		{"a == ' \n'", "a == \" \n\""},
		{"a in{'y','x','y'}", `a in {"x", "y"}`},
		{"a in {'x',}", `a in {"x"}`},
		{"a in {}", "a in {}"},
		{"a in {,}", "a in {}"},
		{"a not\tin { 'x' }", `a not in {"x"}`},
		{"a contains'b'", `a contains "b"`},
		{"a starts   with 'b'", `a starts with "b"`},
		{"a ends with 'b'", `a ends with "b"`},
		{"((a == 'b'))", `a == "b"`},
		{"!a == 'b'", `!(a == "b")`},
		{"!(has(a))", "!has(a)"},
		{"!!has(a)", "has(a)"},
		{"!(!(!has(a)))", "!has(a)"},
		{"has(a)&&has(b)||has(c)", "has(a) && has(b) || has(c)"},
		{"(has(a)&&has(b))||has(c)", "has(a) && has(b) || has(c)"},
		{"has(a)&&(has(b)||has(c))", "has(a) && (has(b) || has(c))"},
		{"has(a)&&(has(b)&&has(c))", "has(a) && has(b) && has(c)"},
		{"(has(a)||has(b))||(has(c)||has(d))", "has(a) || has(b) || has(c) || has(d)"},
		{"!(has(a)&&has(b))", "!(has(a) && has(b))"},
		// No word is reserved.
		{"in in {'in'}", `in in {"in"}`},
		{"not not in {'not'}", `not not in {"not"}`},
		{"has == 'x' && all != 'y' && global contains 'z'", `has == "x" && all != "y" && global contains "z"`},
		{"has(has)", "has(has)"},
		{"contains contains 'a'", `contains contains "a"`},
		{"starts starts with 'a'", `starts starts with "a"`},
		{"A-Za-z0-9_./- == ''", `A-Za-z0-9_./- == ""`},
	} {
		s := mustParse(t, tt.text)
		if got := s.String(); got != tt.want {
			t.Errorf("Parse(%q) is\n%s, want\n%s", tt.text, got, tt.want)
		}
		if again := mustParse(t, s.String()); !equal(s, again) {
			t.Errorf("%q: Parse(String()) is %s", tt.text, again)
		}
	}
}

func equal(a, b *Selector) bool { return cmp.Equal(a, b, cmp.AllowUnexported(Selector{}, node{})) }

// truth is what a random expression should give for its labels.
type truth struct {
	text string
	want bool
}

// random writes an expression and decides it at the same time, which is the slow and obvious way to do both.
func random(r *rand.Rand, labels map[string]string, depth int) truth {
	space := func() string { return []string{"", " ", "\n\t "}[r.IntN(3)] }
	if depth > 0 {
		switch r.IntN(4) {
		case 0:
			x := random(r, labels, depth-1)
			return truth{"!" + space() + "(" + x.text + ")", !x.want}
		case 1:
			x, y := random(r, labels, depth-1), random(r, labels, depth-1)
			return truth{"(" + x.text + space() + ")&&" + space() + "(" + y.text + ")", x.want && y.want}
		case 2:
			x, y := random(r, labels, depth-1), random(r, labels, depth-1)
			return truth{"(" + x.text + ")" + space() + "||(" + space() + y.text + ")", x.want || y.want}
		}
	}
	label := []string{"a", "b", "c"}[r.IntN(3)]
	value := []string{"", "x", "xy", "yx"}[r.IntN(4)]
	have, ok := labels[label]
	switch r.IntN(8) {
	case 0:
		return truth{"has(" + label + ")", ok}
	case 1:
		return truth{label + "==" + space() + "'" + value + "'", ok && have == value}
	case 2:
		return truth{label + space() + `!="` + value + `"`, !ok || have != value}
	case 3:
		return truth{label + " in {'x','" + value + "'}", ok && (have == value || have == "x")}
	case 4:
		return truth{label + " not in {'x','" + value + "'}", !ok || have != value && have != "x"}
	case 5:
		return truth{label + " contains '" + value + "'", ok && strings.Contains(have, value)}
	case 6:
		return truth{label + " starts with '" + value + "'", ok && strings.HasPrefix(have, value)}
	default:
		return truth{label + " ends with '" + value + "'", ok && strings.HasSuffix(have, value)}
	}
}

func TestRandomExpressions(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 0))
		labels := map[string]string{}
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(3) > 0 {
				labels[name] = []string{"", "x", "xy", "yx"}[r.IntN(4)]
			}
		}
		x := random(r, labels, 5)
		s := mustParse(t, x.text)
		if got := s.Matches(lookup(labels)); got != x.want {
			t.Fatalf("seed %d: %s on %v: %v, want %v", seed, x.text, labels, got, x.want)
		}
		again := mustParse(t, s.String())
		if !equal(s, again) {
			t.Fatalf("seed %d: %s: Parse(String()) is %s", seed, s, again)
		}
		if got := again.Matches(lookup(labels)); got != x.want {
			t.Fatalf("seed %d: %s on %v: %v, want %v", seed, again, labels, got, x.want)
		}
	}
}

const busy = `role in {"db", "cache", "queue"} && !(env == "dev" || name starts with "tmp-") && zone not in {"z9"} && has(team)`

func TestMatchesDoesNotAllocate(t *testing.T) {
	s := mustParse(t, busy)
	labels := map[string]string{"role": "queue", "env": "prod", "name": "a", "team": "t"}
	n := testing.AllocsPerRun(100, func() {
		// The closure is made again each time: it must not escape.
		if !s.Matches(func(name string) (string, bool) { v, ok := labels[name]; return v, ok }) {
			t.Error("does not match")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatches(b *testing.B) {
	s := mustParse(b, busy)
	labels := map[string]string{"role": "queue", "env": "prod", "name": "a", "team": "t"}
	b.ReportAllocs()
	for b.Loop() {
		s.Matches(func(name string) (string, bool) { v, ok := labels[name]; return v, ok })
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(busy); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleSelector_Matches() {
	s, err := Parse("role == 'db' && env not in {'dev', 'test'}")
	if err != nil {
		fmt.Println(err)
		return
	}
	labels := map[string]string{"role": "db"}
	fmt.Println(s, s.Matches(func(name string) (string, bool) {
		value, ok := labels[name]
		return value, ok
	}))
	// Output: role == "db" && env not in {"dev", "test"} true
}
