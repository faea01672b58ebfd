// SPDX-License-Identifier: Apache-2.0

package bgp

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/calico-go/calico/pkg/plan"
)

// speakerEnv makes the test binary a speaker that does what it reads from its standard input. A speaker is a process, as in
// production: the library has package variables, and a restart is the end of a process.
const speakerEnv = "CALICO_TEST_SPEAKER"

func TestMain(m *testing.M) {
	if os.Getenv(speakerEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil { // they wait for timers of the protocol, not for a processor
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// order is an order to a speaker's process, and answer its answer.
type order struct {
	Do      string
	Desired Desired
	Prefix  netip.Prefix
}

type answer struct {
	Err      string
	Learned  []plan.Learned
	Complete bool
	Status   []PeerStatus
	At       time.Time // when Prefix was learned, or Apply began
	CPU      time.Duration
	Memory   uint64 // bytes in use by the heap, after a collection
}

func serve() error {
	level := slog.LevelInfo
	if os.Getenv(speakerEnv) == "debug" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	s := New(Config{Logger: log, FloodPause: time.Hour})
	sub := s.Subscribe()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		a, err := s.carryOut(o, sub)
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return in.Err()
}

func (s *Speaker) carryOut(o order, sub *Subscription) (a answer, err error) {
	ctx := context.Background()
	switch o.Do {
	case "apply":
		a.At = time.Now()
		err = s.Apply(ctx, o.Desired)
	case "look":
		a.Learned, a.Complete = s.Learned(), s.Complete()
		a.Status, err = s.Status(ctx)
	case "await":
		for a.At.IsZero() {
			<-sub.Ready()
			if slices.ContainsFunc(sub.Take(), func(l plan.Learned) bool { return l.Prefix == o.Prefix && len(l.Paths) > 0 }) {
				a.At = time.Now()
			}
		}
	case "again":
		sub.LookAgain([]netip.Prefix{o.Prefix})
	case "doubt": // as if the library had not told yet that the session is up, for too long
		s.applying.Lock()
		defer s.applying.Unlock()
		s.sessions.update(o.Prefix.Addr(), func(e *sessionState) { e.state, e.since = OpenConfirm, time.Now().Add(-mute) })
		err = s.remainder(ctx)
	case "usage":
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		var u syscall.Rusage
		err = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		a.Memory, a.CPU = m.HeapInuse+m.StackInuse, time.Duration(u.Utime.Nano()+u.Stime.Nano())
	case "close":
		sub.Close()
		err = s.Close(ctx)
	default:
		err = fmt.Errorf("no order: %q", o.Do)
	}
	return a, err
}
