// SPDX-License-Identifier: Apache-2.0

package diags

import (
	"regexp"
	"strings"
)

const removed = "<removed>"

var (
	privateKeys = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`)
	userinfo    = regexp.MustCompile(`(://[^\s/:@"]*):[^\s/@"]+@`)
	bearers     = regexp.MustCompile(`(?i)(\bbearer\s+)[\w.~+/=-]+`)
	// secrets are fields of JSON, YAML and of environments: the field's name, what is between, and the value.
	secrets = regexp.MustCompile(`(?i)("?[\w.-]*(?:password|passwd|token|secret|credential|key[-_]?data)[\w.-]*"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',}\[{]+)`)
	// named are such fields whose values only name something.
	named = regexp.MustCompile(`(?i)(file|path|name|dir|ref)s?"?\s*[:=]\s*$`)
)

// redact takes private keys, passwords and tokens out of a text, and leaves JSON and YAML what they are.
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
