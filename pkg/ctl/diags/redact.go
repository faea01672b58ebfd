// SPDX-License-Identifier: Apache-2.0

package diags

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/resource"
)

const removed = "<removed>"

var (
	privateKeys = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`)
	userinfo    = regexp.MustCompile(`(://[^\s/:@"]*):[^\s/@"]+@`)
	bearers     = regexp.MustCompile(`(?i)(\bbearer\s+)[\w.~+/=-]+`)
	// secrets matches fields in JSON, YAML and environments: the field's name, what is between, and the value.
	secrets = regexp.MustCompile(`(?i)("?[\w.-]*(?:password|passwd|token|secret|credential|key[-_]?data)[\w.-]*"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',}\[{]+)`)
	// named matches such fields whose values only name something.
	named = regexp.MustCompile(`(?i)(file|path|name|dir|ref)s?"?\s*[:=]\s*$`)
)

// redact removes private keys, passwords and tokens from a text, and leaves JSON and YAML valid.
func redact(text []byte) []byte {
	text = privateKeys.ReplaceAll(text, []byte(removed))
	text = userinfo.ReplaceAll(text, []byte("$1:"+removed+"@"))
	text = bearers.ReplaceAll(text, []byte("${1}"+removed))
	return secrets.ReplaceAllFunc(text, func(field []byte) []byte {
		parts := secrets.FindSubmatch(field)
		name, value := string(parts[1]), string(parts[2])
		switch {
		case named.MatchString(name), value == `""`, value == "null", strings.HasPrefix(strings.Trim(value, `"'`), removed):
			return field
		case strings.HasPrefix(value, `"`):
			return []byte(name + `"` + removed + `"`)
		case strings.HasPrefix(value, `'`):
			return []byte(name + `'` + removed + `'`)
		}
		return []byte(name + removed)
	})
}

// setting matches a line of a file of parameters.
var setting = regexp.MustCompile(`(?m)^([ \t]*([^\s#;=\[][^=\n]*?)[ \t]*=[ \t]*)\S.*$`)

// redactSettings removes the values of unknown parameters from a file of parameters: they may be secrets.
func redactSettings(text []byte) []byte {
	return setting.ReplaceAllFunc(text, func(line []byte) []byte {
		parts := setting.FindSubmatch(line)
		if isParameter(string(parts[2])) {
			return line
		}
		return append(parts[1], removed...)
	})
}

func isParameter(name string) bool {
	return slices.ContainsFunc(resource.Parameters(), func(p string) bool { return strings.EqualFold(p, name) })
}

// redactKeys does the same with the lines of an export, {"key": …, "value": …}.
func redactKeys(text []byte) []byte {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	for line := range bytes.Lines(text) {
		var l struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		}
		if json.Unmarshal(line, &l) == nil && l.Key != "" && !isKnown(l.Key, l.Value) {
			l.Value = removed
			_ = lines.Encode(l) // into memory
		} else {
			out.Write(line)
		}
	}
	return out.Bytes()
}

// isKnown reports whether a key, and each field of its value, belong to our data model.
func isKnown(path, value string) bool {
	key, err := model.ParseKey(path)
	switch k := key.(type) {
	case model.GlobalConfigKey:
		return isParameter(k.Name)
	case model.HostConfigKey:
		return isParameter(k.Name)
	}
	return err == nil && model.UnknownFields(key, []byte(value)) == nil
}
