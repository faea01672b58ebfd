// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// The files of a network configuration on a host.
const (
	// ListName is the file in the runtime's directory. Of several files the runtime uses the first by name.
	ListName = "10-calico.conflist"
	// SingleName is the file that earlier releases of Calico wrote instead, with the configuration of one plugin.
	SingleName = "10-calico.conf"
	// StagedName is written by an installer for the agent, which writes ListName once it serves the host.
	StagedName = ListName + ".staged"
	// BackupSuffix is appended to the name of other software's file that was in the place of ours.
	BackupSuffix = ".calico_bak"
	// TLSDir is the directory next to ListName with the files that our plugins need to reach etcd over TLS.
	TLSDir  = "calico-tls"
	TLSCA   = "etcd-ca"
	TLSCert = "etcd-cert"
	TLSKey  = "etcd-key"
)

// Files returns the names of the network configurations in a runtime's directory, in the runtime's order
// (libcni.ConfFiles): the first one counts.
func Files(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir) // sorted
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// List is a list of plugins that a runtime calls in turn: the content of a .conflist file.
type List struct {
	plugins []listed
	fields  map[string]json.RawMessage // of the list itself
	text    []byte
}

// listed is one plugin of a list.
type listed struct {
	kind, ipam string
	fields     map[string]json.RawMessage
	value      any // decoded, for comparison
}

// ParseList parses a list. Errors are a *SyntaxError or joined *FieldErrors, including those for fields of our own
// plugins.
func ParseList(data []byte) (*List, error) {
	var errs []error
	o, err := parseObject(data, &errs)
	if err != nil {
		return nil, err
	}
	l := &List{fields: o.fields, text: data}
	var name, version string
	o.str("name", &name)
	o.str("cniVersion", &version)
	raw := o.get("plugins")
	if raw == nil && o.get("type") != nil {
		o.fail("plugins", `missing: this is the configuration of one plugin; write {"name": …, "cniVersion": …, "plugins": [{"type": …, …}]}`)
		return nil, errors.Join(errs...)
	}
	var plugins []json.RawMessage
	if json.Unmarshal(raw, &plugins) != nil || len(plugins) == 0 {
		o.fail("plugins", "want a list of at least one plugin, got %s", kind(raw))
		return nil, errors.Join(errs...)
	}
	for i, raw := range plugins {
		p := object{path: fmt.Sprintf("plugins[%d]", i), errs: &errs}
		one := listed{}
		if json.Unmarshal(raw, &p.fields) != nil || p.fields == nil || json.Unmarshal(raw, &one.value) != nil {
			o.fail(p.path, "want an object, got %s", kind(raw))
			continue
		}
		one.fields = p.fields
		if p.str("type", &one.kind); one.kind == "" {
			p.fail("type", "missing: the name of a plugin")
		}
		p.object("ipam").str("type", &one.ipam)
		l.plugins = append(l.plugins, one)
		if one.kind == "calico" || one.ipam == CalicoIPAM {
			errs = append(errs, l.check(p.path, one)...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// check parses one plugin's configuration as the runtime would pass it, and returns its errors with their paths.
func (l *List) check(path string, p listed) (wrong []error) {
	one := make(map[string]json.RawMessage, len(p.fields)+2)
	for field, raw := range p.fields {
		one[field] = raw
	}
	one["name"], one["cniVersion"] = l.fields["name"], l.fields["cniVersion"]
	if one["cniVersion"] == nil {
		delete(one, "cniVersion")
	}
	if one["name"] == nil {
		delete(one, "name")
	}
	data, err := json.Marshal(one)
	if err != nil {
		return []error{err}
	}
	_, err = Parse(data)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		if field, ok := errors.AsType[*FieldError](one); ok && field.Field != "name" && field.Field != "cniVersion" {
			one = &FieldError{path + "." + field.Field, field.Text}
		}
		wrong = append(wrong, one)
	}
	return wrong
}

// Programs returns the plugins that a runtime calls for the list, including IPAM plugins, in order and without
// duplicates.
func (l *List) Programs() []string {
	var all []string
	for _, p := range l.plugins {
		for _, name := range []string{p.kind, p.ipam} {
			if name != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Text returns the list as it was parsed.
func (l *List) Text() []byte { return l.text }

// IsOurs reports whether a network configuration, of a list or of one plugin, is for our main plugin.
func IsOurs(data []byte) bool {
	var conf struct {
		Type    string
		Plugins []struct{ Type string }
	}
	return json.Unmarshal(data, &conf) == nil &&
		(conf.Type == "calico" || slices.ContainsFunc(conf.Plugins, func(p struct{ Type string }) bool { return p.Type == "calico" }))
}

// Mend returns the content for a file so that it has this list; if the file has it already, that is its current
// content, there. Plugins that others have added to the file stay. former is the list that was written last, nil if
// unknown: its plugins that are no longer in the list are removed.
func (l *List) Mend(there []byte, former *List) []byte {
	var file struct{ Plugins []json.RawMessage }
	var fields map[string]json.RawMessage
	if json.Unmarshal(there, &file) != nil || json.Unmarshal(there, &fields) != nil {
		return l.text
	}
	var added []json.RawMessage
	missing, right := slices.Clone(l.plugins), sameFields(l.fields, fields)
	for _, raw := range file.Plugins {
		var value any
		var named struct{ Type string }
		if json.Unmarshal(raw, &value) != nil || json.Unmarshal(raw, &named) != nil {
			right = false
			continue
		}
		at := slices.IndexFunc(missing, func(p listed) bool { return reflect.DeepEqual(p.value, value) })
		right = right && at <= 0 // none of ours, or the next one
		if at < 0 {
			at = slices.IndexFunc(missing, func(p listed) bool { return p.kind == named.Type })
			if at < 0 && !former.has(named.Type, l) {
				added = append(added, raw)
				continue
			}
			right = false
		}
		if at >= 0 {
			missing = slices.Delete(missing, at, at+1)
		}
	}
	switch {
	case right && len(missing) == 0:
		return there
	case len(added) == 0:
		return l.text
	}
	return l.with(added)
}

// has reports whether a plugin of the type is in the list but not in the later one.
func (l *List) has(kind string, later *List) bool {
	is := func(p listed) bool { return p.kind == kind }
	return l != nil && slices.ContainsFunc(l.plugins, is) && !slices.ContainsFunc(later.plugins, is)
}

// with returns the list's text with other plugins added after its own.
func (l *List) with(added []json.RawMessage) []byte {
	var plugins []json.RawMessage
	if json.Unmarshal(l.fields["plugins"], &plugins) != nil {
		return l.text // can't fail: it was parsed
	}
	all, err := json.Marshal(append(plugins, added...))
	if err != nil {
		return l.text
	}
	fields := make(map[string]json.RawMessage, len(l.fields))
	for name, raw := range l.fields {
		fields[name] = raw
	}
	fields["plugins"] = all
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return l.text
	}
	return append(text, '\n')
}

// sameFields compares the fields of two lists, except their plugins.
func sameFields(a, b map[string]json.RawMessage) bool {
	values := func(fields map[string]json.RawMessage) map[string]any {
		out := make(map[string]any, len(fields))
		for name, raw := range fields {
			var value any
			if name != "plugins" && json.NewDecoder(bytes.NewReader(raw)).Decode(&value) == nil {
				out[name] = value
			}
		}
		return out
	}
	return reflect.DeepEqual(values(a), values(b))
}
