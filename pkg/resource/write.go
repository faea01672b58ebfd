// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// A Mode says whether a resource may or must exist before it is written.
type Mode int

// The modes of Write.
const (
	Apply   Mode = iota // it may exist
	Create              // it must not exist
	Replace             // it must exist
)

// Write returns the change that turns entries, read from ranges, into the resource, empty if it is stored already, and whether the
// resource is new. The error may be a *model.NeedRangesError. The NoneSince of the change still need the revision of the entries.
func (k *Kind) Write(ranges []model.Range, entries []model.Entry, r Resource, mode Mode) (change model.Change, created bool, err error) {
	old, err := k.Of(entries, r)
	_, missing := errors.AsType[*NotFoundError](err)
	refused := missing && (mode == Replace || mode == Apply && r.Metadata.ResourceVersion != "" && r.Metadata.ResourceVersion != "0")
	if refused || missing && k.elsewhere { // to find it elsewhere, or to name similar ones
		if more := k.unread(ranges, true); more != nil {
			return change, false, more
		}
	}
	switch {
	case refused:
		return change, false, err
	case missing:
		old = nil
	case err == nil && old.keysOnly():
		return change, false, &model.NeedRangesError{Ranges: []model.Range{model.KeyRange(old.Entries[0].Key)}}
	case err != nil:
		return change, false, err
	case mode == Create:
		return change, false, &ExistsError{k.Name, r.ID()}
	default:
		if err := stale(*old, r.Metadata.ResourceVersion); err != nil {
			return change, false, err
		}
		r.Metadata.Name, r.Metadata.Namespace = old.Metadata.Name, old.Metadata.Namespace // it was named by its CIDR, or as in v1
		if r.older && old.Err == nil {
			if r, err = r.over(old.Resource); err != nil {
				return change, false, err
			}
		}
		if err := k.mayWrite(r, old, entries); err != nil {
			return change, false, err
		}
		if old.Err == nil && equal(r, old.Resource) && r.By.meta(old) == r.By.was(old) {
			return change, false, nil
		}
	}
	change, err = k.change(r, old, entries, false)
	return change, old == nil && err == nil, err
}

// unread asks for those of the kind's ranges that weren't read, with keysOnly for their keys alone; nil: none is missing.
func (k *Kind) unread(ranges []model.Range, keysOnly bool) error {
	var more []model.Range
	for _, r := range k.ranges {
		keys := r
		keys.KeysOnly = keysOnly
		if !slices.Contains(ranges, r) && !slices.Contains(ranges, keys) {
			more = append(more, keys)
		}
	}
	if more == nil {
		return nil
	}
	return &model.NeedRangesError{Ranges: more}
}

// keysOnly reports whether a resource with a single key was read without its value.
func (s *Stored) keysOnly() bool {
	e := s.Entries[0]
	return e.Exists() && e.Value == nil && e.Err == nil
}

func stale(s Stored, read string) error {
	if read != "" && read != s.Metadata.ResourceVersion {
		return &StaleError{s.Title(), read, s.Metadata.ResourceVersion}
	}
	return nil
}

// change returns the change that stores r, on condition that all keys that it depends on are still as read.
func (k *Kind) change(r Resource, old *Stored, entries []model.Entry, alone bool) (model.Change, error) {
	if err := r.checkLabels(old); err != nil {
		return model.Change{}, err
	}
	written, err := k.write(r, old, entries, alone)
	if err != nil {
		return model.Change{}, err
	}
	stored := map[model.Key]model.Entry{}
	for _, e := range entries {
		if e.Key != nil {
			stored[e.Key] = e
		}
	}
	change := model.Change{NoneSince: noneBelow(written.vacant)}
	var along []model.Put // whatever changes, so that a reader of all keys sees that the owner has written
	for _, key := range written.others {
		change.Compares = append(change.Compares, model.Compare{Key: key, Revision: stored[key].Revision})
	}
	for _, put := range written.puts {
		text, err := model.FormatValue(put.Value)
		if err != nil {
			return change, k.modelError(r, err)
		}
		e := stored[put.Key]
		change.Compares = append(change.Compares, model.Compare{Key: put.Key, Revision: e.Revision})
		if e.Exists() && e.Err == nil {
			if was, err := model.FormatValue(e.Value); err == nil && string(was) == string(text) {
				if k.apart && e.OfAPI() {
					along = append(along, put)
				}
				continue
			}
		}
		change.Puts = append(change.Puts, put)
	}
	for _, key := range written.deletes {
		if e := stored[key]; e.Exists() {
			change.Compares = append(change.Compares, model.Compare{Key: key, Revision: e.Revision})
			change.Deletes = append(change.Deletes, key)
		}
	}
	if !change.Empty() {
		change.Puts = append(change.Puts, along...)
	}
	return change, nil
}

