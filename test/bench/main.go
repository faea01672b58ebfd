// SPDX-License-Identifier: Apache-2.0

// Command bench measures the plugins and the agent against their peers, side by
// side in one run, and prints a table per question. It passes or fails nothing.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// section answers one question.
type section struct {
	name string
	run  func(context.Context, *bench) (result, error)
}

var sections = []section{
	{"verbs", verbs},
	{"burst", burst},
	{"cluster", clusterSize},
	{"agent", agentAtScale},
	{"machines", machines},
	{"classic", classic},
	{"enforce", enforce},
	{"packets", packets},
	{"ping", firstPing},
	{"wire", fabricWire},
	{"kubernetes", kubernetes},
}

// bench is what the sections share.
type bench struct {
	bin   string // folder of our binaries
	peers string // folder of the reference plugins
	peak  string // the program that measures memory
	count int    // repetitions
	log   io.Writer
}

func main() {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = s.name
	}
	bin := flag.String("bin", "bin", "folder of the built binaries")
	out := flag.String("o", "", "also write the report to this file")
	count := flag.Int("n", 100, "repetitions of each measurement")
	only := flag.String("run", strings.Join(names, ","), "comma list of sections")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *out, *count, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, out string, count int, only []string) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	if count < 1 {
		return fmt.Errorf("-n %d: measure at least once", count)
	}
	ptp, err := exec.LookPath("ptp")
	if err != nil {
		return fmt.Errorf("find the reference plugins (`make tools` builds them into bin/tools, which belongs on PATH): %w", err)
	}
	scratch, err := os.MkdirTemp("", "calico-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	b := &bench{bin: bin, peers: filepath.Dir(ptp), peak: filepath.Join(scratch, "peak"), count: count, log: os.Stderr}
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", b.peak, "./test/bench/peak")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	all, busy, err := b.measure(ctx, only)
	if err != nil {
		return err
	}
	report := io.Writer(os.Stdout)
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		report = io.MultiWriter(os.Stdout, file)
	}
	b.preamble(report, busy)
	goals := goalTable(all.goals)
	for _, t := range append([]table{goals}, all.tables...) {
		t.print(report)
	}
	return nil
}

// measure runs the sections of these names. It returns too how many processors
// were kept busy by others during each.
func (b *bench) measure(ctx context.Context, names []string) (all result, busy []string, err error) {
	var chosen []section
	for _, name := range names {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
		if i < 0 {
			return all, nil, fmt.Errorf("no section %q", name)
		}
		chosen = append(chosen, sections[i])
	}
	for _, s := range chosen {
		fmt.Fprintf(b.log, "… %s\n", s.name)
		before, err := lookAtMachine()
		if err != nil {
			return all, nil, err
		}
		r, err := s.run(ctx, b)
		if err != nil {
			return all, nil, fmt.Errorf("%s: %w", s.name, err)
		}
		after, err := lookAtMachine()
		if err != nil {
			return all, nil, err
		}
		busy = append(busy, fmt.Sprintf("%s %.2f", s.name, before.others(after)))
		all.tables, all.goals = append(all.tables, r.tables...), append(all.goals, r.goals...)
	}
	return all, busy, nil
}

// preamble says what the figures were measured on.
func (b *bench) preamble(w io.Writer, busy []string) {
	var uts unix.Utsname
	kernel := "of unknown version"
	if unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	fmt.Fprintf(w, `# Performance

Printed by `+"`make bench`"+`. Every comparison is paired: the contenders take turns within one run on one machine, so
read the ratios before the milliseconds. Times are of the whole process, from exec to exit, its children included.

%d CPUs, Linux %s, %s, etcd %s (one member, its disk synced), reference plugins %s.
`, runtime.NumCPU(), kernel, runtime.Version(),
		versionIn(filepath.Join(b.bin, "calico-lab"), "go.etcd.io/etcd/server/v3"),
		versionIn(filepath.Join(b.peers, "ptp"), "github.com/containernetworking/plugins"))
	fmt.Fprintf(w, `
Processors that the rest of the machine, the kernel's own threads included, kept busy: %s.
`, strings.Join(busy, ", "))
}

// versionIn is the version of a module that a program is built with.
func versionIn(program, path string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "of unknown version"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path {
			return m.Version
		}
	}
	return "of unknown version"
}
