// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// FieldError is a field with an unusable value.
type FieldError struct {
	Field string // dotted path: ipam.assign_ipv4
	Text  string // what is expected, and what was found
}

// Error begins with the name of the field.
func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

// SyntaxError is input that isn't a JSON object.
type SyntaxError struct{ Err error }

// Error says where the input stops being JSON.
func (e *SyntaxError) Error() string { return "network configuration: " + e.Err.Error() }

// Unwrap returns the decoder's error.
func (e *SyntaxError) Unwrap() error { return e.Err }

// object reads the fields of one JSON object and collects errors. An absent or null field leaves its destination
// unchanged.
type object struct {
	path   string
	fields map[string]json.RawMessage
	errs   *[]error
}

func parseObject(data []byte, errs *[]error) (object, error) {
	o := object{errs: errs}
	if err := json.Unmarshal(data, &o.fields); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			err = fmt.Errorf("want a JSON object, got %s", kind(data))
		}
		return o, &SyntaxError{err}
	}
	if o.fields == nil {
		return o, &SyntaxError{errors.New("want a JSON object, got null")}
	}
	return o, nil
}

func (o object) name(field string) string {
	if o.path == "" {
		return field
	}
	return o.path + "." + field
}

func (o object) fail(field, format string, args ...any) {
	*o.errs = append(*o.errs, &FieldError{o.name(field), fmt.Sprintf(format, args...)})
}

// get returns the field's raw value, nil if it is absent or null.
func (o object) get(field string) json.RawMessage {
	raw := o.fields[field]
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}

// object returns the object in field, empty if that is absent.
func (o object) object(field string) object {
	sub := object{path: o.name(field), errs: o.errs}
	if raw := o.get(field); raw != nil && json.Unmarshal(raw, &sub.fields) != nil {
		o.fail(field, "want an object, got %s", kind(raw))
	}
	return sub
}

func (o object) str(field string, dst *string) bool {
	raw := o.get(field)
	if raw == nil {
		return false
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		o.fail(field, "want a string, got %s", kind(raw))
		return false
	}
	*dst = s
	return true
}

func (o object) strings(field string) []string {
	raw := o.get(field)
	if raw == nil {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		o.fail(field, "want a list of strings, got %s", kind(raw))
		return nil
	}
	out := make([]string, len(list))
	for i, item := range list {
		if kind(item) != "string" || json.Unmarshal(item, &out[i]) != nil {
			o.fail(fmt.Sprintf("%s[%d]", field, i), "want a string, got %s", kind(item))
			return nil
		}
	}
	return out
}

// boolean reports whether the field is present and valid.
func (o object) boolean(field string, dst *bool) bool {
	raw := o.get(field)
	if raw == nil {
		return false
	}
	if json.Unmarshal(raw, dst) != nil {
		o.fail(field, "want true or false, got %s", kind(raw))
		return false
	}
	return true
}

// boolOrString reads true, false, "true" and "false".
func (o object) boolOrString(field string, dst *bool) {
	raw := o.get(field)
	if raw == nil {
		return
	}
	const want = `want true/false or "true"/"false"`
	var s string
	switch kind(raw) {
	case "boolean":
		*dst = raw[0] == 't'
	case "string":
		if json.Unmarshal(raw, &s) != nil {
			o.fail(field, want+", got string")
			return
		}
		switch strings.ToLower(s) {
		case "true":
			*dst = true
		case "false":
			*dst = false
		default:
			o.fail(field, want+", got %q", s)
		}
	default:
		o.fail(field, want+", got %s", kind(raw))
	}
}

// integer reads a whole number of at least low.
func (o object) integer(field string, low int, dst *int) bool {
	raw := o.get(field)
	if raw == nil {
		return false
	}
	if kind(raw) != "number" {
		o.fail(field, "want a whole number, got %s", kind(raw))
		return false
	}
	n, err := strconv.Atoi(string(raw))
	switch {
	case errors.Is(err, strconv.ErrRange), n > math.MaxInt32:
		o.fail(field, "want a number from %d to %d, got %.40s", low, math.MaxInt32, raw)
		return false
	case err != nil:
		o.fail(field, "want a whole number, got %s", raw)
		return false
	}
	if n < low {
		o.fail(field, "want at least %d, got %d", low, n)
		return false
	}
	*dst = n
	return true
}

// kind names the JSON type of raw, which is valid JSON or garbage.
func kind(raw []byte) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "list"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}
