// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// ForTest makes a lab that is removed at the end of the test. Unless cfg says otherwise, its name is derived from the
// test's, its binaries are built from the source, and its data is in the test's temporary directory. Its plugins wait
// longer than by default at the gate, and those of pods also for etcd, so that a pod doesn't fail because the machine
// is busy. If the test fails, the end of every log is added to the test's log.
func ForTest(t testing.TB, cfg Config) *Lab {
	t.Helper()
	if cfg.Name == "" {
		name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
		cfg.Name = strings.Trim(name[:min(len(name), 20)], "-") + fmt.Sprintf("-%x-%x", os.Getpid(), time.Now().UnixNano()&0xffffff)
	}
	if cfg.BinDir == "" {
		cfg.BinDir = Build(t, BuildOptions{})
	}
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	if cfg.Log == nil {
		cfg.Log = testLog{t}
	}
	cfg.patient = true
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.t = t
	t.Cleanup(func() {
		if t.Failed() {
			l.logLogs(t)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	return l
}

// testLog writes a lab's progress to a test's log.
type testLog struct{ t testing.TB }

func (w testLog) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
