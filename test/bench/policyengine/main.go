// SPDX-License-Identifier: Apache-2.0

// Command policyengine measures the policy engine in a cluster of so many
// endpoints and prints a Report as JSON. It is a process of its own, so that
// its memory and its processors are the engine's alone: GOMAXPROCS=1 is one core.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/policy"
	"github.com/calico-go/calico/pkg/policy/scale"
)

// Report is what is printed.
type Report struct {
	Wall, CPU            time.Duration // of the initial calculation; CPU includes the garbage collector's
	Told, Live, Peak     int64         // bytes: what the engine is told of; that and the engine; the process at most
	Rules, Sets, Members int           // that the host's firewall has
	Endpoints, Local     int
	Policies, Profiles   int
	Updates              []Update
}

// Update is what one kind of change cost, Update and Flush together.
type Update struct {
	Name             string
	Median, P99, CPU time.Duration // CPU is the mean, with the garbage collector's
}

// rounds is how often each change is made; one in two undoes the other.
const rounds = 4000

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "policyengine:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("give it the number of endpoints")
	}
	n, err := strconv.Atoi(os.Args[1])
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a number of endpoints", os.Args[1])
	}
	size := scale.Typical(n)
	r := Report{Endpoints: n, Local: size.Local, Policies: size.Policies, Profiles: size.Profiles}
	empty := live()
	cluster := scale.Make(size)
	entries := cluster.Entries()
	r.Told = live() - empty

	cpu, begin := processorTime(), time.Now()
	e := policy.NewEngine(scale.Host)
	e.Update(entries...)
	c := e.Flush()
	r.Wall, r.CPU = time.Since(begin), processorTime()-cpu
	if r.Peak, err = peak(); err != nil {
		return err
	}
	r.Rules, r.Sets = len(c.Rules), len(c.Sets)
	for _, s := range c.Sets {
		r.Members += len(s.Added)
	}
	c = policy.Changes{}
	r.Live = live() - empty
	for _, k := range kinds(cluster) {
		u, err := measure(e, k)
		if err != nil {
			return err
		}
		r.Updates = append(r.Updates, u)
	}
	runtime.KeepAlive(entries)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// kind is a change and what undoes it.
type kind struct {
	name    string
	states  [2]model.Entry
	touches func(policy.Changes) bool // that it does what its name says
}

func nothing(c policy.Changes) bool { return len(c.Endpoints)+len(c.Rules)+len(c.Sets) == 0 }
func sets(c policy.Changes) bool    { return len(c.Endpoints)+len(c.Rules) == 0 && len(c.Sets) > 0 }
func rules(c policy.Changes) bool   { return len(c.Endpoints) == 0 && len(c.Rules) == 1 }

func kinds(cluster *scale.Cluster) []kind {
	remote := cluster.Endpoints[len(cluster.Endpoints)-1]
	elsewhere := cluster.Policies[len(cluster.Policies)-1]
	here := cluster.Policies[14] // of an application that is here, whatever its endpoints' env
	return []kind{
		{"label of a remote endpoint that no rule here asks for", [2]model.Entry{relabelled(remote, "pod", "a"), relabelled(remote, "pod", "b")}, nothing},
		{"label of a remote endpoint that takes it from one set to another", [2]model.Entry{relabelled(remote, "zone", "z1"), relabelled(remote, "zone", "z2")}, sets},
		{"rules of a policy that touches no local endpoint", [2]model.Entry{changed(elsewhere, shorten), elsewhere}, nothing},
		{"selector of a policy that touches no local endpoint", [2]model.Entry{changed(elsewhere, narrow), elsewhere}, nothing},
		{"rules of a policy of a local endpoint", [2]model.Entry{changed(here, shorten), here}, rules},
	}
}

func relabelled(entry model.Entry, name, value string) model.Entry {
	w := entry.Value.(model.WorkloadEndpoint)
	w.Labels = maps.Clone(w.Labels)
	w.Labels[name] = value
	entry.Value = w
	return entry
}

func changed(entry model.Entry, change func(*model.Policy)) model.Entry {
	p := entry.Value.(model.Policy)
	change(&p)
	entry.Value = p
	return entry
}

func shorten(p *model.Policy) { p.Inbound = p.Inbound[:1] }
func narrow(p *model.Policy)  { p.Selector += ` && zone == "z1"` }

func measure(e *policy.Engine, k kind) (Update, error) {
	e.Update(k.states[1])
	e.Flush()
	took := make([]time.Duration, rounds)
	runtime.GC()
	cpu := processorTime()
	for i := range took {
		begin := time.Now()
		e.Update(k.states[i%2])
		c := e.Flush()
		took[i] = time.Since(begin)
		if !k.touches(c) {
			return Update{}, fmt.Errorf("%s: it changed %d endpoints, %d rules and %d sets", k.name, len(c.Endpoints), len(c.Rules), len(c.Sets))
		}
	}
	mean := (processorTime() - cpu) / rounds
	slices.Sort(took)
	return Update{k.name, took[rounds/2], took[rounds*99/100], mean}, nil
}

// live is how much of the heap is in use.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err) // the clock is always there
	}
	return time.Duration(ts.Nano())
}

// peak is the largest resident set so far.
func peak() (int64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/status: no VmHWM")
}
