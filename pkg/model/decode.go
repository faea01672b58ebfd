// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxValue bounds a value, in bytes. It is etcd's own default bound on a request.
const maxValue = 3 << 19

// FieldError says which field of a value is wrong, and why.
type FieldError struct {
	Field string // like inbound_rules[2].src_ports[0]
	Err   error
}

// Error is "field: reason".
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap is the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// inField puts a field's name in front of where the error is.
func inField(name string, err error) error {
	var fe *FieldError
	if !errors.As(err, &fe) {
		return &FieldError{name, err}
	}
	if strings.HasPrefix(fe.Field, "[") {
		return &FieldError{name + fe.Field, fe.Err}
	}
	return &FieldError{name + "." + fe.Field, fe.Err}
}

func atIndex(i int, err error) error { return inField("["+strconv.Itoa(i)+"]", err) }

// reader walks a JSON value from front to back. The bytes are known to be
// valid JSON before the walk begins, so that it only has to tell kinds of
// values apart. Unlike encoding/json it knows where an error is, wants exact
// names, refuses a name given twice, and costs no reflection.
type reader struct {
	data []byte
	pos  int
}

func newReader(data []byte) (*reader, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("empty value: want JSON")
	}
	if !json.Valid(data) {
		var v json.RawMessage
		err := json.Unmarshal(data, &v)
		var se *json.SyntaxError
		if errors.As(err, &se) {
			return nil, fmt.Errorf("not JSON: at byte %d: %w", se.Offset, err)
		}
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("not JSON: not UTF-8")
	}
	return &reader{data: data}, nil
}

// next is the first byte of the next value, which tells its kind.
func (r *reader) next() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\r', '\n':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// kind names the next value for an error.
func (r *reader) kind() string {
	switch r.next() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func (r *reader) want(what string) error { return fmt.Errorf("want %s, have %s", what, r.kind()) }

// null consumes null, if that is next.
func (r *reader) null() bool {
	if r.next() != 'n' {
		return false
	}
	r.pos += len("null")
	return true
}

var errTwice = errors.New("given twice")

// object calls field for each name, of which each may be there once; field
// consumes the value.
func (r *reader) object(field func(name string) error) error {
	// Few names are compared one by one, many (labels) by a map.
	var few [16]string
	var many map[string]bool
	n := 0
	return r.fields(func(name string) error {
		switch {
		case many[name] || slices.Contains(few[:min(n, len(few))], name):
			return errTwice
		case n < len(few):
			few[n] = name
		case many == nil:
			many = map[string]bool{name: true}
		default:
			many[name] = true
		}
		n++
		return field(name)
	})
}

// fields is object without its care for names that are given twice.
func (r *reader) fields(field func(name string) error) error {
	if r.next() != '{' {
		return r.want("an object")
	}
	r.pos++
	for r.next() != '}' {
		name, err := r.str()
		if err != nil {
			return err
		}
		r.next()
		r.pos++ // the colon
		if err := field(name); err != nil {
			return inField(fieldName(name), err)
		}
		if r.next() == ',' {
			r.pos++
		}
	}
	r.pos++
	return nil
}

// fieldName is a name as an error shows it.
func fieldName(name string) string {
	if name == "" || len(name) > 64 || strings.ContainsAny(name, " .[]\"\t\r\n") {
		return fmt.Sprintf("%.64q", name)
	}
	return name
}

// list calls element for each index; element consumes the value.
func (r *reader) list(element func(i int) error) error {
	if r.next() != '[' {
		return r.want("a list")
	}
	r.pos++
	for i := 0; r.next() != ']'; i++ {
		if err := element(i); err != nil {
			return atIndex(i, err)
		}
		if r.next() == ',' {
			r.pos++
		}
	}
	r.pos++
	return nil
}

// raw consumes any value and gives its bytes.
func (r *reader) raw() []byte {
	r.next()
	start, depth := r.pos, 0
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case '"':
			r.skipString()
		case '{', '[':
			depth++
			r.pos++
		case '}', ']':
			if depth == 0 {
				return r.data[start:r.pos]
			}
			depth--
			r.pos++
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return r.data[start:r.pos]
			}
			r.pos++
			continue
		default: // a number or a word
			r.pos++
			continue
		}
		if depth == 0 {
			return r.data[start:r.pos]
		}
	}
	return r.data[start:r.pos]
}

