// SPDX-License-Identifier: Apache-2.0

package datastore

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

// format names the format of an export: lines of JSON, first a header, then one record per line.
const format = "calico-datastore/1"

// A header is the first line of an export.
type header struct {
	Format   string `json:"format"`
	Revision int64  `json:"revision"` // etcd's
	Keys     int    `json:"keys"`     // lines that follow
}

// A record is a key and its value in its canonical form.
type record struct {
	key   model.Key
	value any
	text  string // of the value
}

// recordLine is the form of a record in an export.
type recordLine struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// isData reports whether a key belongs to an export. What agents report, and what is bound to a lease, doesn't: it is written
// again.
func isData(e model.Entry) bool {
	return e.Lease == 0 && !strings.HasPrefix(e.Path, model.StatusPrefix(""))
}

// recordsOf returns the records of a snapshot, and for every other key the reason why it has none.
func recordsOf(snapshot model.Snapshot) (records []record, left []error) {
	for _, e := range snapshot.Entries() {
		if !isData(e) {
			continue
		}
		r, err := recordOf(e)
		if err == nil {
			records, err = append(records, r), e.Unknown
		}
		switch {
		case err == nil:
		case e.Key == nil: // the error has the path
			left = append(left, err)
		default:
			left = append(left, fmt.Errorf("%s: %w", e.Path, err))
		}
	}
	return records, left
}

func recordOf(e model.Entry) (record, error) {
	if e.Err != nil {
		return record{}, e.Err
	}
	text, err := model.FormatValue(e.Value)
	return record{e.Key, e.Value, string(text)}, err
}

func dump(w io.Writer, revision int64, records []record) error {
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(header{format, revision, len(records)}); err != nil {
		return err
	}
	for _, r := range records {
		if err := encoder.Encode(recordLine{r.key.Path(), r.text}); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// maxProblems is how many problems of a file are listed.
const maxProblems = 20

// parse parses the output of dump. The error names all bad lines, up to maxProblems.
func parse(name string, data []byte) ([]record, error) {
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	var h header
	if err := strict(first, &h); err != nil || h.Format != format {
		return nil, fmt.Errorf("%s: want what `calicoctl datastore export` or Calico's `calicoctl datastore migrate export` printed", name)
	}
	var records []record
	var errs []error
	lines := 0
	seen := map[string]int{}
	for line := range bytes.Lines(rest) {
		lines++
		r, err := parseRecord(line)
		if err == nil {
			path := r.key.Path()
			if before := seen[path]; before != 0 {
				err = fmt.Errorf("%s is in line %d as well", path, before)
			}
			seen[path] = lines + 1
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", name, lines+1, err))
		}
		records = append(records, r)
	}
	if lines != h.Keys {
		errs = append(errs, fmt.Errorf("%s: %s, and its first line says %d: it was cut off, or changed", name, resource.Count(lines, "key"), h.Keys))
	}
	return records, problems(errs)
}

// problems joins errors, up to maxProblems, and says how many more there are.
func problems(errs []error) error {
	if more := len(errs) - maxProblems; more > 0 {
		errs = append(errs[:maxProblems:maxProblems], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

func parseRecord(line []byte) (record, error) {
	var l recordLine
	if err := strict(line, &l); err != nil {
		return record{}, err
	}
	return newRecord(l.Key, []byte(l.Value))
}

// newRecord parses a key and its value. Fields that this version doesn't know are allowed only in values where people keep
// notes.
func newRecord(path string, data []byte) (record, error) {
	key, err := model.ParseKey(path)
	if err != nil {
		return record{}, err
	}
	value, err := model.ParseValue(key, data)
	if err == nil {
		err = model.UnknownFields(key, data)
	}
	if err != nil {
		return record{}, fmt.Errorf("%s: %w", path, err)
	}
	return recordOf(model.Entry{Key: key, Value: value})
}

// plain returns an error of JSON without the names of Go types.
func plain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: a %s doesn't belong there", cmp.Or(wrong.Field, "the document"), wrong.Value)
	}
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return err
}

func strict(data []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil && !json.Valid(data) {
		err = errors.New("there is more behind the line's object")
	}
	return plain(err)
}
