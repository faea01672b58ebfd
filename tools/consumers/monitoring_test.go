// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"encoding/json"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/kubernetes" // the documents' configuration has it
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// alerts are the rules of the file, by their names.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, manifests+"monitoring/alerts.yaml")), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 || len(groups.Groups) != 1 {
		t.Fatalf("alerts.yaml: %v, %d groups", errs, len(groups.Groups))
	}
	all := map[string]rulefmt.Rule{}
	for _, r := range groups.Groups[0].Rules {
		all[r.Alert] = r
	}
	if len(all) != 10 {
		t.Errorf("%d alerts, want 10", len(all))
	}
	return all
}

// documented are the names of docs/metrics.md. Those of histograms are the names of their series as well.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{"up": true} // Prometheus' own
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1) {
		if row[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[row[1]+suffix] = true
			}
			continue
		}
		names[row[1]] = true
	}
	return names
}

// used are the names of the metrics in an expression.
func used(t *testing.T, expression string) (names []string) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v", expression, err)
		return nil
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names
}

// TestAlerts: each alert uses metrics that exist, says what it means, and has a paragraph in docs/operations.md, which has no other.
func TestAlerts(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "../../docs/operations.md"), "\n## Alerts\n")
	var headings []string
	for _, h := range regexp.MustCompile(`(?m)^### (.*)\n\n\w`).FindAllStringSubmatch(page, -1) {
		headings = append(headings, h[1])
	}
	all, known := alerts(t), documented(t)
	slices.Sort(headings)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(all)), headings); diff != "" {
		t.Errorf("alerts (-) and paragraphs of docs/operations.md (+):\n%s", diff)
	}
	for name, rule := range all {
		names := used(t, rule.Expr)
		if len(names) == 0 {
			t.Errorf("%s uses no metric", name)
		}
		for _, metric := range names {
			if !known[metric] {
				t.Errorf("%s: docs/metrics.md has no %s", name, metric)
			}
		}
		if want := "docs/operations.md#" + strings.ToLower(name); rule.Annotations["runbook"] != want {
			t.Errorf("%s: runbook %q, want %s", name, rule.Annotations["runbook"], want)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.For == 0 || !slices.Contains([]string{"critical", "warning"}, rule.Labels["severity"]) {
			t.Errorf("%s: want a summary, a description, a time and a severity: %+v", name, rule)
		}
	}
}

// TestFiring: each alert fires where it should, with these summaries, and not where nothing is wrong, or only for a moment.
func TestFiring(t *testing.T) {
	const agent = `{job="calico-node", instance="a:9091"} `
	for _, test := range []struct {
		alert, series string // one sample a minute
		summaries     []string
	}{
		{"CalicoAgentDown", `up` + agent + `1x5 0x20`, []string{"The agent at a:9091 doesn't answer"}},
		{"CalicoAgentDown", `up` + agent + `1x20 0x4 1x10`, nil},
		{"CalicoAgentDown", `up{job="other"} 0x30`, nil},
		{"CalicoNotProgramming", `calico_node_endpoints{instance="a:9091", status="error"} 1x30`, []string{"The agent at a:9091 can't bring the kernel in line"}},
		{"CalicoNotProgramming", `calico_node_firewall_failures_total` + agent + `0+1x30`, []string{"The agent at a:9091 can't bring the kernel in line"}},
		{"CalicoNotProgramming", `calico_node_endpoints{instance="a:9091", status="down"} 3x30`, nil},
		{"CalicoNotProgramming", `calico_node_firewall_failures_total` + agent + `0x10 1x20`, nil},
		{"CalicoEtcdUnreachable", `calico_node_watch_interrupted` + agent + `1x30`, []string{"The agent at a:9091 doesn't reach etcd"}},
		{"CalicoEtcdUnreachable", `calico_node_watch_interrupted` + agent + `0x26 1x4`, nil},
		{"CalicoEtcdNearlyFull", `etcd_mvcc_db_total_size_in_bytes{job="calico-etcd", instance="e"} 1800x30
			etcd_server_quota_backend_bytes{job="calico-etcd", instance="e"} 2000x30`, []string{"The database of etcd at e has 90% of its quota"}},
		{"CalicoEtcdNearlyFull", `etcd_mvcc_db_total_size_in_bytes{job="calico-etcd", instance="e"} 1500x30
			etcd_server_quota_backend_bytes{job="calico-etcd", instance="e"} 2000x30`, nil},
		{"CalicoControllersUnled", `calico_node_controllers_unled_since` + agent + `1700000000x30
			calico_node_controllers_unled_since{job="calico-node", instance="b:9091"} 0x30`, []string{"No calico-controllers leads"}},
		{"CalicoControllersUnled", `calico_node_controllers_unled_since` + agent + `0x30`, nil},
		{"CalicoPoolNearlyFull", `ipam_free{pool="10.1.0.0/16", instance="a"} 5x30
			ipam_allocated{pool="10.1.0.0/16", instance="a"} 95x30
			ipam_free{pool="10.2.0.0/16", instance="a"} 50x30
			ipam_allocated{pool="10.2.0.0/16", instance="a"} 50x30`, []string{"Pool 10.1.0.0/16 has 5% of its addresses left"}},
		{"CalicoPoolNearlyFull", `ipam_free{pool="10.1.0.0/16", instance="a"} 50x30
			ipam_allocated{pool="10.1.0.0/16", instance="a"} 50x30
			ipam_free{pool="10.1.0.0/16", instance="b"} 0x30
			ipam_allocated{pool="10.1.0.0/16", instance="b"} 0x30`, nil}, // b doesn't lead
		{"CalicoAddressesNotFreed", `ipam_gc_blocked{instance="a"} 1x30
			ipam_gc_blocked{instance="b"} 0x30`, []string{"The controllers free no addresses, as too many would be at once"}},
		{"CalicoAddressesNotFreed", `ipam_gc_blocked{instance="a"} 0x30`, nil},
		{"CalicoBGPSessionDown", `calico_node_bgp_troubles{instance="a:9091", kind="other"} 1x30
			calico_node_bgp_troubles{instance="a:9091", kind="password"} 1x30
			calico_node_bgp_troubles{instance="b:9091", kind="password"} 0x30`, []string{"2 BGP neighbours of a:9091 have no session"}},
		{"CalicoBGPSessionDown", `calico_node_bgp_troubles{instance="a:9091", kind="other"} 0x20 1x5 0x5`, nil},
		{"CalicoCertificateNotRenewed", `calico_node_host_problems{instance="a:9091", what="certificate for etcd"} 1x90`, []string{"The agent at a:9091 gets no new certificate for etcd"}},
		{"CalicoCertificateNotRenewed", `calico_node_host_problems{instance="a:9091", what="IP"} 1x90
			calico_node_host_problems{instance="b:9091", what="certificate for etcd"} 1x30`, nil},
		{"CalicoInvalidObjects", `calico_node_invalid_objects{instance="a:9091"} 2x30
			calico_node_invalid_objects{instance="b:9091"} 1x30`, []string{"2 objects or settings are not acted upon"}},
		{"CalicoInvalidObjects", `calico_controllers_invalid_objects{kind="networkpolicy"} 1x30`, []string{"1 objects or settings are not acted upon"}},
		{"CalicoInvalidObjects", `calico_node_invalid_objects{instance="a:9091"} 0x30
			calico_controllers_invalid_objects{kind="networkpolicy"} 0x30`, nil},
	} {
		rule, ok := alerts(t)[test.alert]
		if !ok {
			t.Errorf("there is no %s", test.alert)
			continue
		}
		if diff := cmp.Diff(test.summaries, firing(t, rule, test.series)); diff != "" {
			t.Errorf("%s with %s (-want +got):\n%s", test.alert, test.series, diff)
		}
	}
	tested := read(t, "monitoring_test.go")
	for name := range alerts(t) {
		if strings.Count(tested, `{"`+name+`", `) < 2 {
			t.Errorf("%s: want a case that fires, and one that doesn't", name)
		}
	}
}

