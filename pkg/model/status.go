// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// maxUptime is 30 years, in seconds.
const maxUptime = 1e9

func parseStatus(r *reader) (Status, error) {
	var s Status
	err := r.record(
		into("time", &s.Time, (*reader).time),
		field{"uptime", func(r *reader) (err error) {
			var f float64
			if r.null() {
				return nil
			}
			if f, err = r.float(); err == nil && (f < 0 || f > maxUptime) {
				err = fmt.Errorf("%v: want seconds", f)
			}
			s.Uptime = time.Duration(math.Round(f*1000)) * time.Millisecond
			return err
		}},
		into("first_update", &s.FirstUpdate, boolean(false)),
		into("policy_revision", &s.PolicyRevision, func(r *reader) (int64, error) {
			if r.null() {
				return 0, nil
			}
			n, err := r.integer(0, math.MaxInt)
			return int64(n), err
		}),
	)
	if err == nil && s.Time.IsZero() {
		err = missing("time")
	}
	return s, err
}

// format rounds Uptime to milliseconds.
func (s Status) format(w *writer) error {
	if s.Time.IsZero() {
		return missing("time")
	}
	ms := s.Uptime.Round(time.Millisecond).Milliseconds()
	if ms < 0 || ms > maxUptime*1000 {
		return inField("uptime", fmt.Errorf("%s: out of range", s.Uptime))
	}
	w.open('{')
	if err := w.time("time", s.Time); err != nil {
		return err
	}
	w.name("uptime")
	w.b = strconv.AppendFloat(w.b, float64(ms)/1000, 'f', -1, 64)
	w.boolean("first_update", s.FirstUpdate)
	if s.PolicyRevision != 0 {
		w.integer("policy_revision", int(s.PolicyRevision))
	}
	w.close('}')
	return nil
}

func parseEndpointStatus(r *reader) (EndpointStatus, error) {
	var s EndpointStatus
	err := r.record(into("status", &s, word[EndpointStatus]))
	return s, err
}

func (s EndpointStatus) check() error {
	switch s {
	case EndpointUp, EndpointDown, EndpointError:
		return nil
	case "":
		return missing("status")
	}
	return inField("status", fmt.Errorf("%.32q: want up, down or error", string(s)))
}

func (s EndpointStatus) format(w *writer) error {
	w.open('{')
	w.str("status", string(s))
	w.close('}')
	return nil
}

// AgentLives reports whether an agent counts as live, given whether its two reports on itself exist: the one with a
// lease and the last one. An agent that is configured to report nothing has neither, and may be alive.
func AgentLives(status, lastStatus bool) bool { return status || !lastStatus }
