// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// writer appends JSON without white space.
type writer struct {
	b   []byte
	err error // the first list that is too long
}

// sep writes a comma unless the next item is the first of its object or list.
func (w *writer) sep() {
	if n := len(w.b); n > 0 && w.b[n-1] != '{' && w.b[n-1] != '[' && w.b[n-1] != ':' {
		w.b = append(w.b, ',')
	}
}

func (w *writer) name(name string) {
	w.sep()
	w.quote(name)
	w.b = append(w.b, ':')
}

// quote writes a string. < > & are not escaped.
func (w *writer) quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			w.quoteSlow(s)
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, s...)
	w.b = append(w.b, '"')
}

func (w *writer) quoteSlow(s string) {
	w.b = append(w.b, '"')
	for _, c := range s { // invalid UTF-8 becomes U+FFFD
		switch {
		case c == '"' || c == '\\':
			w.b = append(w.b, '\\', byte(c))
		case c == '\n':
			w.b = append(w.b, '\\', 'n')
		case c == '\t':
			w.b = append(w.b, '\\', 't')
		case c < ' ':
			w.b = append(w.b, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
		default:
			w.b = utf8.AppendRune(w.b, c)
		}
	}
	w.b = append(w.b, '"')
}

// openList begins a list of n entries.
func (w *writer) openList(n int) {
	if n > maxList && w.err == nil {
		w.err = listTooLong(n)
	}
	w.open('[')
}

// writeList writes a list, using entry for its entries.
func writeList[T any](w *writer, name string, entries []T, entry func(*writer, T)) {
	w.name(name)
	w.openList(len(entries))
	for _, e := range entries {
		entry(w, e)
	}
	w.close(']')
}

func (w *writer) open(c byte)  { w.sep(); w.b = append(w.b, c) }
func (w *writer) close(c byte) { w.b = append(w.b, c) }

func (w *writer) str(name, s string) { w.name(name); w.quote(s) }

func (w *writer) strValue(s string) { w.sep(); w.quote(s) }

// optional writes a string unless it is empty.
func (w *writer) optional(name, s string) {
	if s != "" {
		w.str(name, s)
	}
}

func (w *writer) boolean(name string, v bool) {
	w.name(name)
	w.b = strconv.AppendBool(w.b, v)
}

// flag writes a boolean unless it equals the meaning of its absence.
func (w *writer) flag(name string, v, absent bool) {
	if v != absent {
		w.boolean(name, v)
	}
}

func (w *writer) integer(name string, n int) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, int64(n), 10)
}

func (w *writer) float(name string, f float64) {
	w.name(name)
	form := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		form = 'e'
	}
	w.b = strconv.AppendFloat(w.b, f, form, -1, 64)
}

func (w *writer) addr(name string, a netip.Addr) {
	if a.IsValid() {
		w.name(name)
		w.addrValue(a)
	}
}

func (w *writer) addrValue(a netip.Addr) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = a.AppendTo(w.b)
	w.b = append(w.b, '"')
}

func (w *writer) prefix(name string, p netip.Prefix) {
	w.name(name)
	w.prefixValue(p)
}

func (w *writer) prefixValue(p netip.Prefix) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = p.AppendTo(w.b)
	w.b = append(w.b, '"')
}

func (w *writer) strings(name string, list []string) {
	writeList(w, name, list, (*writer).strValue)
}

func (w *writer) prefixes(name string, list []netip.Prefix) {
	writeList(w, name, list, (*writer).prefixValue)
}

func (w *writer) addrs(name string, list []netip.Addr) {
	writeList(w, name, list, (*writer).addrValue)
}

// stringMap writes a map, sorted by name.
func (w *writer) stringMap(m map[string]string) {
	w.open('{')
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.str(k, m[k])
	}
	w.close('}')
}

// time writes a time in UTC.
func (w *writer) time(name string, t time.Time) error {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return inField(name, fmt.Errorf("the year %d", y))
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = t.AppendFormat(w.b, time.RFC3339Nano)
	w.b = append(w.b, '"')
	return nil
}
