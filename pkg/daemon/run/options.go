// SPDX-License-Identifier: Apache-2.0

// Package run starts and ends a process: it reads flags and the environment, and turns signals and errors into an exit status.
package run

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"strings"
)

// An Option is one setting of a process: a flag, the environment variable that stands for it, or both.
type Option struct {
	Flag, Variable string
	// Initial is the value if neither is set.
	Initial string
	Help    string
	// Switch makes the flag take no value; its value is "true".
	Switch bool
	// Set uses the value, or says what is wrong with it.
	Set func(string) error
}

// errVersion is the error of Parse for -version.
var errVersion = errors.New("the version is asked for")

// Parse reads a command line and an environment: flags win, and an empty variable counts as unset. It defines the options as flags beside
// the existing ones, and -version. The error names every invalid value. It is flag.ErrHelp after -help, which is printed, and one that Main
// knows after -version.
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

// Variables returns the variables of an environment, by name.
func Variables(environ []string) map[string]string {
	variables := map[string]string{}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); name != "" {
			variables[name] = value
		}
	}
	return variables
}
