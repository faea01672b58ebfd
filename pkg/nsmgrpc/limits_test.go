// SPDX-License-Identifier: Apache-2.0

package nsmgrpc

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/calico-go/calico/api/nsm"
	"github.com/calico-go/calico/pkg/server"
)

// TestLimits: a client of a manager has so many connections, calls, and bytes of a call.
func TestLimits(t *testing.T) {
	l, err := Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer()
	api.RegisterClientConnectionServer(s, podServer{m: &recorder{}})
	served := make(chan error, 1)
	go func() { served <- serve(t.Context(), s, l) }()
	defer func() { s.Stop(); <-served }()

	err = at(l.Addr().String(), func(c *grpc.ClientConn) error {
		for _, r := range []*api.ConnectionRequest{{RequestId: strings.Repeat("x", maxMessage)}, {RequestId: "1"}} {
			_, err := api.NewClientConnectionClient(c).RequestConnection(t.Context(), r)
			if large := len(r.RequestId) > 1; large != (status.Code(err) == codes.ResourceExhausted) {
				t.Errorf("a request of %d bytes: %v", len(r.RequestId), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	var all []net.Conn
	for range maxConnections + 1 {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		all = append(all, c)
	}
	if _, err := all[maxConnections].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("connection %d: %v", maxConnections+1, err)
	}
	if _, err := io.WriteString(all[0], http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	frames := http2.NewFramer(all[0], all[0])
	if err := frames.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	f, err := frames.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	says, is := f.(*http2.SettingsFrame)
	if !is {
		t.Fatal(f)
	}
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: maxStreams, http2.SettingMaxHeaderListSize: maxHeader} {
		if got, _ := says.Value(id); got != want {
			t.Errorf("%v: %d, want %d", id, got, want)
		}
	}
}

// pipe is a listener with one connection.
type pipe struct{ made chan net.Conn }

func (p pipe) Accept() (net.Conn, error) {
	if c, ok := <-p.made; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipe) Close() error   { close(p.made); return nil }
func (p pipe) Addr() net.Addr { return &net.UnixAddr{} }

// TestLeavesTheSilent: a connection ends on which nothing is asked, whether it begins to speak or not.
func TestLeavesTheSilent(t *testing.T) {
	const goodbye = 10 * time.Second // gRPC's own
	for says, within := range map[string]time.Duration{"": connectTimeout, http2.ClientPreface: server.Timeout + goodbye} {
		synctest.Test(t, func(t *testing.T) {
			p := pipe{make(chan net.Conn)}
			s := newServer()
			served := make(chan error, 1)
			go func() { served <- s.Serve(p) }()
			defer func() { s.Stop(); <-served }()
			start := time.Now()
			client, conn := net.Pipe()
			p.made <- conn
			go func() {
				if _, err := io.WriteString(client, says); err == nil && says != "" {
					_ = http2.NewFramer(client, nil).WriteSettings()
				}
			}()
			_, _ = io.Copy(io.Discard, client)
			if took := time.Since(start); took > within {
				t.Errorf("one that says %q is left after %s", says, took)
			}
		})
	}
}