// firing evaluates a rule each minute while there are samples, and returns the summaries of the alerts that have fired.
func firing(t *testing.T, rule rulefmt.Rule, series string) (summaries []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+series)
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 10000)
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	samples := 0
	for _, n := range regexp.MustCompile(`x(\d+)`).FindAllStringSubmatch(strings.SplitN(series, "\n", 2)[0], -1) {
		d, err := time.ParseDuration(n[1] + "m")
		if err != nil {
			t.Fatal(err)
		}
		samples += int(d / time.Minute)
	}
	alert := rules.NewAlertingRule(rule.Alert, expression, time.Duration(rule.For), 0, labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", false, slog.New(slog.DiscardHandler))
	for at := range samples + 1 {
		if _, err := alert.Eval(t.Context(), 0, time.Unix(int64(60*at), 0), rules.EngineQueryFunc(engine, storage), nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, a := range alert.ActiveAlerts() {
			if s := a.Annotations.Get("summary"); a.State == rules.StateFiring && !slices.Contains(summaries, s) {
				summaries = append(summaries, s)
			}
		}
	}
	return summaries
}

// TestDashboard: Grafana gets panels whose expressions use metrics that exist.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, manifests+"monitoring/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	if n := len(dashboard.Panels); n < 12 || n > 16 {
		t.Errorf("%d panels, want 12 to 16", n)
	}
	known, ids, cells := documented(t), map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: want an identity, a title and expressions", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[cell]; other != "" || cell[0] >= 24 {
					t.Fatalf("panel %q lies on %q, or beside the dashboard", p.Title, other)
				}
				cells[cell] = p.Title
			}
		}
		for _, target := range p.Targets {
			names := used(t, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
			for _, metric := range names {
				if !known[metric] {
					t.Errorf("panel %q: docs/metrics.md has no %s", p.Title, metric)
				}
			}
		}
	}
}

// TestScraped: the documents' configuration is one, and has the jobs that the rules and the dashboard name.
func TestScraped(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "../../docs/metrics.md"), "```yaml\nscrape_configs:")
	text, _, _ = strings.Cut(text, "```")
	c, err := config.Load("scrape_configs:"+text, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]bool{}
	for _, s := range c.ScrapeConfigs {
		jobs[s.JobName] = true
	}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		for _, m := range regexp.MustCompile(`job=\\?"([^"\\]+)`).FindAllStringSubmatch(read(t, manifests+"monitoring/"+file), -1) {
			if !jobs[m[1]] {
				t.Errorf("%s: docs/metrics.md has no job %s", file, m[1])
			}
		}
	}
}
