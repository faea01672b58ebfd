// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/calico-go/calico/pkg/daemon/metrics"
	"github.com/calico-go/calico/pkg/daemon/problems"
	"github.com/calico-go/calico/pkg/lab/eventually"
	"github.com/calico-go/calico/pkg/lab/ports"
	"github.com/calico-go/calico/pkg/server"
)

// TestReadersThatStop: any number of connections that ask for metrics and read nothing take little memory, and health answers meanwhile.
// Once they end, metrics are served again.
func TestReadersThatStop(t *testing.T) {
	registry := metrics.NewRegistry("test", "0")
	many := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "many", Help: "many"}, []string{"n"})
	for i := range 2000 {
		many.WithLabelValues(strconv.Itoa(i)).Set(1)
	}
	registry.MustRegister(many)
	health := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "well") })
	s := New(problems.New(slog.New(slog.DiscardHandler)), health, metrics.Handler(registry))
	defer s.Close()
	addrs := ports.Free(t, 2)
	at := func(addr string) Address {
		a, err := ParseAddress(addr)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	s.Configure(at(addrs[0]), at(addrs[1]))
	if health, metrics := s.Move(); health != nil || metrics != nil {
		t.Fatal(health, metrics)
	}
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return (m.HeapInuse + m.StackInuse) >> 20
	}
	before := used()
	request := strings.Repeat("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", 100)
	var conns []net.Conn
	answered := 0
	for i := range 1000 {
		c, err := net.Dial("tcp", addrs[1])
		if errors.Is(err, syscall.ECONNRESET) {
			continue // refused before it was made
		} else if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, c)
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		_, _ = io.WriteString(c, request) // it is refused, perhaps
		if i%100 == 99 {
			if err := answers("http://" + addrs[0]); err != nil {
				t.Errorf("health beside %d connections: %v", i, err)
			}
		}
	}
	for _, c := range conns { // until each has been served or refused
		if n, _ := c.Read(make([]byte, 1)); n == 1 {
			answered++
		}
	}
	if after := used(); after > before+32 || answered > 64 {
		t.Errorf("%d connections that read nothing: %d answered, %d MiB before, %d after", len(conns), answered, before, after)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually.Nil(t, "metrics again", func() error { return answers("http://" + addrs[1] + "/metrics") })
}

// TestProbes: the kubelet, whose probes come from the host, is answered whatever connections others on the host hold.
func TestProbes(t *testing.T) {
	health := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) })
	s := New(problems.New(slog.New(slog.DiscardHandler)), health, http.NotFoundHandler())
	defer s.Close()
	addr := ports.Free(t, 1)[0]
	at, err := ParseAddress(addr)
	if err != nil {
		t.Fatal(err)
	}
	s.Configure(at, Address{})
	if health, _ := s.Move(); health != nil {
		t.Fatal(health)
	}
	for _, says := range []string{"", "G", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"} {
		for range 2 * server.Connections {
			if c, err := net.Dial("tcp", addr); err == nil {
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, says)
			}
		}
		if err := answers("http://" + addr + "/readiness"); err != nil {
			t.Errorf("beside connections that say %q: %v", says, err)
		}
	}
}

func answers(url string) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: eventually.Limit}
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	if _, err = io.Copy(io.Discard, r.Body); err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", r.Status)
	}
	return err
}
