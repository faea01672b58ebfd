// SPDX-License-Identifier: Apache-2.0

package resource

// Reason returns why documents may not have a property of Calico's, "" if they may, or if it isn't one.
func (s *Schema) Reason(property string) string {
	for _, f := range s.Refused {
		if f.name == property {
			return f.reason
		}
	}
	return ""
}
