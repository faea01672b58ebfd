// SPDX-License-Identifier: Apache-2.0

// Command bench measures the plugins and the agent against their peers, side by
// side in one run, and prints a table per question. It passes or fails nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// section answers one question with tables.
type section struct {
	name string
	run  func(context.Context, *bench) ([]table, error)
}

var sections = []section{
	{"verbs", verbs},
	{"burst", burst},
	{"cluster", clusterSize},
	{"ipam", allocation},
	{"agent", agentAtScale},
}

// bench is what the sections share.
type bench struct {
	bin   string // folder of our binaries
	peers string // folder of the reference plugins
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
	count := flag.Int("n", 60, "repetitions of each measurement")
	only := flag.String("run", strings.Join(names, ","), "comma list of sections")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *out, *count, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, out string, count int, only []string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	ptp, err := exec.LookPath("ptp")
	if err != nil {
		return fmt.Errorf("find the reference plugins (`make tools` builds them into bin/tools, which belongs on PATH): %w", err)
	}
	b := &bench{bin: bin, peers: filepath.Dir(ptp), count: count, log: os.Stderr}

	report := io.Writer(os.Stdout)
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer file.Close()
		report = io.MultiWriter(os.Stdout, file)
	}
	preamble(report)
	for _, name := range only {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("no section %q", name)
		}
		fmt.Fprintf(b.log, "… %s\n", name)
		tables, err := sections[i].run(ctx, b)
		for _, t := range tables {
			t.print(report)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// preamble says what the figures were measured on.
func preamble(w io.Writer) {
	var uts unix.Utsname
	kernel := "unknown"
	if unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	fmt.Fprintf(w, `# Performance

Printed by `+"`make bench`"+`. Every comparison is paired: the contenders take turns within one run on one machine, so
read the ratios before the milliseconds. Times are of the whole process, from exec to exit, its children included.

Machine: %d CPUs, Linux %s, %s, etcd %s (one member unless stated, fsync on), reference plugins %s.
`, runtime.NumCPU(), kernel, runtime.Version(), moduleVersion("go.etcd.io/etcd/server/v3"), moduleVersion("github.com/containernetworking/plugins"))
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		return errors.Join(errors.New("unknown"), err).Error()
	}
	return strings.TrimSpace(string(output))
}
