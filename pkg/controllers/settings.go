// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
)

// errSettings ends a process whose settings in etcd have changed. Whoever keeps it running starts one with the new ones.
var errSettings = errors.New("the settings in etcd have changed")

// variables returns what etcd says of the controllers, as the variables that say the same.
func variables(c model.ControllersConfig) map[string]string {
	metrics := metricsAddress
	switch port := c.MetricsPort; {
	case port != nil && *port == 0:
		metrics = "0"
	case port != nil:
		metrics = ":" + strconv.Itoa(*port)
	}
	on := slices.DeleteFunc(names(), func(name string) bool { return slices.Contains(c.Disabled, name) })
	return map[string]string{"ENABLED_CONTROLLERS": strings.Join(on, ","), "LOG_LEVEL": cmp.Or(c.LogSeverityScreen, "info"), "CALICO_METRICS_ADDRESS": metrics}
}

// watchSettings passes on what etcd says of the settings that neither flags nor variables make, and returns errSettings when that changes.
func watchSettings(ctx context.Context, client *store.Client, env run.Env, first chan<- map[string]string) error {
	key := model.ControllersConfigKey{}
	var known map[string]string
	return client.Watch(ctx, []string{key.Path()}, func(u model.Update) error {
		entry := model.Entry{Path: key.Path(), Key: key} // none
		for _, e := range u.Entries {
			if e.Key == key {
				entry = e
			}
		}
		env.Problems.Report(entry.Path, entry.Err)
		if entry.Err != nil && known != nil {
			return nil // what it said before stays
		}
		config, _ := entry.Value.(model.ControllersConfig)
		switch now := env.Unset(variables(config)); {
		case known == nil:
			known = now
			first <- now
		case !maps.Equal(known, now):
			env.Logger.Info("the controllers' settings in etcd have changed: this process ends, for one with the new ones", "key", entry.Path)
			return errSettings
		}
		return nil
	})
}

// applySettings waits for the settings in etcd, until the context ends, and sets them.
func applySettings(ctx context.Context, env run.Env, settings <-chan map[string]string) error {
	tick := time.NewTicker(turn)
	defer tick.Stop()
	for {
		env.Health.Turn()
		select {
		case <-ctx.Done():
			return nil
		case s := <-settings:
			return env.Set(s)
		case <-tick.C:
		}
	}
}
