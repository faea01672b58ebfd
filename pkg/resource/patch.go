// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Patched returns the resource with a JSON merge patch (RFC 7386), written in JSON or YAML, applied.
func Patched(r Resource, patch []byte) (Resource, error) {
	var change any
	if err := yaml.Unmarshal(patch, &change); err != nil {
		return r, fmt.Errorf("patch: not JSON or YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if _, ok := change.(map[string]any); !ok {
		return r, errors.New(`patch: want an object, like {"spec":{...}}`)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	var old any
	if err := json.Unmarshal(data, &old); err != nil {
		return r, err
	}
	if data, err = json.Marshal(merge(old, change)); err != nil {
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

func merge(old, change any) any {
	fields, ok := change.(map[string]any)
	if !ok {
		return change
	}
	into, ok := old.(map[string]any)
	if !ok {
		into = map[string]any{}
	}
	for name, v := range fields {
		if v == nil {
			delete(into, name)
		} else {
			into[name] = merge(into[name], v)
		}
	}
	return into
}
