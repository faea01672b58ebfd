// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
)

// Controllers returns the names of the controllers that a ControllersConfig can disable.
func Controllers() []string {
	return []string{"node", "policy", "workloadendpoint", "serviceaccount", "namespace"}
}

var severities = []string{"debug", "info", "warning", "error"}

func parseControllersConfig(r *reader) (c ControllersConfig, err error) {
	err = r.record(
		into("disabled", &c.Disabled, (*reader).strings),
		into("log_severity_screen", &c.LogSeverityScreen, (*reader).optionalStr),
		field{"prometheus_metrics_port", func(r *reader) error {
			if r.null() {
				return nil
			}
			port, err := r.integer(0, 65535)
			c.MetricsPort = &port
			return err
		}},
		into("meta", &c.Meta, parseMeta),
	)
	return c, err
}

func (c ControllersConfig) check() error {
	for i, name := range c.Disabled {
		if !slices.Contains(Controllers(), name) {
			return inField("disabled", atIndex(i, fmt.Errorf("%.32q: want one of %s", name, strings.Join(Controllers(), ", "))))
		}
	}
	if s := c.LogSeverityScreen; s != "" && !slices.Contains(severities, s) {
		return inField("log_severity_screen", fmt.Errorf("%.32q: want %s", s, strings.Join(severities, ", ")))
	}
	return nil
}

func (c ControllersConfig) format(w *writer) error {
	w.open('{')
	if len(c.Disabled) > 0 {
		w.strings("disabled", c.Disabled)
	}
	w.optional("log_severity_screen", c.LogSeverityScreen)
	if c.MetricsPort != nil {
		w.integer("prometheus_metrics_port", *c.MetricsPort)
	}
	w.meta(c.Meta)
	w.close('}')
	return nil
}
