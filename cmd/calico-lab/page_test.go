// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/lab"
	"github.com/calico-go/calico/test/long"
)

// A command is a block of a page that is meant to be copied into a shell, and
// what the page says comes out.
type pageCommand struct {
	line   int
	sh     string
	output string
	shown  bool // there is an output
}

// TestPages runs pages of the documents from top to bottom, as a reader would,
// and compares what comes out with what they show. Where a program now writes
// something else, the page is to be changed.
func TestPages(t *testing.T) {
	for _, name := range []string{"debugging", "policy", "lab", "operations", "virtual-machines", "network-service-mesh", "classic-api"} {
		t.Run(name, func(t *testing.T) {
			if name != "debugging" && name != "policy" {
				long.Test(t)
			}
			runDocument(t, "../../docs/"+name+".md", "")
		})
	}
}

// TestReadme runs the session of the README.
func TestReadme(t *testing.T) { runDocument(t, "../../README.md", "calico-lab up") }

// runDocument runs the commands of a page, of those blocks that have a text.
func runDocument(t *testing.T, file, having string) {
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commands := slices.DeleteFunc(commandsOf(string(page)), func(c pageCommand) bool { return !strings.Contains(c.sh, having) })
	commands = runnable(t, commands)
	if len(commands) == 0 {
		t.Fatal("the page has no commands")
	}
	outputs := runPage(t, commands)
	for i, c := range commands {
		got := outputs[i]
		if !c.shown {
			if got.status != 0 {
				t.Errorf("line %d: exit status %d\n%s\n%s", c.line, got.status, c.sh, got.text)
			}
			continue
		}
		if !matches(c.output, got.text) {
			t.Errorf("line %d: the page (-) and the command (+) differ\n%s\n%s", c.line, c.sh, cmp.Diff(steady(c.output), steady(got.text)))
		}
	}
}

// runnable leaves out the blocks whose programs this machine lacks; where the
// tests must be complete that is a failure.
func runnable(t *testing.T, commands []pageCommand) []pageCommand {
	t.Helper()
	for program, pkg := range map[string]string{"curl": "curl", "etcdctl": "etcd-client", "sysctl": "procps", "nft": "nftables", "busybox": "busybox-static"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Errorf("the page needs %s: install %s", program, pkg)
		}
		t.Logf("no %s here (Debian: %s): blocks with it are left out", program, pkg)
		word := regexp.MustCompile(`\b` + program + `\b`)
		commands = slices.DeleteFunc(commands, func(c pageCommand) bool { return word.MatchString(c.sh) })
	}
	return commands
}

// commandsOf finds the blocks marked sh, each with the block marked text that
// follows it.
func commandsOf(page string) []pageCommand {
	var out []pageCommand
	var block *strings.Builder
	kind, line, start := "", 0, 0
	for text := range strings.Lines(page) {
		line++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(text), "```")
		switch {
		case isFence && block == nil:
			block, kind, start = new(strings.Builder), fence, line
		case isFence:
			switch last := len(out) - 1; {
			case kind == "sh":
				out = append(out, pageCommand{line: start, sh: block.String()})
			case kind == "text" && last >= 0 && !out[last].shown:
				out[last].output, out[last].shown = block.String(), true
			}
			block = nil
		case block != nil:
			block.WriteString(text)
		}
	}
	return out
}

// An outcome is what one block wrote, and how it ended.
type outcome struct {
	text   string
	status int
}

const pageMark = "\x01end of block "

// pagePatience bounds a page, which may wait for what never comes.
const pagePatience = 10 * time.Minute

// runPage runs the blocks in one shell, in namespaces of its own, where the lab
// called default is free and nothing stays behind.
func runPage(t *testing.T, commands []pageCommand) []outcome {
	t.Helper()
	dir, bin := t.TempDir(), lab.Build(t, lab.BuildOptions{})
	isolate := filepath.Join(dir, "isolate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", isolate, "../../scripts/isolate").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var script strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&script, "%s\nprintf '\\n%s%%s\\n' $?\n", c.sh, pageMark)
	}
	file := filepath.Join(dir, "page.sh")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pagePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, isolate, "sh", file)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	all, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("the page waits for something that has not come within %v; so far:\n%s", pagePatience, all)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, all)
	}
	var outs []outcome
	rest := string(all)
	for range commands {
		text, after, ok := strings.Cut(rest, "\n"+pageMark)
		if !ok {
			t.Fatalf("the shell ended in block %d:\n%s", len(outs)+1, rest)
		}
		status, after, _ := strings.Cut(after, "\n")
		n, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		outs, rest = append(outs, outcome{text, n}), after
	}
	return outs
}

// unsteady is what differs from run to run.
var unsteady = []*regexp.Regexp{
	regexp.MustCompile(`\b(time|took|pid|PID|round_trips|bytes_read|conflicts|revision|uptime|emptySince)("?[=: ]+"?)[^\s",)]+`),
	regexp.MustCompile(`()()\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+Z?\b`),
	regexp.MustCompile(`\b(after )[0-9.]+[a-zµ]+()`),
	regexp.MustCompile(`(@if|link-netnsid )[0-9]+()`),
	regexp.MustCompile(`(?m)^()[0-9]+: `),
	regexp.MustCompile(`(version|version=)("?)[^\s"}]+`),
}

// steady is a text without what differs from run to run.
func steady(text string) string {
	for _, r := range unsteady {
		text = r.ReplaceAllString(text, "${1}${2}0")
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \r")
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	return strings.Join(lines, "\n")
}

// matches reports whether a command wrote what the page shows, in which "…"
// stands for anything.
func matches(shown, got string) bool {
	parts := strings.Split(steady(shown), "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile(`(?s)\A` + strings.Join(parts, ".*?") + `\z`).MatchString(steady(got))
}

func TestPage(t *testing.T) {
	got := commandsOf("a\n```sh\nls\n```\nprose\n```text\nfile\n```\n```sh\ncd\n```\n```json\n{}\n```\n")
	want := []pageCommand{{line: 2, sh: "ls\n", output: "file\n", shown: true}, {line: 9, sh: "cd\n"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pageCommand{})); diff != "" {
		t.Errorf("commandsOf (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		shown, got string
		want       bool
	}{
		{"a\nb\n", "a\nb", true},
		{"a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"a … c\n", "a b c\n", true},
		{"a\n", "a\nb\n", false},
		{"took=1ms x=1\n", "took=20.3µs x=1\n", true},
		{"took=1ms x=1\n", "took=1ms x=2\n", false},
		{"4: cali1@if2: <UP> \n", "17: cali1@if9: <UP>\n", true},
	} {
		if matches(c.shown, c.got) != c.want {
			t.Errorf("page %q, command %q: want %v", c.shown, c.got, c.want)
		}
	}
}
