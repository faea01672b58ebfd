// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"go.yaml.in/yaml/v3"
)

// Patched returns the resource with a JSON merge patch (RFC 7386), written in JSON or YAML, applied.
func Patched(r Resource, patch []byte) (Resource, error) {
	return r.patched(patch, func(doc, patch []byte) ([]byte, error) {
		if patch[0] != '{' {
			return nil, errors.New(`patch: want an object, like {"spec":{...}}`)
		}
		return jsonpatch.MergePatch(doc, patch)
	})
}

// Operated returns the resource with a JSON patch (RFC 6902), written in JSON or YAML, applied.
func Operated(r Resource, patch []byte) (Resource, error) {
	return r.patched(patch, operate)
}

func operate(doc, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		if !strings.HasPrefix(err.Error(), "invalid operation") { // one of Go's types
			err = errors.New("not a list of operations")
		}
		return nil, fmt.Errorf(`patch: %w: want a list like [{"op":"replace","path":"/spec/disabled","value":true}]`, err)
	}
	for i, o := range operations {
		path, _ := o.Path() // which DecodePatch has read
		fail := func(format string, args ...any) error {
			return fmt.Errorf("patch: operation %d, %s %s: %w", i+1, o.Kind(), path, fmt.Errorf(format, args...))
		}
		if !strings.HasPrefix(path, "/") {
			return nil, fail("want a path like /spec/disabled")
		}
		doc, err = jsonpatch.Patch{o}.ApplyWithOptions(doc, &jsonpatch.ApplyOptions{})
		switch {
		case errors.Is(err, jsonpatch.ErrTestFailed):
			return nil, fail("another value is there: get the resource again, and see whether the patch is still right")
		case errors.Is(err, jsonpatch.ErrMissing):
			return nil, fail("nothing is there: see calicoctl get -o json for the paths that are, and add what is missing")
		case err != nil:
			return nil, fail("%w: see calicoctl get -o json for the paths that are", err)
		}
	}
	return doc, nil
}

// patched applies a patch to the resource as JSON.
func (r Resource) patched(patch []byte, apply func(doc, patch []byte) ([]byte, error)) (Resource, error) {
	var change any
	err := yaml.Unmarshal(patch, &change)
	if err == nil {
		patch, err = json.Marshal(change)
	}
	if err != nil {
		return r, fmt.Errorf("patch: not JSON or YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	data, err := json.Marshal(r)
	if err == nil {
		data, err = apply(data, patch)
	}
	if err != nil {
		return r, err
	}
	all, err := Decode("", data)
	if err != nil {
		return r, fmt.Errorf("%s: patched: %s", r.Title(), strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if len(all) != 1 || all[0].Kind != r.Kind || all[0].ID() != r.ID() { // an empty list has none
		return r, fmt.Errorf("%s: a patch can't change kind or name", r.Title())
	}
	all[0].nodes = nil
	return all[0], nil
}
