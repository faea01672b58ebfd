// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"errors"
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		text string
		pos  int
		want string
	}{
		{"a", 1, "want ==, !=, in, not in, contains, starts with or ends with, have the end"},
		{"a =", 2, "want ==, !=, in, not in, contains, starts with or ends with, have '='"},
		{"a ==", 4, "want a string in quotes, have the end"},
		{"a == b", 5, "want a string in quotes, have 'b'"},
		{`a == "b`, 5, "string without its closing quote"},
		{`a == "b'`, 5, "string without its closing quote"},
		{"a = 'b'", 2, "want ==, !=, in, not in, contains, starts with or ends with, have '='"},
		{"a === 'b'", 4, "want a string in quotes, have '='"},
		{"a == 'b' c", 9, "want &&, || or the end, have 'c'"},
		{"a == 'b' &", 9, "want &&, || or the end, have '&'"},
		{"a == 'b' && ", 12, "want a label, has(), all(), global(), ! or (, have the end"},
		{"|| a == 'b'", 0, "want a label, has(), all(), global(), ! or (, have '|'"},
		{"a == 'b' || && has(c)", 12, "want a label, has(), all(), global(), ! or (, have '&'"},
		{"!", 1, "want a label, has(), all(), global(), ! or (, have the end"},
		{"()", 1, "want a label, has(), all(), global(), ! or (, have ')'"},
		{"(has(a)", 7, "want ), have the end"},
		{"has(a))", 6, "want &&, || or the end, have ')'"},
		{"has()", 4, "want a label, has(), all(), global(), ! or (, have ')'"},
		{"has('a')", 4, "want a label, has(), all(), global(), ! or (, have '\\''"},
		{"has(a", 5, "want ), have the end"},
		{"all(a)", 4, "want ), have 'a'"},
		{"all", 3, "want ==, !=, in, not in, contains, starts with or ends with, have the end"},
		{"a in 'b'", 5, "want {, have '\\''"},
		{"a in {b}", 6, "want a string in quotes, have 'b'"},
		{"a in {'b' 'c'}", 10, "want , or }, have '\\''"},
		{"a in {'b',,}", 10, "want a string in quotes, have ','"},
		{"a in {,'b'}", 7, "want }, have '\\''"},
		{"a in {'b'", 9, "want , or }, have the end"},
		{"a notin {'b'}", 2, "want ==, !=, in, not in, contains, starts with or ends with, have 'n'"},
		{"a not 'b'", 2, "want ==, !=, in, not in, contains, starts with or ends with, have 'n'"},
		{"a starts 'b'", 2, "want ==, !=, in, not in, contains, starts with or ends with, have 's'"},
		{"a ends without 'b'", 2, "want ==, !=, in, not in, contains, starts with or ends with, have 'e'"},
		{"é == 'b'", 0, "want a label, has(), all(), global(), ! or (, have 'é'"},
		{"a:b == 'c'", 1, "want ==, !=, in, not in, contains, starts with or ends with, have ':'"},
		{"\x00", 0, `want a label, has(), all(), global(), ! or (, have '\x00'`},
		{"\xff", 0, "want a label, has(), all(), global(), ! or (, have '�'"},
		{strings.Repeat("a", maxLabel+1) + " == 'b'", 0, "label of 513 bytes: at most 512"},
		{strings.Repeat("(", maxDepth+1) + "has(a)" + strings.Repeat(")", maxDepth+1), maxDepth + 1, "parentheses nest deeper than 64"},
		{strings.Repeat("!(", 1<<14), 2 * (maxDepth + 1), "parentheses nest deeper than 64"},
		{strings.Repeat("(", maxDepth) + "!a == 'b'" + strings.Repeat(")", maxDepth), maxDepth + 9, "parentheses nest deeper than 64"},
		{strings.Repeat("!a==''||", maxLength/8-1) + "has(a)", maxLength - 2, "more than 65536 bytes long once in its canonical form"},
		{strings.Repeat(" ", 1<<20), maxLength, "1048576 bytes long: at most 65536"},
	} {
		_, err := Parse(tt.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%.40q): %v, want an *Error", tt.text, err)
			continue
		}
		if e.Pos != tt.pos || e.Reason != tt.want {
			t.Errorf("Parse(%.40q):\n%v, want\n%v", tt.text, e, &Error{tt.pos, tt.want})
		}
	}
}

func TestParseBounds(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("a", maxLabel) + " == 'b'",
		strings.Repeat("(", maxDepth) + "has(a)" + strings.Repeat(")", maxDepth),
		strings.Repeat("!", maxLength-6) + "has(a)",
		strings.Repeat("(", maxDepth) + "!has(a)" + strings.Repeat(")", maxDepth),
		strings.Repeat("has(a) || ", (maxLength-6)/10) + "has(a)",
		"a in {" + strings.Repeat("'x',", (maxLength-7)/4) + "}",
	} {
		mustParse(t, text)
	}
}

func TestRelabel(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " all( ) ": " all( ) ", "has( a )||!has(has)": "has( <a> )||!has(<has>)",
		"a == 'a' && (in in {\"b\"} || not not in {'x',})": "<a> == 'a' && (<in> in {\"b\"} || <not> not in {'x',})",
		"all == 'x' && contains contains 'y'":              "<all> == 'x' && <contains> contains 'y'", "global starts with 'g'": "<global> starts with 'g'",
	} {
		marks := strings.NewReplacer("<", "x/", ">", "")
		got, err := Relabel(text, func(label string) (string, error) { return "x/" + label, nil })
		if got != marks.Replace(want) || err != nil {
			t.Errorf("%q is %q, %v, want %q", text, got, err, marks.Replace(want))
		}
	}
	mine := errors.New("mine")
	if _, err := Relabel("a == 'b'", func(string) (string, error) { return "", mine }); !errors.Is(err, mine) {
		t.Error(err)
	}
	for _, label := range []string{"a b", ""} {
		if got, err := Relabel("a == 'b'", func(string) (string, error) { return label, nil }); err == nil {
			t.Errorf("%q", got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "all()", "!has(a) && (b == 'c' || d not in {'e', \"f'\",})", "a starts with 'b'", "global() || in in {}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Pos < 0 || e.Pos > len(text) {
				t.Fatalf("%v has no position in %q", err, text)
			}
			return
		}
		canonical := s.String()
		again, err := Parse(canonical)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, canonical, err)
		}
		if !equal(s, again) || again.String() != canonical {
			t.Fatalf("%q became %q became %q", text, canonical, again)
		}
		if same, err := Relabel(text, func(label string) (string, error) { return label, nil }); same != text || err != nil {
			t.Fatalf("%q relabelled with its own labels is %q, %v", text, same, err)
		}
		s.Matches(func(name string) (string, bool) { return name, len(name)%2 == 0 })
	})
}
