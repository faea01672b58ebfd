// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	usesClock = regexp.MustCompile(`\btime\.(Sleep|Since|After|Tick|NewTimer)\(|\btime\.Now\(\)\.Sub\(`)
	hasLimit  = regexp.MustCompile(`\b(WithTimeout|Within|DialTimeout|AfterFunc|time\.Now\(\)\.Add)\(`)
	seconds   = regexp.MustCompile(`(?:\b(\d+) ?\* ?)?\btime\.(Nanos|Micros|Millis|S)econd\b`)
)

// A clockUse is what a file or folder of tests does with the real clock, and why it must.
type clockUse struct {
	times  int // how often; 0 = as often as it likes, which is for what measures
	reason string
}

var clockUses = map[string]clockUse{
	"test/bench":                              {0, "it measures"},
	"pkg/bgp/bench_test.go":                   {3, "it measures"},
	"pkg/controllers/bench_test.go":           {5, "it measures"},
	"pkg/controllers/program_test.go":         {1, "what the benchmark measures"},
	"pkg/kernel/pod/shape_test.go":            {1, "it measures: what passes in a second"},
	"pkg/lab/kubernetes/benchagent_test.go":   {3, "it measures"},
	"pkg/lab/eventually":                      {3, "it waits for all others"},
	"pkg/kernel/crossconnect/support_test.go": {1, "a try of a wait: a datagram is sent again where it got lost"},
	"test/vm/guest/clock_test.go":             {1, "hold times must pass in which a session could end"},
	"test/nsm/traffic_test.go":                {1, "it measures"},
	"test/chaos":                              {6, "when calls began and ended, by which their order is judged"},
	"test/doubles/table.go":                   {1, "under a virtual clock"},
	"pkg/lab/cni.go":                          {1, "calico-lab says how long a call took"},
	"pkg/lab/ping.go":                         {2, "calico-lab's ping says how long an answer took, asks again and gives up"},
	"test/routing/faults_test.go":             {1, "routes must stay for longer than a useless address is waited for"},
	"test/routing/live_test.go":               {1, "until agents try to reach etcd as seldom as they ever do"},
	"test/vm/machine.go":                      {1, "lines of a boot have the time before them"},
	"test/vm/main.go":                         {1, "it reports"},
	"pkg/agent/identity/host_test.go":         {1, "it stands for the router, which has this timer"},
	"pkg/agent/ping_test.go":                  {1, "the pace of packets"},
	"pkg/agent/pods/kubernetes_test.go":       {1, "a try of a wait: the refusal is told when the time of a question is over"},
	"pkg/lab/kubernetes/protection_test.go":   {1, "a try of a wait: what is dropped is not answered"},
}

// TestClock: a test on a busy machine passes and fails as on an idle one: it doesn't sleep, doesn't judge how long something took, and
// doesn't give up before 30 s. It waits for events by pkg/lab/eventually, and has timers run in testing/synctest, where time is virtual.
func TestClock(t *testing.T) {
	found := map[string][]string{}
	sources(t, func(path string, f *ast.File, _ *token.FileSet) {
		virtual := slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
		if virtual || !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "test/") && !strings.HasPrefix(path, "pkg/lab/") || path == "clock_test.go" {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		place := path
		for place != "." && clockUses[place].reason == "" {
			place = filepath.Dir(place)
		}
		if place == "." {
			place = path
		}
		for i, line := range strings.Split(string(text), "\n") {
			short := false
			if limit := seconds.FindStringSubmatch(line); limit != nil && hasLimit.MatchString(line) {
				n, _ := strconv.Atoi(limit[1]) // none is one
				short = n < 30 || limit[2] != "S"
			}
			if short || usesClock.MatchString(line) {
				found[place] = append(found[place], path+":"+strconv.Itoa(i+1)+": "+strings.TrimSpace(line))
			}
		}
	})
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if u := clockUses[place]; u.reason == "" || u.times > 0 && u.times != len(found[place]) {
			t.Errorf("%s: the clock is used on %d lines, %d of them with a reason here:\n\t%s", place, len(found[place]), u.times, strings.Join(found[place], "\n\t"))
		}
	}
	for place := range clockUses {
		if len(found[place]) == 0 {
			t.Errorf("%s has a reason to use the clock, and doesn't", place)
		}
	}
}
