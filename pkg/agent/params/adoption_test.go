// SPDX-License-Identifier: Apache-2.0

package params

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/calico-go/calico/pkg/daemon/logfile"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/model"
)

// adopter is an adoption of etcd's contents.
type adopter struct {
	testing.TB
	*Adoption
	log bytes.Buffer
}

func newAdopter(t testing.TB, cfg Sources) *adopter {
	a := &adopter{TB: t}
	cfg.Node, cfg.ConfigFile, cfg.Logger = "h", "/etc/felix.cfg", untimed(&a.log, slog.LevelDebug)
	cfg.LogFile = func(string, slog.Level) error { return nil }
	a.Adoption = NewAdoption(cfg, problems.New(cfg.Logger))
	return a
}

// adopts adopts what etcd holds now, and returns the parameters and what was logged.
func (a *adopter) adopts(entries ...model.Entry) (Params, string) {
	a.log.Reset()
	s, unread := Stored{Global: map[string]string{}, Local: map[string]string{}}, map[string]Unread{}
	for _, e := range entries {
		switch key := e.Key.(type) {
		case model.GlobalConfigKey:
			Take(s.Global, key.Name, e)
		case model.HostConfigKey:
			Take(s.Local, key.Name, e)
		}
		if u, bad := UnreadOf(e.Key, e.Path, e.Err); bad {
			unread[e.Path] = u
		}
	}
	p := a.Adopt(s, unread)
	return p, a.log.String()
}

func global(name, text string) model.Entry {
	return put(model.GlobalConfigKey{Name: name}, model.Text(text), 1)
}

func local(name, text string) model.Entry {
	return put(model.HostConfigKey{Host: "h", Name: name}, model.Text(text), 1)
}

// TestPrecedence removes the strongest value, one after the other.
func TestPrecedence(t *testing.T) {
	layers := []map[string]string{
		layerFlag:    {"HealthEnabled": "true", "HealthHost": "192.0.2.1", "HealthPort": "1"},
		layerEnviron: {"HEALTHPORT": "2"},
		layerFile:    {"healthport": "3"},
		layerHost:    {"HealthPort": "4"},
		layerGlobal:  {"HealthPort": "5"},
	}
	for strongest := range layerCount + 1 {
		cfg := Sources{}
		var entries []model.Entry
		if strongest <= layerFlag {
			cfg.Health = "192.0.2.1:1"
		}
		if strongest <= layerEnviron {
			cfg.Felix = layers[layerEnviron]
		}
		if strongest <= layerFile {
			cfg.File = layers[layerFile]
		}
		if strongest <= layerHost {
			entries = append(entries, local("HealthPort", "4"))
		}
		if strongest <= layerGlobal {
			entries = append(entries, global("HealthPort", "5"))
		}
		want := []uint16{1, 2, 3, 4, 5, 9099}[strongest]
		if p, log := newAdopter(t, cfg).adopts(entries...); p.Health.Port != want {
			t.Errorf("strongest layer %d: port %d, want %d\n%s", strongest, p.Health.Port, want, log)
		}
	}
}

