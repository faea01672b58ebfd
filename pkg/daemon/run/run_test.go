// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/daemon/serving"
	"github.com/calico-go/calico/pkg/lab/ports"
	"github.com/calico-go/calico/pkg/store"
)

// config has a field for each kind of option.
type config struct {
	Store store.Config
	Dir   string
	Own   bool
	Level slog.Level
	At    serving.Address
}

func (c *config) parse(args, environ []string, out io.Writer) error {
	flags, level := flag.NewFlagSet("calico-test", flag.ContinueOnError), new(slog.LevelVar)
	flags.SetOutput(out)
	options := append(Etcd(&c.Store), levelOption(level),
		Option{Flag: "dir", Variable: "DIR", Initial: "/d", Help: "a directory", Set: Absolute(&c.Dir)},
		Option{Flag: "own", Variable: "OWN", Initial: "false", Help: "own", Set: Bool(&c.Own)},
		Option{Flag: "at", Variable: "AT", Initial: ":9094", Help: "where to serve", Set: address(&c.At)})
	err := Parse(flags, options, args, environ)
	c.Level = level.Level()
	return err
}

func TestParse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := serving.Address{Enabled: true, Port: 9094}
	tests := []struct {
		name          string
		args, environ []string
		want          config
	}{
		{"nothing", nil, nil, config{Dir: "/d", At: at}},
		{"empty variables are not set", nil, []string{"DIR=", "AT=", "ETCD_CA_CERT_FILE=", "LOG_LEVEL="}, config{Dir: "/d", At: at}},
		{"environment", nil, []string{
			"ETCD_ENDPOINTS=https://a:2379, https://b:2379,", "ETCD_CA_CERT_FILE=" + file, "ETCD_CERT_FILE= " + file + " ", "ETCD_KEY_FILE=" + file,
			"ETCD_USERNAME= u ", "ETCD_PASSWORD_FILE=" + file, "DIR=/v/", "OWN=1", "LOG_LEVEL=Warning", "AT=0", "PATH=/bin", "nothing",
		}, config{
			Store: store.Config{Endpoints: []string{"https://a:2379", "https://b:2379"}, CAFile: file, CertFile: file, KeyFile: file, Username: "u", PasswordFile: file},
			Dir:   "/v", Own: true, Level: slog.LevelWarn,
		}},
		{"flags win", []string{"-dir", "/f", "--etcd-discovery-srv=example.org", "-log-level", "info", "-at="}, []string{"DIR=/e", "LOG_LEVEL=debug", "AT=:1"},
			config{Store: store.Config{DiscoverySRV: "example.org"}, Dir: "/f"}},
		{"certificates without endpoints", nil, []string{"ETCD_CA_CERT_FILE=" + file},
			config{Store: store.Config{CAFile: file}, Dir: "/d", At: at}},
	}
	for _, test := range tests {
		var got config
		err := got.parse(test.args, test.environ, io.Discard)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		arg, variable string
		want          string
	}{
		{"run", "", `argument "run" is not understood: calico-test takes flags only, see -help`},
		{"-what", "", "flag provided but not defined: -what"},
		{"-dir=d", "DIR=/d", `flag -dir: "d": want an absolute path`},
		{"", "DIR=d", `DIR: "d": want an absolute path`},
		{"", "ETCD_KEY_FILE=/no/such", "ETCD_KEY_FILE: open /no/such: no such file"},
		{"", "OWN=yes", `OWN: "yes": want true or false`},
		{"", "LOG_LEVEL=loud", `LOG_LEVEL: "loud": want debug, info, warning or error`},
		{"-at=9094", "", `flag -at: address "9094": want host:port`},
		// All that is wrong is said at once.
		{"-at=9094", "DIR=d", "DIR: \"d\": want an absolute path\nflag -at: "},
	} {
		args := strings.Fields(test.arg)
		if err := new(config).parse(args, []string{test.variable}, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %s: %v, want %s", test.arg, test.variable, err, test.want)
		}
	}
}