func (r *reader) skipString() (escaped bool) {
	r.pos++
	for r.data[r.pos] != '"' {
		if r.data[r.pos] == '\\' {
			escaped = true
			r.pos++
		}
		r.pos++
	}
	r.pos++
	return escaped
}

func (r *reader) str() (string, error) {
	if r.next() != '"' {
		return "", r.want("a string")
	}
	start := r.pos
	if !r.skipString() {
		return string(r.data[start+1 : r.pos-1]), nil
	}
	var s string
	err := json.Unmarshal(r.data[start:r.pos], &s)
	return s, err
}

func (r *reader) boolean() (bool, error) {
	switch r.next() {
	case 't':
		r.pos += len("true")
		return true, nil
	case 'f':
		r.pos += len("false")
		return false, nil
	}
	return false, r.want("true or false")
}

func (r *reader) isNumber() bool {
	c := r.next()
	return c == '-' || '0' <= c && c <= '9'
}

// integer is a whole number, without fraction or exponent.
func (r *reader) integer(low, high int) (int, error) {
	if !r.isNumber() {
		return 0, r.want("a whole number")
	}
	b := r.raw()
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0, fmt.Errorf("%.32s: want a whole number from %d to %d", b, low, high)
	}
	if n < low || n > high {
		return 0, fmt.Errorf("%d: want %d to %d", n, low, high)
	}
	return n, nil
}

func (r *reader) float() (float64, error) {
	if !r.isNumber() {
		return 0, r.want("a number")
	}
	b := r.raw()
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return 0, fmt.Errorf("%.32s: number out of range", b)
	}
	return f + 0, nil // never -0
}

func (r *reader) strings() ([]string, error) {
	if r.null() {
		return nil, nil
	}
	var out []string
	err := r.list(func(int) error {
		s, err := r.str()
		out = append(out, s)
		return err
	})
	return out, err
}

func (r *reader) stringMap() (map[string]string, error) {
	if r.null() {
		return nil, nil
	}
	var out map[string]string
	err := r.object(func(name string) error {
		s, err := r.str()
		if out == nil {
			out = make(map[string]string, 4)
		}
		out[name] = s
		return err
	})
	return out, err
}

// addr is an address of one family; null and "" mean none.
func (r *reader) addr(v6 bool) (netip.Addr, error) {
	if r.null() {
		return netip.Addr{}, nil
	}
	s, err := r.str()
	if err != nil || s == "" {
		return netip.Addr{}, err
	}
	return parseIPName(s, v6)
}

// prefix is a CIDR of any family, or one address. Host bits are masked away.
func (r *reader) prefix() (netip.Prefix, error) {
	s, err := r.str()
	if err != nil {
		return netip.Prefix{}, err
	}
	return parsePrefix(s)
}

// parsePrefix reads a CIDR as people write it: a plain address means itself
// alone, and host bits are masked away.
func parsePrefix(s string) (netip.Prefix, error) {
	bad := func() error { return fmt.Errorf("%.64q: want a CIDR like 10.0.0.0/8 or fd00::/8", s) }
	if len(s) > 64 {
		return netip.Prefix{}, bad()
	}
	if strings.IndexByte(s, '/') < 0 {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, bad()
		}
		return netip.PrefixFrom(a, a.BitLen()), checkFamily(a, a.Is6())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, bad()
	}
	return p.Masked(), checkFamily(p.Addr(), p.Addr().Is6())
}

// optionalStr reads a string; null means "".
func (r *reader) optionalStr() (string, error) {
	if r.null() {
		return "", nil
	}
	return r.str()
}

// optionalBool reads a boolean; null means absent.
func (r *reader) optionalBool(absent bool) (bool, error) {
	if r.null() {
		return absent, nil
	}
	return r.boolean()
}

// parseAnyAddr reads an address of either family.
func parseAnyAddr(r *reader) (netip.Addr, error) {
	s, err := r.str()
	if err != nil {
		return netip.Addr{}, err
	}
	if len(s) > 64 {
		return netip.Addr{}, fmt.Errorf("%.64q: want an IP address", s)
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q: want an IP address", s)
	}
	return a, checkFamily(a, a.Is6())
}
