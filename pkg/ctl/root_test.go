// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-go/calico/pkg/ctl"
	"github.com/calico-go/calico/pkg/ctl/session"
)

// run returns the status of a command line, and what it prints to either stream.
func run(t *testing.T, environ []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	env := &session.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Environ: environ, Version: "1.2.3"}
	return ctl.Run(context.Background(), env, args), out.String(), errs.String()
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{[]string{"version"}, session.StatusOK, "calicoctl 1.2.3\n", ""},
		{[]string{"version", "--allow-version-mismatch"}, session.StatusOK, "calicoctl 1.2.3\n", ""},
		{[]string{"--version"}, session.StatusOK, "calicoctl 1.2.3\n", ""},
		{[]string{"vresion"}, session.StatusUsage, "", "calicoctl: unknown command \"vresion\"; did you mean version?: see calicoctl --help\n"},
		{[]string{"version", "x"}, session.StatusUsage, "", "calicoctl: \"x\" doesn't belong there: want calicoctl version: see calicoctl version --help\n"},
		{[]string{"connectivity", "test", "--node", "a", "--node", "a"}, session.StatusUsage, "", "calicoctl: --node: want one node, or two different ones\n"},
		{[]string{"connectivity", "test", "--outside", "192.0.2.1"}, session.StatusUsage, "", "calicoctl: --outside \"192.0.2.1\": want ADDRESS:PORT\n"},
		{[]string{"connectivity", "test", "--kubeconfig", "/none"}, session.StatusUsage, "", "calicoctl: read kubeconfig: stat /none: no such file or directory: --kubeconfig or KUBECONFIG names one\n"},
		{[]string{"connectivity", "probe", "x"}, session.StatusUsage, "", "calicoctl: probes: invalid character 'x' looking for beginning of value\n"},
		{[]string{"version", "--colour"}, session.StatusUsage, "", "calicoctl: unknown flag: --colour: see calicoctl version --help\n"},
	} {
		status, stdout, stderr := run(t, nil, tc.args...)
		if status != tc.status || stdout != tc.stdout || stderr != tc.stderr {
			t.Errorf("%v: status %d\nstdout %s\nstderr %s", tc.args, status, cmp.Diff(tc.stdout, stdout), cmp.Diff(tc.stderr, stderr))
		}
	}
}

func TestConfigErrors(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct{ text, want string }{
		"field":    {"apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  etcdEndpoint: http://a\n", "field:4:3: spec.etcdEndpoint: unknown field; did you mean etcdEndpoints?"},
		"types":    {"apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {etcdKeyFile: [1]}\n", "types:3:21: spec.etcdKeyFile: a list: want a string"},
		"kind":     {"apiVersion: projectcalico.org/v3\nkind: Config\n", `kind: "Config": want CalicoAPIConfig`},
		"version":  {"kind: CalicoAPIConfig\n", `apiVersion: "": want projectcalico.org/v3`},
		"empty":    {"", "/empty: empty"},
		"password": {"apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {etcdPassword: x}\n", "spec.etcdPassword: write it to a file and name that in spec.etcdPasswordFile"},
		"type":     {"apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {datastoreType: kubernetes}\n", `datastore type "kubernetes" is not supported`},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		env := &session.Env{Stdin: strings.NewReader(""), Stdout: new(strings.Builder), Stderr: new(strings.Builder)}
		env.SetConfigFile(file)
		_, err := env.Store(context.Background())
		env.Close()
		if err == nil || !strings.Contains(err.Error(), tc.want) || session.Status(err) != session.StatusUsage {
			t.Errorf("%s: %v, status %d: want %s, 2", name, err, session.Status(err), tc.want)
		}
	}
}

// TestUsageTexts: no help text of a flag has a word in backquotes, which pflag would take for the name of the value.
func TestUsageTexts(t *testing.T) {
	n := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			n++
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %s", cmd.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(ctl.Command(&session.Env{}))
	if n < 50 {
		t.Errorf("%d flags", n)
	}
}

// TestProgress: a command that takes long reports on stderr what it does, whenever the clock ticks, until it has ended.
func TestProgress(t *testing.T) {
	now, errs := make(chan time.Time), make(chan string)
	etcd, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	ctx, cancel := context.WithCancel(t.Context())
	env := &session.Env{
		Stdin: strings.NewReader(""), Stdout: new(strings.Builder), Stderr: writer(errs), Environ: []string{"ETCD_ENDPOINTS=http://" + etcd.Addr().String()},
		After: func(time.Duration) <-chan time.Time { return now },
	}
	var status int
	var wg sync.WaitGroup
	wg.Go(func() {
		status = ctl.Run(ctx, env, []string{"get", "nodes", "--timeout=1h"})
		close(errs)
	})
	want := "calicoctl: waiting for etcd at http://" + etcd.Addr().String() + "\n"
	for said := 0; said < 2; { // what it does may not be known yet at the first
		select {
		case now <- time.Time{}:
		case text := <-errs:
			if text != want {
				t.Errorf("it says %q", text)
			}
			said++
		}
	}
	cancel()
	for text := range errs {
		if text != want && !strings.Contains(text, "context canceled") {
			t.Errorf("it says %q", text)
		}
	}
	wg.Wait()
	if status == session.StatusOK {
		t.Error("nothing went wrong")
	}
}

type writer chan<- string

func (w writer) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
