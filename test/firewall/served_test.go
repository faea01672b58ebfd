// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"

	"github.com/calico-go/calico/pkg/lab/eventually"
)

// fetch asks the agent over HTTP, on its host.
func (r *rig) fetch(url string) (string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = r.self.ns.Do(func() error {
				conn, err = net.Dial(network, address)
				return err
			})
			return conn, err
		},
	}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// metric is one of the agent's, as it is now. A page is of a moment ago where it is asked for often: the process has used CPU
// since in one that is new.
func (r *rig) metric(name string) float64 {
	r.Helper()
	const url = "http://127.0.0.1:9091/metrics"
	used := regexp.MustCompile(`(?m)^process_cpu_seconds_total .*$`)
	body := r.served(url)
	before := used.FindString(body)
	eventually.Nil(r, "a new page of metrics", func() (err error) {
		if body, err = r.fetch(url); err == nil && used.FindString(body) == before {
			err = errors.New("it is the former")
		}
		return err
	})
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		r.Fatalf("there is no metric %s", name)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		r.Fatal(err)
	}
	return v
}

// invalid is what /debug/invalid shows.
func (r *rig) invalid() string {
	r.Helper()
	return r.served("http://127.0.0.1:9099/debug/invalid")
}

// served is what the agent answers as soon as it does: an agent that has just
// started lets pods start whether or not it serves HTTP yet.
func (r *rig) served(url string) (body string) {
	r.Helper()
	eventually.Nil(r, url, func() (err error) { body, err = r.fetch(url); return err })
	return body
}