// TestAsked: help and the version are printed whatever else is invalid.
func TestAsked(t *testing.T) {
	var help bytes.Buffer
	if err := new(config).parse([]string{"-help"}, []string{"DIR=d"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "(ETCD_ENDPOINTS)") {
		t.Errorf("-help: %v, %s", err, help.String())
	}
	if err := new(config).parse([]string{"-version"}, []string{"DIR=d"}, io.Discard); !errors.Is(err, errVersion) {
		t.Errorf("-version: %v", err)
	}
}

func TestParseEnviron(t *testing.T) {
	var c config
	options := []Option{{Variable: "DIR", Initial: "/d", Set: Absolute(&c.Dir)}, {Variable: "OWN", Initial: "false", Set: Bool(&c.Own)}}
	if err := ParseEnviron(options, []string{"OWN=true"}); err != nil || !c.Own || c.Dir != "/d" {
		t.Errorf("%+v, %v", c, err)
	}
	want := "DIR: \"d\": want an absolute path\nOWN: \"1 \": want true or false"
	if err := ParseEnviron(options, []string{"OWN=1 ", "DIR=d"}); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestStatus(t *testing.T) {
	wrong := errors.New("wrong")
	for _, test := range []struct {
		parsed, did error
		want        int
		runs        bool
	}{
		{nil, nil, 0, true},
		{nil, wrong, 1, true},
		{wrong, nil, 2, false},
		{flag.ErrHelp, nil, 0, false},
		{errVersion, nil, 0, false},
	} {
		ran := false
		got := Main("calico-test", "0", test.parsed, func(context.Context) error {
			ran = true
			return test.did
		})
		if got != test.want || ran != test.runs {
			t.Errorf("%v, %v: status %d, run %v; want %d, %v", test.parsed, test.did, got, ran, test.want, test.runs)
		}
	}
}

// TestDaemon: a daemon has its own options and the common ones, and serves its pages; the second of two at one address says why it can't.
func TestDaemon(t *testing.T) {
	var dir string
	d := Daemon{Name: "calico-test", Prefix: "calico_test", Options: []Option{{Flag: "dir", Variable: "DIR", Initial: "/d", Set: Absolute(&dir)}}, Health: "127.0.0.1:9000", Metrics: "0"}
	var log bytes.Buffer
	at := ports.Free(t, 1)[0]
	env, err := d.Prepare("1.2", []string{"-dir=/x", "-health", at}, []string{"LOG_LEVEL=error"}, &log)
	if err != nil || dir != "/x" || env.Level.Level() != slog.LevelError {
		t.Fatalf("%v, %q, %v", err, dir, env.Level)
	}
	if err := env.Serve(); err != nil {
		t.Fatal(err)
	}
	defer env.Pages.Close()
	reply, err := http.Get("http://" + at + "/readiness")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }() // read
	if text, err := io.ReadAll(reply.Body); err != nil || string(text) != "calico-test is starting\n" {
		t.Errorf("%q, %v", text, err)
	}
	if log.Len() > 0 {
		t.Errorf("at level error: %s", &log)
	}
	second, err := d.Prepare("1.2", []string{"-health", at}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Serve(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second at %s: %v", at, err)
	}
	if _, err := d.Prepare("1.2", []string{"-health", "there"}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "flag -health: ") {
		t.Errorf("-health there: %v", err)
	}
}

// TestSwitch: a switch takes no value, and an option may be a flag or a variable alone.
func TestSwitch(t *testing.T) {
	var on bool
	var flagOnly, variableOnly string
	options := []Option{
		{Flag: "on", Switch: true, Initial: "false", Set: Bool(&on)}, {Flag: "f", Initial: "a", Set: Text(&flagOnly)}, {Variable: "V", Initial: "b", Set: Text(&variableOnly)},
	}
	for _, test := range []struct {
		args, environ []string
		on            bool
		f, v          string
	}{
		{nil, nil, false, "a", "b"},
		{[]string{"-on", "-f", "c"}, []string{"V=d", "=e"}, true, "c", "d"},
	} {
		err := Parse(flag.NewFlagSet("calico-test", flag.ContinueOnError), options, test.args, test.environ)
		if err != nil || on != test.on || flagOnly != test.f || variableOnly != test.v {
			t.Errorf("%v %v: %v, %v, %q, %q", test.args, test.environ, err, on, flagOnly, variableOnly)
		}
	}
}

func TestVerbs(t *testing.T) {
	var got []string
	do := func(args []string) int { got = args; return 7 }
	both := Verbs{Name: "calico-test", Usage: "usage\n", Do: map[string]func([]string) int{"": do, "go": do}}
	one := Verbs{Name: "calico-test", Usage: "usage\n", Do: map[string]func([]string) int{"go": do}}
	for _, test := range []struct {
		verbs Verbs
		args  []string
		want  int
		got   []string
	}{
		{both, nil, 7, nil}, {both, []string{"go", "a", "-b"}, 7, []string{"a", "-b"}}, {both, []string{"stop"}, 2, nil},
		{one, nil, 2, nil}, {one, []string{"-version"}, 0, nil}, {one, []string{"-h"}, 0, nil},
	} {
		got = nil
		if status := test.verbs.Main(test.args); status != test.want || !slices.Equal(got, test.got) {
			t.Errorf("%q: status %d, arguments %q; want %d, %q", test.args, status, got, test.want, test.got)
		}
	}
}

// TestSignal: a program that gets a signal to end exits cleanly.
func TestSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		status := Main("calico-test", "0", nil, func(ctx context.Context) error {
			if err := syscall.Kill(os.Getpid(), signal); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if status != 0 {
			t.Errorf("%v: status %d", signal, status)
		}
	}
}

// TestUnset: variables set the options that neither a flag nor the environment sets.
func TestUnset(t *testing.T) {
	var a, b, c string
	d := Daemon{Name: "calico-test", Prefix: "calico_test", Health: "0", Metrics: "0", Options: []Option{
		{Flag: "a", Variable: "A", Set: Text(&a)}, {Flag: "b", Variable: "B", Set: Text(&b)}, {Flag: "c", Variable: "C", Set: Text(&c)}, {Flag: "d", Set: Text(new(string))},
	}}
	e, err := d.Prepare("", []string{"-a", "flag"}, []string{"B=variable", "C=", "LOG_LEVEL="}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"C": "3", "LOG_LEVEL": "debug"}
	all := map[string]string{"A": "1", "B": "2", "C": "3", "LOG_LEVEL": "debug", "": "4", "OTHER": "5"}
	if diff := cmp.Diff(want, e.Unset(all)); diff != "" {
		t.Errorf("unset (-want +got):\n%s", diff)
	}
	if err := e.Set(all); err != nil || a != "flag" || b != "variable" || c != "3" || e.Level.Level() != slog.LevelDebug {
		t.Errorf("%s, %s, %s, %v: %v", a, b, c, e.Level, err)
	}
	if err := e.Set(map[string]string{"LOG_LEVEL": "loud"}); err == nil {
		t.Error("an invalid value is taken")
	}
}