func noneBelow(prefixes []string) []model.NoneSince {
	return converted(prefixes, func(p string) model.NoneSince { return model.NoneSince{Prefix: p} })
}

// modelError translates an error of the model into terms of the resource.
func (k *Kind) modelError(r Resource, err error) error {
	f, ok := errors.AsType[*model.FieldError](err)
	if !ok {
		return fmt.Errorf("%s: %w", r.Title(), err)
	}
	words := strings.NewReplacer(k.words...)
	field := cmp.Or(k.fields[f.Field], camel(words.Replace(f.Field)))
	parts := strings.Split(f.Err.Error(), `"`) // quoted parts are values
	for i := 0; i < len(parts); i += 2 {
		parts[i] = camel(words.Replace(parts[i]))
	}
	return r.at("spec."+field, "%s", strings.Join(parts, `"`))
}

// ruleWords are the words of kinds with rules.
var ruleWords = []string{
	"inbound_rules", "ingress", "outbound_rules", "egress", "no types but inbound", "no types but Ingress", "!src_", "source.not_", "!dst_", "destination.not_",
	"src_", "source.", "dst_", "destination.", "!icmp_", "notICMP.", "icmp_", "icmp.", "!protocol", "notProtocol", "pre_dnat", "preDNAT",
}

// camel turns block_size into blockSize.
func camel(text string) string {
	return snake.ReplaceAllStringFunc(text, func(s string) string { return s[:1] + strings.ToUpper(s[2:]) })
}

var snake = regexp.MustCompile("[a-z0-9]_[a-z]")

// Delete returns the change that deletes all keys of the resource that r names. Its NoneSince still need the revision of the entries.
func (k *Kind) Delete(entries []model.Entry, r Resource) (model.Change, error) {
	var change model.Change
	s, err := k.Lookup(k.All(entries), r.Metadata.Namespace, r.Metadata.Name)
	if err != nil {
		return change, err
	}
	if err := stale(*s, r.Metadata.ResourceVersion); err != nil {
		return change, err
	}
	if err := k.mayDeleteBy(r.By, s); err != nil {
		return change, err
	}
	if k.mayDelete != nil {
		if err := k.mayDelete(*s, entries); err != nil {
			return change, fmt.Errorf("%s: %w", s.Title(), err)
		}
	}
	if k.vacant != nil {
		change.NoneSince = noneBelow(k.vacant(s.Metadata.Name))
	}
	all := s.Entries
	if k.rest != nil {
		all = append(slices.Clone(all), k.rest(*s, entries)...)
	}
	for _, e := range all {
		change.Compares = append(change.Compares, model.Compare{Key: e.Key, Revision: e.Revision})
		change.Deletes = append(change.Deletes, e.Key)
	}
	return change, nil
}

// parsed returns the value of an entry, if it has this type and is valid.
func parsed[V any](e model.Entry) (V, bool) {
	v, ok := e.Value.(V)
	return v, ok && e.Err == nil
}

// Check returns what is wrong with a resource on its own, without regard to what is stored.
func Check(r Resource) error {
	_, err := Alone(r)
	return err
}

// Alone returns the keys and values of a resource where nothing is stored, without regard to others on which it depends.
func Alone(r Resource) ([]model.Put, error) {
	k, err := Find(r.Kind)
	if err != nil {
		return nil, err
	}
	change, err := k.change(r, nil, nil, true)
	return change.Puts, err
}