// TestBadStrongest: if the strongest layer has a bad value the default is used, whatever weaker layers say; their bad values are shown too.
func TestBadStrongest(t *testing.T) {
	a := newAdopter(t, Sources{Felix: map[string]string{"HEALTHPORT": "0"}, File: map[string]string{"HealthPort": "x"}})
	p, log := a.adopts(local("HealthPort", ""), global("HealthPort", "5"))
	want := `level=WARN msg="setting is not used" setting=FELIX_HEALTHPORT reason="\"0\": want a number, 1 to 65535" instead="\"9099\", default"
level=WARN msg="setting is not used" setting="/etc/felix.cfg: HealthPort" reason="\"x\": want a number, 1 to 65535" instead="\"9099\", default"
level=WARN msg="setting is not used" setting=/calico/v1/host/h/config/HealthPort reason="\"\": want a number, 1 to 65535" instead="\"9099\", default"
level=INFO msg="setting is without effect: a stronger one stands before it until the agent is started without that" setting=/calico/v1/config/HealthPort stronger=environment value=9099
`
	if diff := cmp.Diff(want, log); diff != "" || p.Health.Port != 9099 || a.problems.Count() != 3 {
		t.Errorf("bad values: port %d, %d problems (-want +got):\n%s", p.Health.Port, a.problems.Count(), diff)
	}
	huge := put(model.HostConfigKey{Host: "h", Name: "HealthPort"}, errors.New("too large"), 1)
	for _, step := range []struct {
		name    string
		entries []model.Entry
		port    uint16
		want    []problems.Problem
	}{
		{"the host's is bad, the global one good", []model.Entry{local("HealthPort", "soon"), global("HealthPort", "5")}, 9099, []problems.Problem{
			{Path: "/calico/v1/host/h/config/HealthPort", Reason: `"soon": want a number, 1 to 65535`, Value: `"soon"`, Used: `"9099", default`},
		}},
		{"the host's can't be read", []model.Entry{huge, global("HealthPort", "5")}, 9099, []problems.Problem{
			{Path: "/calico/v1/host/h/config/HealthPort", Reason: "too large", Used: `"9099", default`},
		}},
		{"the host's is good, the global one bad", []model.Entry{local("HealthPort", "7"), global("HealthPort", "soon")}, 7, []problems.Problem{
			{Path: "/calico/v1/config/HealthPort", Reason: `"soon": want a number, 1 to 65535`, Value: `"soon"`, Used: `"7", /calico/v1/host/h/config/`},
		}},
		{"both are good", []model.Entry{local("HealthPort", "7"), global("HealthPort", "5")}, 7, nil},
		{"the host's is gone", []model.Entry{global("HealthPort", "5")}, 5, nil},
	} {
		a := newAdopter(t, Sources{})
		p, log := a.adopts(step.entries...)
		got := a.problems.All()
		if diff := cmp.Diff(step.want, got, cmpopts.IgnoreFields(problems.Problem{}, "Since", "Kind"), cmpopts.EquateEmpty()); diff != "" || p.Health.Port != step.port {
			t.Errorf("%s: port %d, want %d (-want +got):\n%s\n%s", step.name, p.Health.Port, step.port, diff, log)
		}
	}
}

