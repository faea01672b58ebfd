// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"path/filepath"
	"testing"
)

// LogFiles returns the logs of all processes and plugins.
func (l *Lab) LogFiles() []string {
	files, _ := filepath.Glob(filepath.Join(l.dir, "log", "*.log"))
	plugins, _ := filepath.Glob(filepath.Join(l.dir, "hosts", "*", "log", "*.log"))
	return append(files, plugins...)
}

func (l *Lab) logLogs(t testing.TB) {
	for _, file := range l.LogFiles() {
		if text := Tail(file, 30); text != "" {
			t.Logf("the end of %s:\n%s", file, text)
		}
	}
}
