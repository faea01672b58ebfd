// SPDX-License-Identifier: Apache-2.0

package model

// parseMetaName reads an object's name as a resource: the name in its member meta.
func parseMetaName(r *reader) (name string, err error) {
	if r.null() {
		return "", nil
	}
	err = r.record(into("name", &name, (*reader).optionalStr))
	return name, err
}

func (w *writer) metaName(name string) {
	if name == "" {
		return
	}
	w.name("meta")
	w.open('{')
	w.str("name", name)
	w.close('}')
}
