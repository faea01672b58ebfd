// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"

	"github.com/calico-go/calico/test/eventually"
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

// metric is one of the agent's.
func (r *rig) metric(name string) float64 {
	r.Helper()
	body := r.served("http://127.0.0.1:9091/metrics")
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