// TestAdopt follows the reports as etcd changes.
func TestAdopt(t *testing.T) {
	a := newAdopter(t, Sources{Felix: map[string]string{"LOGPREFIX": "mine", "BOGUS3": "1"}, File: map[string]string{"InterfacePrefix": "tap", "Bogus": "1"}})
	odd := global("RouteRefreshInterval", "5")
	odd.Path = "/calico/v1/config/%52outeRefreshInterval"
	huge := put(model.GlobalConfigKey{Name: "LogSeverityScreen"}, errors.New("too large"), 1)
	refresh := func(text string) model.Entry { return global("RouteRefreshInterval", text) }
	steps := []struct {
		name    string
		entries []model.Entry
		change  func(*Params) // of the defaults
		log     string
		open    []string
	}{
		{"process only", nil, func(*Params) {},
			`level=INFO msg=setting name=InterfacePrefix value=tap from=/etc/felix.cfg was=cali applies="at once"
level=INFO msg=setting name=LogPrefix value=mine from=environment was=calico-packet applies="at once"
level=WARN msg="setting names no parameter that is known, and is not used" setting=FELIX_BOGUS3
level=WARN msg="setting names no parameter that is known, and is not used" setting="/etc/felix.cfg: Bogus"
`, []string{"notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"again", nil, func(*Params) {}, "", []string{"notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"all kinds", []model.Entry{refresh("soon"), global("IpInIpEnabled", "true"), local("marker", "x"), global("Bogus2", ""), global("LogPrefix", "mine"),
			local("InterfacePrefix", "veth"), global("IptablesRefreshInterval", "60"), huge},
			func(p *Params) { p.FirewallInterval = time.Minute },
			`level=WARN msg="setting is not used" setting=/calico/v1/config/RouteRefreshInterval reason="time \"soon\": want seconds, 1 to 3600" instead="\"30\", default"
level=WARN msg="setting is not used" setting=/calico/v1/config/LogSeverityScreen reason="too large" instead="\"INFO\", default"
level=INFO msg=setting name=NftablesRefreshInterval value=60 from=/calico/v1/config/ was=10 applies="at once"
level=INFO msg="setting is without effect: a stronger one stands before it until the agent is started without that" setting=/calico/v1/host/h/config/InterfacePrefix stronger=/etc/felix.cfg value=tap
level=DEBUG msg="setting is not this agent's" setting=/calico/v1/host/h/config/marker
level=WARN msg="setting names no parameter that is known, and is not used" setting=/calico/v1/config/Bogus2
level=DEBUG msg="setting is not this agent's" setting=/calico/v1/config/IpInIpEnabled
`, []string{"notice /calico/v1/config/Bogus2", "/calico/v1/config/LogSeverityScreen", "/calico/v1/config/RouteRefreshInterval", "notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"worse, others gone", []model.Entry{refresh("0"), global("Bogus2", "other")}, func(*Params) {},
			`level=WARN msg="setting is not used" setting=/calico/v1/config/RouteRefreshInterval reason="time \"0\": want seconds, 1 to 3600" instead="\"30\", default"
level=INFO msg="setting is in order again" setting=/calico/v1/config/LogSeverityScreen
level=INFO msg=setting name=NftablesRefreshInterval value=10 from=default was=60 applies="at once"
`, []string{"notice /calico/v1/config/Bogus2", "/calico/v1/config/RouteRefreshInterval", "notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"right", []model.Entry{refresh("20\n")}, func(p *Params) { p.RefreshInterval = 20 * time.Second },
			`level=INFO msg="setting is in order again" setting=/calico/v1/config/RouteRefreshInterval
level=INFO msg=setting name=RouteRefreshInterval value="20\n" from=/calico/v1/config/ was=30 applies="at once"
`, []string{"notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"the host's own", []model.Entry{refresh("20\n"), local("ROUTEREFRESHINTERVAL", "40")}, func(p *Params) { p.RefreshInterval = 40 * time.Second },
			`level=INFO msg=setting name=RouteRefreshInterval value=40 from=/calico/v1/host/h/config/ was="20\n" applies="at once"
`, []string{"notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"another spelling of the key", []model.Entry{odd}, func(*Params) {},
			`level=WARN msg="setting is not used" setting=/calico/v1/config/%52outeRefreshInterval reason="the key isn't spelled as it should be" instead="as if it were not there"
level=INFO msg=setting name=RouteRefreshInterval value=30 from=default was=40 applies="at once"
`, []string{"/calico/v1/config/%52outeRefreshInterval", "notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
		{"empty", nil, func(*Params) {}, "level=INFO msg=\"setting is in order again\" setting=/calico/v1/config/%52outeRefreshInterval\n", []string{"notice /etc/felix.cfg: Bogus", "notice FELIX_BOGUS3"}},
	}
	for _, step := range steps {
		want := Resolve().Params
		want.InterfacePrefixes, want.LogPrefix = []string{"tap"}, "mine"
		step.change(&want)
		got, log := a.adopts(step.entries...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(step.log, log); diff != "" {
			t.Errorf("%s: log (-want +got):\n%s", step.name, diff)
		}
		var open []string
		for _, p := range a.problems.All() {
			path := p.Path
			if p.Kind == problems.Notice {
				path = "notice " + path
			}
			open = append(open, path)
		}
		if diff := cmp.Diff(step.open, open); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestTwoSpellings: the same setting in another spelling at the same place is reported, not ignored.
func TestTwoSpellings(t *testing.T) {
	a := newAdopter(t, Sources{Felix: map[string]string{"LogPrefix": "mine", "LOGPREFIX": "other"}, File: map[string]string{"HealthPort": "1", "healthport": "2"}, Health: "127.0.0.1:3"})
	p, log := a.adopts(global("NftablesRefreshInterval", "20"), global("IptablesRefreshInterval", "30"), global("VXLANPort", "5"), global("vxlanport", "x"), global("HealthPort", "4"))
	want := `level=WARN msg="setting is not used" setting=/calico/v1/config/vxlanport reason="\"x\": want a number, 1 to 65535" instead="\"5\", /calico/v1/config/"
level=INFO msg=setting name=NftablesRefreshInterval value=20 from=/calico/v1/config/ was=10 applies="at once"
level=INFO msg=setting name=LogPrefix value=mine from=environment was=calico-packet applies="at once"
level=INFO msg=setting name=HealthPort value=3 from=flag was=9099 applies="at once"
level=INFO msg=setting name=VXLANPort value=5 from=/calico/v1/config/ was=4789 applies="at once"
level=WARN msg="setting is without effect: the same place has it in another spelling, which counts" setting=FELIX_LOGPREFIX counts=FELIX_LogPrefix value=mine
level=INFO msg="setting is without effect: a stronger one stands before it until the agent is started without that" setting="/etc/felix.cfg: HealthPort" stronger=flag value=3
level=INFO msg="setting is without effect: a stronger one stands before it until the agent is started without that" setting="/etc/felix.cfg: healthport" stronger=flag value=3
level=INFO msg="setting is without effect: a stronger one stands before it until the agent is started without that" setting=/calico/v1/config/HealthPort stronger=flag value=3
level=WARN msg="setting is without effect: the same place has it in another spelling, which counts" setting=/calico/v1/config/IptablesRefreshInterval counts=/calico/v1/config/NftablesRefreshInterval value=20
`
	if diff := cmp.Diff(want, log); diff != "" || p.FirewallInterval != 20*time.Second || p.VXLANPort != 5 || p.LogPrefix != "mine" {
		t.Errorf("%+v (-want +got):\n%s", p, diff)
	}
	spelled := []string{"/calico/v1/config/IptablesRefreshInterval", "FELIX_LOGPREFIX"}
	for _, path := range spelled {
		if !slices.ContainsFunc(a.problems.All(), func(p problems.Problem) bool {
			return p.Kind == problems.Notice && p.Path == path && strings.Contains(p.Reason, "in another spelling, and counts")
		}) {
			t.Errorf("%s is not listed: %+v", path, a.problems.All())
		}
	}
	if _, log := a.adopts(global("IptablesRefreshInterval", "30")); !strings.Contains(log, "name=NftablesRefreshInterval value=30") {
		t.Errorf("the spelling that counted is gone:\n%s", log)
	}
}

// TestLocal: settings of files and listening addresses are not taken from etcd, but from the host; one with the default value is not
// reported.
func TestLocal(t *testing.T) {
	a := newAdopter(t, Sources{Felix: map[string]string{"PrometheusMetricsHost": "192.0.2.1"}, File: map[string]string{"BGPListenAddresses": "192.0.2.2"}})
	p, _ := a.adopts(local("LogFilePath", "/etc/cron.d/x"), global("logfilepath", "NONE"), global("HealthHost", "0.0.0.0"), local("HealthHost", ""),
		global("PrometheusMetricsHost", "::1"), local("BGPListenAddresses", "0.0.0.0"))
	want := defaults()
	want.Metrics.Host, want.BGPListen = "192.0.2.1", []netip.Addr{netip.MustParseAddr("192.0.2.2")}
	if diff := cmp.Diff(want, p, sameParams()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	var got []string
	for _, p := range a.problems.All() {
		if !strings.Contains(p.Reason, "isn't taken from etcd: set FELIX_") {
			t.Errorf("%+v", p)
		}
		got = append(got, p.Path)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"/calico/v1/config/HealthHost", "/calico/v1/config/PrometheusMetricsHost",
		"/calico/v1/host/h/config/BGPListenAddresses", "/calico/v1/host/h/config/HealthHost", "/calico/v1/host/h/config/LogFilePath"}, got); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// TestLevel: a bad level is reported though the level before let nothing through.
func TestLevel(t *testing.T) {
	level := new(slog.LevelVar)
	a := newAdopter(t, Sources{Level: level})
	a.cfg.Logger = untimed(&a.log, level)
	a.problems = problems.New(a.cfg.Logger)
	for _, step := range []struct {
		text  string
		level slog.Level
		log   string
	}{
		{"NONE", logfile.LevelNone, "level=INFO msg=setting name=LogSeverityScreen value=NONE from=/calico/v1/config/ was=INFO applies=\"at once\"\n"},
		{"loud", slog.LevelInfo, `level=WARN msg="setting is not used" setting=/calico/v1/config/LogSeverityScreen reason="severity \"loud\": want one of DEBUG, INFO, WARNING, ERROR, CRITICAL, NONE" instead="\"INFO\", default"
level=INFO msg=setting name=LogSeverityScreen value=INFO from=default was=NONE applies="at once"
`},
		{"ERROR", slog.LevelError, `level=INFO msg="setting is in order again" setting=/calico/v1/config/LogSeverityScreen
level=INFO msg=setting name=LogSeverityScreen value=ERROR from=/calico/v1/config/ was=INFO applies="at once"
`},
		{"DEBUG", slog.LevelDebug, "level=INFO msg=setting name=LogSeverityScreen value=DEBUG from=/calico/v1/config/ was=ERROR applies=\"at once\"\n"},
	} {
		_, log := a.adopts(global("LogSeverityScreen", step.text))
		if diff := cmp.Diff(step.log, log); diff != "" || level.Level() != step.level {
			t.Errorf("%s: level %v, want %v (-want +got):\n%s", step.text, level.Level(), step.level, diff)
		}
	}
}

// TestFlagLayer turns flags into values of parameters.
func TestFlagLayer(t *testing.T) {
	tests := []struct {
		health, metrics string
		want            [2]string
	}{
		{"", "", [2]string{"127.0.0.1:9099", ":9091"}},
		{"0", "0", [2]string{}},
		{":80", "[::1]:81", [2]string{":80", "[::1]:81"}},
	}
	for _, test := range tests {
		for _, felix := range []map[string]string{nil, {"HealthEnabled": "x", "HealthPort": "x", "PrometheusMetricsHost": "x"}} {
			p, _ := newAdopter(t, Sources{Health: test.health, Metrics: test.metrics, Felix: felix}).adopts()
			if got := [2]string{p.Health.String(), p.Metrics.String()}; got != test.want {
				t.Errorf("%q %q: %v, want %v", test.health, test.metrics, got, test.want)
			}
		}
	}
	p, _ := newAdopter(t, Sources{Health: "0", Felix: map[string]string{"HealthEnabled": "true", "PrometheusMetricsEnabled": "false"}}).adopts()
	if p.Health.String() != "" || p.Metrics.String() != "" {
		t.Errorf("%+v %+v: the flag and the environment say nowhere", p.Health, p.Metrics)
	}
}

// untimed returns a logger without the time.
func untimed(b *bytes.Buffer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func put(key model.Key, value any, revision int64) model.Entry {
	e := model.Entry{Path: key.Path(), Key: key, Revision: revision, Created: revision, Value: value}
	if err, invalid := value.(error); invalid {
		e.Value, e.Err = nil, err
	}
	return e
}
