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

Flags, or the corresponding variables, tell the agent how to reach etcd and where its files are: see [flags](#flags).
[Parameters](#parameters) control what it does.

## Where parameters stand

In decreasing order of precedence:

1. the flags ` + "`-health`" + ` and ` + "`-metrics`" + `, for the parameters that set the addresses of these servers;
2. the environment, as ` + "`FELIX_<Name>`" + `, with the name in any case; an empty variable counts as unset;
3. the configuration file, ` + "`" + params.DefaultFile + "`" + ` or the one that ` + "`-config`" + ` names, which is optional. It has lines ` + "`Name = value`" + `, by
   convention below a line ` + "`[global]`" + `; a line that begins with ` + "`#`" + ` or ` + "`;`" + ` is a comment;
4. etcd, for one host: ` + "`/calico/v1/host/<host>/config/<Name>`" + `;
5. etcd, for all hosts: ` + "`/calico/v1/config/<Name>`" + `;
6. the default.

Parameters that name a file or an address to listen on are not taken from etcd: otherwise, anyone who can write there could have root open
it on this host. These are LogFilePath, HealthHost, PrometheusMetricsHost and BGPListenAddresses. A value other than the default there is a
mistake, as below. The password_file of a BGP peer is an exception.

The agent reads flags, environment and file when it starts. It applies changes in etcd while it runs, to every parameter, and logs the value
and its source. If a flag, the environment or the file takes precedence, the change has no effect until you start the agent without that,
and the log says so. If one source has several spellings of a parameter, the one in the table below counts, and the name takes precedence
over those listed as ` + "`also`" + `; the log names the others. If several lines in the file have the same spelling, the last one counts, and the
others are mistakes.

## A value that makes no sense

The agent doesn't use an invalid value: it uses the parameter's default. It doesn't use values from sources of lower precedence either,
because they weren't chosen for this host. So if a parameter must be the same on all hosts, set it only for all of them.

The agent logs a mistake once, with its source and reason, counts it in the metric ` + "`calico_node_invalid_objects`" + `, and shows it at
` + "`/debug/invalid`" + ` on the health port with the value that it uses instead, even if a source of higher precedence has a valid value. The same
page shows the objects in etcd that the agent ignores. It also shows notices: objects with unknown fields, and settings without effect,
which name no parameter or exist in two spellings:

` + "```sh\ncurl http://127.0.0.1:9099/debug/invalid\n```\n```text\n" +
	`setting /calico/v1/config/RouteRefreshInterval
  since   2030-01-02T03:04:05Z
  reason  time "soon": want seconds, 1 to 3600
  value   "soon"
  used    "10", default
` + "```\n\n" + `For programs, ` + "`?format=json`" + `, or ` + "`Accept: application/json`" + `, gives the same. Once the value is corrected, it disappears from there, and the
log says so.

A name that belongs to no parameter is logged once and ignored. Names of Calico's that other programs keep in the same place, or that belong
to a data path that this agent does not have, are ignored silently.

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
	b.WriteString("\n## Flags\n\nA flag takes precedence over its variable.\n\n| Flag | Variable | What it is | Default |\n|---|---|---|---|\n")
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
	b.WriteString("\nWith `first-found` or `skip-interface=`, a new host takes an address of the link through which it reaches etcd, otherwise of the link with\n" +
		"the default route, otherwise the first of all. It keeps the address that it has. If its packets to other hosts leave through another link,\n" +
		"`/readiness` and `/debug/invalid` name the address to use.\n")
	b.WriteString("\n## calico-install\n\nThe installer, as the init container of the agent's pod or by hand, takes its settings only from the environment. It leaves the network\n" +
		"configuration in `CALICO_VAR_DIR`; the agent puts it in place once it serves the host.\n\n" + installer.Reference())
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
