// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-go/calico/pkg/agent/params"
	"github.com/calico-go/calico/pkg/installer"
)

var update = flag.Bool("update", false, "write docs/configuration.md and docs/metrics.md")

const configurationPage = "../../docs/configuration.md"

const configurationHead = `# Configuration of calico-node

This page is made from the tables in the code by ` + "`go test ./pkg/agent -run TestConfigurationPage -update`" + `.

The process is told by flags, or the variables that stand for them, how to reach etcd and where its files are: see
[flags](#flags). What it does is said by [parameters](#parameters).

## Where parameters stand

In order of strength:

1. the flags ` + "`-health` and `-metrics`" + `, for the parameters that say where these are served;
2. the environment, as ` + "`FELIX_<Name>`" + `, the name in any case; an empty variable is not set;
3. the configuration file, ` + "`" + params.DefaultFile + "`" + ` or what ` + "`-config`" + ` says, which need not be there: lines
   ` + "`Name = value`" + `, by custom below a line ` + "`[global]`" + `; a line that begins with ` + "`#` or `;`" + ` is a comment;
4. etcd, for one host: ` + "`/calico/v1/host/<host>/config/<Name>`" + `;
5. etcd, for all hosts: ` + "`/calico/v1/config/<Name>`" + `;
6. the default.

What names a file, or an address to listen at, is not taken from etcd, where whoever may write would have root open it on this host: LogFilePath,
HealthHost, PrometheusMetricsHost and BGPListenAddresses; but for a BGP peer's password_file. Set there to anything but the default, it is a mistake, as below.

Flags, environment and file are read when the agent starts. A change in etcd applies while it runs, to every parameter,
and is logged with the value and where it comes from. Where a flag, the environment or the file stands before it, the
change is without effect until the agent is started without that, and the log says so. Where one place has a parameter in
several spellings, that of the table below counts, and a name before what stands beside it as ` + "`also`" + `; the log names the others. Of several
lines in the file that spell it alike, the last counts, and the others are mistakes.

## A value that makes no sense

is not used: the parameter's default is. What weaker places say of the parameter isn't used either, as nobody chose that for
this host; so what must be the same on all hosts is best set for all of them alone. A mistake is logged once, with its place and what is wrong with it,
counted by the metric ` + "`calico_node_invalid_objects`" + `, and shown at ` + "`/debug/invalid`" + ` on the health port with
what is used instead, also where a stronger place has a value that is in order. Beside it are the objects in etcd that are not acted upon, and, as
notices, those that are but have fields which nothing is known of, and settings without effect, which name no parameter or are there in two spellings:

` + "```sh\ncurl http://127.0.0.1:9099/debug/invalid\n```\n```text\n" +
	`setting /calico/v1/config/RouteRefreshInterval
  since   2030-01-02T03:04:05Z
  reason  time "soon": want seconds, 1 to 3600
  value   "soon"
  used    "10", default
` + "```\n\n`?format=json`, or `Accept: application/json`," + ` gives the same to programs. When it is put right, it is gone from
there, and the log says so.

A name that no parameter has is logged once and is not used. Names of Calico's that other programs keep in the same
place, or that belong to a data path which this agent does not have, are passed over in silence.

## Parameters

`

// configuration returns the text of the page.
func configuration() string {
	var b strings.Builder
	b.WriteString(configurationHead)
	b.WriteString("| Name | What it does | Values | Default | A change applies |\n|---|---|---|---|---|\n")
	for _, p := range params.Table() {
		name := "`" + p.Name + "`"
		for _, a := range p.Aliases {
			name += ", also `" + a + "`"
		}
		initial := "`" + p.Initial + "`"
		if p.Initial == "" {
			initial = "nothing"
		}
		fmt.Fprintf(&b, "| %s | %s | %s: %s | %s | %s |\n", name, p.Does, p.Values.Name, p.Values.Allowed,
			strings.ReplaceAll(initial, ",", "`, `"), p.Effect)
	}
	b.WriteString("\n## Flags\n\nA flag is stronger than its variable.\n\n| Flag | Variable | What it is | Default |\n|---|---|---|---|\n")
	for _, o := range options(new(Config), "") {
		help, initial, found := strings.Cut(o.Help, "; default: ")
		switch {
		case o.Initial != "":
			initial = "`" + o.Initial + "`"
		case !found:
			initial = "none"
		}
		fmt.Fprintf(&b, "| `-%s` | `%s` | %s | %s |\n", o.Flag, o.Variable, help, initial)
	}
	b.WriteString("\nA new host with `first-found`, or `skip-interface=`, takes an address of the link by which it reaches etcd, else of that with the default\n" +
		"route, else the first of all; it keeps the one that it has. If what it sends to other hosts leaves by another link,\n" +
		"`/readiness` and `/debug/invalid` name the address that would do.\n")
	b.WriteString("\n## calico-install\n\nThe installer, as the init container of the agent's pod or by hand, is told by the environment alone. It leaves the network\n" +
		"configuration in `CALICO_VAR_DIR`; the agent puts it in place when it serves the host.\n\n" + installer.Reference())
	return b.String()
}

// TestConfigurationPage compares the page with the tables.
func TestConfigurationPage(t *testing.T) {
	want := configuration()
	if *update {
		if err := os.WriteFile(configurationPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not what the tables say: go test ./pkg/agent -run TestConfigurationPage -update (-want +got):\n%s", diff)
	}
}
