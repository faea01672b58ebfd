// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/ctl"
	"github.com/calico-go/calico/pkg/ctl/session"
)

// run gives the status and what a command line prints to either stream.
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
		{[]string{"vresion"}, session.StatusUsage, "", "calicoctl: unknown command \"vresion\"; did you mean version?: see calicoctl --help\n"},
		{[]string{"version", "x"}, session.StatusUsage, "", "calicoctl: unknown command \"x\" for \"calicoctl version\": see calicoctl version --help\n"},
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
		"field":    {"apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  etcdEndpoint: http://a\n", "line 4: field etcdEndpoint not found"},
		"kind":     {"apiVersion: projectcalico.org/v3\nkind: Config\n", `kind: "Config": want CalicoAPIConfig`},
		"version":  {"kind: CalicoAPIConfig\n", `apiVersion: "": want projectcalico.org/v3`},
		"empty":    {"", "empty: want kind: CalicoAPIConfig"},
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
