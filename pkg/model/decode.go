// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxValue bounds a value, in bytes. It equals etcd's default limit for a request.
	maxValue = 3 << 19
	// maxList bounds a list, since a rule of three bytes in etcd takes hundreds in memory.
	maxList = 1 << 14
)

func listTooLong(n int) error { return fmt.Errorf("%d entries: at most %d", n, maxList) }

// FieldError says which field of a value is wrong, and why.
type FieldError struct {
	Field string // like inbound_rules[2].src_ports[0]
	Err   error
}

// Error returns "field: reason".
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// inField prepends a field's name to the position of the error.
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

// reader walks a JSON value from front to back. The bytes are known to be valid JSON beforehand, so it only needs to
// distinguish kinds of values. Unlike encoding/json it knows the position of an error, requires exact names, rejects
// duplicate names, and does without reflection.
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
			// At the end of input inside of a word, a number or an escape, Unmarshal reports an invalid space.
			if cut := json.NewDecoder(bytes.NewReader(data)).Decode(&v); errors.Is(cut, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("not JSON: at byte %d: unexpected end of JSON input", len(data))
			}
			return nil, fmt.Errorf("not JSON: at byte %d: %w", se.Offset, err)
		}
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("not JSON: not UTF-8")
	}
	return &reader{data: data}, nil
}

// next returns the first byte of the next value, which shows its kind.
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

// kind names the kind of the next value for an error.
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

// null consumes null if it is the next value.
func (r *reader) null() bool {
	if r.next() != 'n' {
		return false
	}
	r.pos += len("null")
	return true
}

var errTwice = errors.New("given twice")

// object calls field for each name, and rejects duplicate names. field consumes the value.
func (r *reader) object(field func(name string) error) error {
	// A few names are compared one by one, many (labels) with a map.
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

// A field is one field of an object; read consumes its value.
type field struct {
	name string
	read func(*reader) error
}

// into returns a field whose value is read by parse.
func into[T any](name string, to *T, parse func(*reader) (T, error)) field {
	return field{name, func(r *reader) (err error) {
		*to, err = parse(r)
		return err
	}}
}

// record reads an object with these fields and ignores all others.
func (r *reader) record(fields ...field) error {
	return r.recordOr(func(string, []byte) error { return nil }, fields...)
}

// recordOr is like record but calls other for all other fields.
func (r *reader) recordOr(other func(name string, value []byte) error, fields ...field) error {
	return r.object(func(name string) error {
		for _, f := range fields {
			if f.name == name {
				return f.read(r)
			}
		}
		return other(name, r.raw())
	})
}

// each returns a function that reads a list.
func each[T any](element func(*reader) (T, error)) func(*reader) ([]T, error) {
	return func(r *reader) ([]T, error) { return listOf(r, element) }
}

// word reads a string as a named type.
func word[T ~string](r *reader) (T, error) {
	s, err := r.str()
	return T(s), err
}

// boolean returns a function that reads a boolean; null means absent.
func boolean(absent bool) func(*reader) (bool, error) {
	return func(r *reader) (bool, error) { return r.optionalBool(absent) }
}

// address returns a function that reads an address of one family; null and "" mean none.
func address(v6 bool) func(*reader) (netip.Addr, error) {
	return func(r *reader) (netip.Addr, error) { return r.addr(v6) }
}

// optionalInt returns a function that reads a whole number; null means 0.
func optionalInt(low, high int) func(*reader) (int, error) {
	return func(r *reader) (int, error) {
		if r.null() {
			return 0, nil
		}
		return r.integer(low, high)
	}
}

// fields is like object but allows duplicate names.
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

// fieldName returns a name as shown in an error.
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
		if i == maxList {
			return listTooLong(i + 1)
		}
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

// listOf reads a list, using element for its entries. null is the empty list.
func listOf[T any](r *reader, element func(*reader) (T, error)) ([]T, error) {
	if r.null() {
		return nil, nil
	}
	var out []T
	err := r.list(func(int) error {
		v, err := element(r)
		out = append(out, v)
		return err
	})
	return out, err
}

// raw consumes any value and returns its bytes.
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
