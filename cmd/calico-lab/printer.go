// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// printer writes the demo: headings, indented text, columns. It uses colours only on a terminal that hasn't disabled
// them.
type printer struct {
	w     io.Writer
	bold  bool
	width int
	step  int
}

func newPrinter(w io.Writer) *printer {
	p := &printer{w: w, width: 120}
	f, ok := w.(*os.File)
	if !ok {
		return p
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		p.bold = os.Getenv("NO_COLOR") == ""
		p.width = min(max(int(size.Col), 80), 200)
	}
	return p
}

// heading begins a step.
func (p *printer) heading(format string, args ...any) {
	p.step++
	text := fmt.Sprintf("%d. %s", p.step, fmt.Sprintf(format, args...))
	fmt.Fprintf(p.w, "\n%s\n%s\n", p.emphasis(text), strings.Repeat("─", min(utf8.RuneCountInString(text), p.width)))
}

func (p *printer) emphasis(text string) string {
	if !p.bold {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// json prints a document indented, or unchanged if it isn't JSON.
func (p *printer) json(title string, data []byte) {
	var out bytes.Buffer
	if len(bytes.TrimSpace(data)) == 0 {
		p.line("  %s: nothing", title)
		return
	}
	if json.Indent(&out, bytes.TrimSpace(data), "    ", "  ") != nil {
		out.Reset()
		out.Write(data)
	}
	p.line("  %s:\n    %s", title, out.String())
}

// columns prints two lists of lines side by side.
func (p *printer) columns(leftTitle, rightTitle string, left, right []string) {
	width := (p.width - 3) / 2
	left, right = wrap(left, width), wrap(right, width)
	pad := func(s string) string { return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) }
	fmt.Fprintf(p.w, "%s │ %s\n", p.emphasis(pad(leftTitle)), p.emphasis(rightTitle))
	fmt.Fprintf(p.w, "%s─┼─%s\n", strings.Repeat("─", width), strings.Repeat("─", width))
	for i := range max(len(left), len(right)) {
		l, r := "", ""
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		fmt.Fprintln(p.w, strings.TrimRight(pad(l)+" │ "+r, " "))
	}
}

// wrap breaks lines wider than width, after a space or slash if possible, and indents the continuation.
func wrap(lines []string, width int) []string {
	var out []string
	for _, line := range lines {
		indent := strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " "))+4)
		for utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			cut := width
			if at := strings.LastIndexAny(string(runes[:width]), " /"); at > len(indent) {
				cut = utf8.RuneCountInString(string(runes[:width])[:at+1])
			}
			out = append(out, strings.TrimRight(string(runes[:cut]), " "))
			line = indent + string(runes[cut:])
		}
		out = append(out, line)
	}
	return out
}
