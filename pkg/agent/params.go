// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Params are the settings that may stand in the environment, as
// FELIX_<PARAMETER>, or in etcd, for one host or for all; they win in this order.
type Params struct {
	// InterfacePrefixes are what the names of workload interfaces begin with.
	InterfacePrefixes []string
	// LogLevel is that of the log on the screen.
	LogLevel slog.Level
	// RefreshInterval is how often the kernel's whole state is read and repaired.
	RefreshInterval time.Duration
}

// levelNone is above every level that is logged.
const levelNone = slog.Level(100)

// param is one setting: its name as users know it, its default and its type.
type param struct {
	name, initial string
	set           func(*Params, string) error
}

func params() []param {
	return []param{
		{"InterfacePrefix", "cali", func(p *Params, text string) (err error) {
			p.InterfacePrefixes, err = parsePrefixes(text)
			return err
		}},
		{"LogSeverityScreen", "INFO", func(p *Params, text string) (err error) {
			p.LogLevel, err = parseSeverity(text)
			return err
		}},
		{"RouteRefreshInterval", "10", func(p *Params, text string) (err error) {
			p.RefreshInterval, err = parseSeconds(text, time.Second, time.Hour)
			return err
		}},
	}
}

// paramError is a setting that makes no sense, and which one.
type paramError struct {
	name  string // of the parameter
	layer int    // index of the map it came from
	err   error
}

// resolve works the parameters out. In each layer names are lower case; the
// first layer that has a value which makes sense wins.
func resolve(layers ...map[string]string) (Params, []paramError) {
	var p Params
	var wrong []paramError
next:
	for _, param := range params() {
		for i, layer := range layers {
			text, ok := layer[strings.ToLower(param.name)]
			if !ok {
				continue
			}
			err := param.set(&p, text)
			if err == nil {
				continue next
			}
			wrong = append(wrong, paramError{param.name, i, err})
		}
		if err := param.set(&p, param.initial); err != nil {
			panic(fmt.Sprintf("default of %s: %v", param.name, err)) // a table of constants, tested
		}
	}
	return p, wrong
}

// felixEnviron picks the FELIX_ variables, by lower-case parameter name.
// unknown are the variables that name no parameter of ours.
func felixEnviron(environ []string) (known map[string]string, unknown []string) {
	known = map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		param, ok := cutPrefixFold(name, "FELIX_")
		if !ok {
			continue
		}
		if isParam(param) {
			known[strings.ToLower(param)] = value
		} else {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return known, unknown
}

func isParam(name string) bool {
	return slices.ContainsFunc(params(), func(p param) bool { return strings.EqualFold(p.name, name) })
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

func parsePrefixes(text string) ([]string, error) {
	var prefixes []string
	for p := range strings.SplitSeq(text, ",") {
		p = strings.TrimSpace(p)
		if p == "" {
			return nil, fmt.Errorf("interface prefixes %q: one is empty, and would make every interface a workload's: want a comma list like cali,tap", text)
		}
		if err := checkInterface(p); err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	slices.Sort(prefixes)
	return slices.Compact(prefixes), nil
}

func severities() map[string]slog.Level {
	return map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARNING": slog.LevelWarn,
		"ERROR": slog.LevelError, "CRITICAL": slog.LevelError + 4, "NONE": levelNone,
	}
}

func parseSeverity(text string) (slog.Level, error) {
	level, ok := severities()[strings.ToUpper(strings.TrimSpace(text))]
	if !ok {
		names := slices.Sorted(maps.Keys(severities()))
		return 0, fmt.Errorf("severity %q: want one of %s", text, strings.Join(names, ", "))
	}
	return level, nil
}

// parseSeconds reads a number of seconds, with or without a unit.
func parseSeconds(text string, least, most time.Duration) (time.Duration, error) {
	text = strings.TrimSpace(text)
	d, err := time.ParseDuration(text)
	if seconds, plain := strconv.ParseFloat(text, 64); plain == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err == nil && (d < least || d > most) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("time %q: want seconds, %v to %v", text, least.Seconds(), most.Seconds())
	}
	return d, nil
}
