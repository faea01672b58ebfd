// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/lab/ports"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/test/etcd"
)

func TestVariables(t *testing.T) {
	for _, tt := range []struct {
		config model.ControllersConfig
		want   map[string]string
	}{
		{model.ControllersConfig{}, map[string]string{"ENABLED_CONTROLLERS": "node,policy,workloadendpoint,serviceaccount,namespace,resource", "LOG_LEVEL": "info", "CALICO_METRICS_ADDRESS": ":9094"}},
		{
			model.ControllersConfig{Disabled: model.Controllers(), LogSeverityScreen: "debug", MetricsPort: new(int)},
			map[string]string{"ENABLED_CONTROLLERS": "resource", "LOG_LEVEL": "debug", "CALICO_METRICS_ADDRESS": "0"},
		},
	} {
		if diff := cmp.Diff(tt.want, variables(tt.config)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.config, diff)
		}
		if _, err := Daemon(new(Config)).Prepare("", nil, environ(tt.want), io.Discard); err != nil {
			t.Errorf("%v: %v", tt.want, err)
		}
	}
}

func environ(variables map[string]string) (list []string) {
	for name, value := range variables {
		list = append(list, name+"="+value)
	}
	return list
}

// TestSettings: the controllers have the settings in etcd, except where flags and variables win. They end with success when these change.
func TestSettings(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	e := etcd.New(t)
	e.Put(model.ReadyKey{}, model.Ready(true))
	key := model.ControllersConfigKey{}
	e.Put(key, model.ControllersConfig{Disabled: []string{"policy", "node"}, LogSeverityScreen: "debug", MetricsPort: new(int)})
	free := ports.Free(t, 2)
	page := func(at, path string) string {
		reply, err := http.Get("http://" + at + path)
		if err != nil {
			return ""
		}
		defer func() { _ = reply.Body.Close() }()
		body, _ := io.ReadAll(reply.Body)
		return string(body)
	}
	for _, tt := range []struct {
		args, environ []string
		enabled       string
		level         slog.Level
		served        bool
	}{
		{nil, nil, "workloadendpoint", slog.LevelDebug, false},
		{[]string{"-controllers", "namespace"}, []string{"LOG_LEVEL=warning", "CALICO_METRICS_ADDRESS=" + free[1]}, "namespace", slog.LevelWarn, true},
	} {
		var c Config
		args := append([]string{"-etcd-endpoints", e.Addr(), "-health", free[0]}, tt.args...)
		env, err := Daemon(&c).Prepare("", args, tt.environ, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		c.Kube.APIRoot, c.Identity = api.URL, "test"
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, &c, env) }()
		e.Until("the process has read its settings", func() bool {
			text := page(free[0], "/readyz")
			return text != "" && !strings.Contains(text, "is starting")
		})
		if tt.served {
			e.Until("metrics are served", func() bool { return page(free[1], "/metrics") != "" })
		}
		if tt.served {
			cancel() // no change would end it
		} else {
			e.Put(key, model.ControllersConfig{Disabled: []string{"node"}})
		}
		if err := <-done; err != nil {
			t.Errorf("%v: it ends with %v", tt, err)
		}
		cancel()
		if !c.Enabled[tt.enabled] || c.Enabled[Policies] || c.Enabled[Nodes] || env.Level.Level() != tt.level {
			t.Errorf("%v: enabled %v, level %v", tt, c.Enabled, env.Level)
		}
		e.Put(key, model.ControllersConfig{Disabled: []string{"policy", "node"}, LogSeverityScreen: "debug", MetricsPort: new(int)})
	}
}

// TestSettingsChange: what etcd says anew counts if it says something else, and if it can be read.
func TestSettingsChange(t *testing.T) {
	e := etcd.New(t)
	key := model.ControllersConfigKey{}
	env, err := Daemon(new(Config)).Prepare("", []string{"-log-level", "error"}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	first, done := make(chan map[string]string, 1), make(chan error, 1)
	go func() { done <- watchSettings(t.Context(), e.Store, env, first) }()
	if diff := cmp.Diff(env.Unset(variables(model.ControllersConfig{})), <-first); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	port := 9094
	e.Put(key, model.ControllersConfig{LogSeverityScreen: "debug", MetricsPort: &port}) // a flag wins, and that is the default
	e.Client(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, key.Path(), `{"disabled": ["nodes"]}`)
		return err
	})
	e.Until("the key is listed", func() bool { return env.Problems.Count() == 1 })
	if len(done) > 0 {
		t.Errorf("it ended: %v", <-done)
	}
	e.Remove(key)
	e.Until("the key is no longer listed", func() bool { return env.Problems.Count() == 0 })
	e.Put(key, model.ControllersConfig{Disabled: []string{"node"}})
	if err := <-done; !errors.Is(err, errSettings) {
		t.Error(err)
	}
}
