// SPDX-License-Identifier: Apache-2.0

// Package run is how a process of ours starts and ends: it reads flags and the environment, and turns signals and errors into an
// exit status.
package run

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"strings"
)

// An Option is one setting of a process: a flag, and the variable of the environment that stands for it, or one of the two.
type Option struct {
	Flag, Variable string
	// Initial is the value where neither is set.
	Initial string
	Help    string
	// Switch: the flag takes no value, and is "true".
	Switch bool
	// Set takes the value into use, or says what is wrong with it.
	Set func(string) error
}

// errVersion says that the version is asked for, and nothing else.
var errVersion = errors.New("the version is asked for")

// Parse reads a command line and an environment: flags win, and a variable that is empty is not set. It defines the options as flags
// beside those that are there, and -version. The error names every value that makes no sense; it is flag.ErrHelp where help was asked
// for, and printed, and one that Main knows where the version is.
func Parse(flags *flag.FlagSet, options []Option, args, environ []string) error {
	version := flags.Bool("version", false, "print the version and exit")
	for _, o := range options {
		switch help := fmt.Sprintf("%s (%s)", o.Help, o.Variable); {
		case o.Switch:
			flags.Bool(o.Flag, false, o.Help)
		case o.Variable == "":
			flags.String(o.Flag, o.Initial, o.Help)
		case o.Flag != "":
			flags.String(o.Flag, o.Initial, help)
		}
	}
	switch err := flags.Parse(args); {
	case err != nil:
		return err
	case *version:
		return errVersion
	case flags.NArg() > 0:
		return fmt.Errorf("argument %q is not understood: %s takes flags only, see -help", flags.Arg(0), flags.Name())
	}
	given := map[string]string{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.String() })
	return assign(options, given, environ)
}

// ParseEnviron is Parse for a program without flags.
func ParseEnviron(options []Option, environ []string) error { return assign(options, nil, environ) }

func assign(options []Option, given map[string]string, environ []string) error {
	variables := Variables(environ)
	var errs []error
	for _, o := range options {
		value, source := cmp.Or(variables[o.Variable], o.Initial), cmp.Or(o.Variable, "flag -"+o.Flag)
		if v, ok := given[o.Flag]; ok {
			value, source = v, "flag -"+o.Flag
		}
		if err := o.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source, err))
		}
	}
	return errors.Join(errs...)
}

// Variables are those of an environment, by name.
func Variables(environ []string) map[string]string {
	variables := map[string]string{}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); name != "" {
			variables[name] = value
		}
	}
	return variables
}
